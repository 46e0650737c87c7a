"""Asks a nsqlookupd which nsqds have a topic, or lead its partitions. No thread of its own.

Source: client guide, "Discovery"; "How we redesign the NSQ smart client".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from nsqclient.config import Config
from nsqclient.display import without_password
from nsqclient.errors import DiscoveryError, HTTPError, HTTPStatusError, TLSError
from nsqclient.http.answers import Producer
from nsqclient.http.urls import lookup_url, split_address
from nsqclient.partitions.routes import TopicRoutes
from nsqclient.runtime.line_limit import LineLimit

if TYPE_CHECKING:
    from nsqclient.http.nsqlookupd import NsqlookupdHTTP

__all__ = ["Found", "config_for", "find_routes", "lookup", "lookup_url", "nodes"]

logger = logging.getLogger("nsqclient.discovery")
_unusable = LineLimit(logger)

#: Of one answer, in bytes: room for some 50,000 nsqds.
_MAX_ANSWER_SIZE = 16 * 1024 * 1024


#: What a partitioned nsqlookupd says of a topic that writers cannot use, or that is none.
_NOT_FOR_WRITERS = ("Key not found", "Topic has no channel")


class Found(NamedTuple):
    """What one nsqlookupd answered."""

    routes: TopicRoutes
    #: All nsqlookupds of a partitioned cluster: (address, does it lead).
    lookupds: tuple[tuple[str, bool], ...] = ()
    #: Why there are no routes, where it said so.
    problem: str = ""


def config_for(address: str, configured: Iterable[str], config: Config) -> Config:
    """Return the config with which one nsqlookupd is asked; pure.

    Whoever answers for a configured nsqlookupd may list any host as another one of its cluster.
    So ``auth_secret`` goes to the hosts that were configured, with the scheme that was configured
    for them, and to those of ``lookupd_authorized_hosts``, and to no other.
    """
    if not (config.auth_secret and config.skip_lookupd_authorization):
        return config
    parts = split_address(address, "lookupd_http_address")
    for each in configured:
        given = split_address(each, "lookupd_http_address")
        if (parts.scheme, parts.hostname) == (given.scheme, given.hostname):
            return config
    host = parts.hostname or ""
    for text in config.lookupd_authorized_hosts.lower().split(","):
        name = text.strip()
        if name and (host == name or name.startswith(".") and host.endswith(name)):
            return config
    return config.replace(skip_lookupd_authorization=False)


def find_routes(address: str, topic: str, access: str, config: Config) -> Found:
    """Ask one nsqlookupd for a topic, be it stock or partitioned.

    A partitioned one is also asked for the other nsqlookupds of its cluster; a stock one gets one
    request, as ever. ``access`` is "r" or "w". Blocks and raises like ``lookup``.
    """
    try:
        with _client(address, config) as client:
            routes, problem = _routes(client, address, topic, access)
            return Found(routes, _lookupds(client, address) if routes.is_partitioned else (),
                         problem)
    except (HTTPError, TLSError) as exc:
        reason = exc.reason
        if isinstance(exc, HTTPStatusError) and exc.status in (401, 403) and config.auth_secret \
                and not config.skip_lookupd_authorization:
            reason += ("; auth_secret was not sent: skip_lookupd_authorization is false, or it was"
                       " not configured and lookupd_authorized_hosts does not name it")
        raise DiscoveryError(address, reason) from exc


def _routes(
    client: NsqlookupdHTTP, address: str, topic: str, access: str
) -> tuple[TopicRoutes, str]:
    try:
        found = client.lookup(topic, access)
    except HTTPStatusError as exc:
        if exc.message == "TOPIC_NOT_FOUND":
            logger.debug("nsqlookupd %s does not know %s yet", without_password(address), topic)
            return TopicRoutes(), ""
        if exc.message.startswith(_NOT_FOR_WRITERS):
            return TopicRoutes(is_partitioned=True), exc.message
        raise
    if found.partitions is None:
        return TopicRoutes(plain=tuple(_usable(address, found.producers))), ""
    leaders = {}
    for partition, producer in found.partitions.items():
        for nsqd in _usable(address, [producer]):
            leaders[partition] = nsqd
    # An nsqd that is listed and leads no partition is one without support for them.
    led = {*leaders.values()}
    plain = [nsqd for nsqd in _usable(address, found.producers) if nsqd not in led]
    return TopicRoutes(tuple(plain), leaders, found.meta, is_partitioned=True), ""


def _lookupds(client: NsqlookupdHTTP, address: str) -> tuple[tuple[str, bool], ...]:
    try:
        listed = client.list_lookupds()
    except HTTPError as exc:
        # Those that were given are enough to go on with.
        logger.debug("nsqlookupd %s lists no others: %s", without_password(address), exc.reason)
        return ()
    scheme = "https://" if address.startswith("https:") else ""
    return tuple((scheme + node.address, node.is_leader) for node in listed)


def nodes(address: str, config: Config) -> list[str]:
    """Ask one nsqlookupd for the ``host:port`` of every nsqd it knows. Else like ``lookup``."""
    try:
        with _client(address, config) as client:
            return _usable(address, [node.producer for node in client.nodes()])
    except (HTTPError, TLSError) as exc:
        raise DiscoveryError(address, exc.reason) from exc


def lookup(address: str, topic: str, config: Config) -> list[str]:
    """Ask one nsqlookupd; return the ``host:port`` of every nsqd that has the topic.

    An unknown topic gives an empty list: it is "not yet", no error.

    Blocks: ``dial_timeout`` to connect, then ``lookupd_poll_timeout`` for the whole answer, at
    most.

    Raises:
        DiscoveryError: it cannot be reached, or what it says is no answer to a lookup, or has
            more than 16 MiB.
    """
    try:
        with _client(address, config) as client:
            return _usable(address, client.lookup(topic).producers)
    except HTTPStatusError as exc:
        if exc.message == "TOPIC_NOT_FOUND":
            logger.debug("nsqlookupd %s does not know %s yet", without_password(address), topic)
            return []
        raise DiscoveryError(address, exc.reason) from exc
    except (HTTPError, TLSError) as exc:
        raise DiscoveryError(address, exc.reason) from exc


def _client(address: str, config: Config) -> NsqlookupdHTTP:
    # Here, since requests takes longer to import than the rest of the library.
    from nsqclient.http.nsqlookupd import NsqlookupdHTTP

    timeout = config.lookupd_poll_timeout
    return NsqlookupdHTTP(
        address, config, connect_timeout=min(config.dial_timeout, timeout), timeout=timeout,
        max_answer_size=_MAX_ANSWER_SIZE,
    )


def _usable(address: str, producers: Iterable[Producer]) -> list[str]:
    found = []
    for producer in producers:
        if producer.broadcast_address and producer.tcp_port:
            found.append(producer.tcp_address)
        else:
            logger.log(
                _unusable.level(logging.WARNING),
                "nsqlookupd %s lists an unusable producer: %.200r", without_password(address),
                producer,
            )
    return found
