"""Asks stock and partitioned nsqlookupds which nsqds have a topic or lead its partitions.

Source: "How we redesign the NSQ smart client".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from nsqclient.config import Config
from nsqclient.discovery import client_errors, client_options, is_unknown_topic, usable
from nsqclient.display import without_password
from nsqclient.errors import NSQHTTPError, NSQHTTPStatusError
from nsqclient.protocol.partitioned.lookup_table import TopicRoutes

if TYPE_CHECKING:
    from nsqclient.partitioned.http import PartitionedNsqlookupdHTTP

logger: logging.Logger = logging.getLogger("nsqclient.discovery")

#: Seconds after which an nsqlookupd is late, and newer answers of others replace its last one.
LATE_AFTER = 1.0
#: Answers of a partitioned nsqlookupd for a topic that does not exist or cannot be written to.
_NOT_FOR_WRITERS = ("Key not found", "Topic has no channel")


class RoutesResult(NamedTuple):
    routes: TopicRoutes
    #: All nsqlookupds of a partitioned cluster: (address, whether it is the leader).
    lookupds: tuple[tuple[str, bool], ...] = ()
    problem: str = ""  #: why routes are missing, according to the nsqlookupd
    is_known: bool = True  #: the nsqlookupd knows the topic, even if no nsqd has it


def lookup_routes(address: str, topic: str, access: str, config: Config) -> RoutesResult:
    """Ask one stock or partitioned nsqlookupd for a topic.

    A partitioned nsqlookupd is also asked for the others of its cluster. ``access`` is "r" or "w".
    Blocks and raises like ``discovery.lookup_topic``.
    """
    # Imported here because requests takes longer to import than the whole library.
    from nsqclient.partitioned.http import PartitionedNsqlookupdHTTP

    with client_errors(address, config), PartitionedNsqlookupdHTTP(
            address, config, **client_options(config)) as client:
        found = _find(client, address, topic, access)
        if found.routes.is_partitioned:
            found = found._replace(lookupds=_lookupds(client, address))
        return found


def lookup(address: str, topic: str, config: Config) -> list[str]:
    """Ask one nsqlookupd for every nsqd that has the topic, like ``discovery.lookup_topic``."""
    routes = lookup_routes(address, topic, "", config).routes
    return list(dict.fromkeys([*routes.plain, *routes.partitions.values()]))


def _find(client: PartitionedNsqlookupdHTTP, address: str, topic: str, access: str) -> RoutesResult:
    try:
        found = client.lookup(topic, access)
    except NSQHTTPStatusError as exc:
        if is_unknown_topic(address, topic, exc):
            return RoutesResult(TopicRoutes(), is_known=False)
        if exc.message.startswith(_NOT_FOR_WRITERS):
            return RoutesResult(TopicRoutes(is_partitioned=True), problem=exc.message)
        raise
    leaders = {
        partition: nsqd for partition, producer in (found.partitions or {}).items()
        for nsqd in usable(address, [producer])}
    # A listed nsqd that does not lead a partition is a stock nsqd.
    plain = [nsqd for nsqd in usable(address, found.producers) if nsqd not in leaders.values()]
    return RoutesResult(TopicRoutes(
        tuple(plain), leaders, found.meta, is_partitioned=found.partitions is not None,
        http_addresses={
            one.tcp_address: one.http_address if one.http_port else ""
            for one in [*found.producers, *(found.partitions or {}).values()]
            if not one.problem}),
        problem="" if plain or leaders else next(
            (one.problem for one in found.producers if one.problem), ""))


def _lookupds(client: PartitionedNsqlookupdHTTP, address: str) -> tuple[tuple[str, bool], ...]:
    try:
        listed = client.list_lookupds()
    except NSQHTTPError as exc:
        logger.debug("nsqlookupd %s lists no others: %s", without_password(address), exc.reason)
        return ()
    scheme = "https://" if address.startswith("https:") else ""
    return tuple((scheme + node, is_leader) for node, is_leader in listed)
