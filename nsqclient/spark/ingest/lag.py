"""How much waits at the nsqds, by their HTTP ports. Never fails a query; leaves out the unknown."""

from __future__ import annotations

import logging
from typing import NamedTuple

from nsqclient.errors import HTTPStatusError, NSQError
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.http.nsqlookupd import NsqlookupdHTTP
from nsqclient.spark.options import ReadOptions

logger = logging.getLogger("nsqclient.spark")

#: Seconds for one answer.
_TIMEOUT = 2.0


class Backlog(NamedTuple):
    """What one nsqd has for the channel."""

    depth: int  #: waiting
    in_flight: int  #: out, with us or with others
    clients: int  #: connections of consumers


def ask_backlogs(options: ReadOptions) -> dict[str, Backlog]:
    """Ask every nsqd; return what those that answered have, by HTTP address.

    An nsqd that does not have the channel yet will give a new channel what its topic has kept.

    Blocks: up to a few seconds for each that does not answer.
    """
    found = {}
    for address in _http_addresses(options):
        try:
            with NsqdHTTP(address, options.config, connect_timeout=_TIMEOUT,
                          timeout=_TIMEOUT) as client:
                stats = client.stats(options.topic, include_clients=False)
        except NSQError as exc:
            logger.debug("no depth: %s", exc)
            continue
        topic = next((topic for topic in stats.topics if topic.name == options.topic), None)
        channel = None if topic is None else topic.channel(options.channel)
        if channel is not None:
            found[address] = Backlog(channel.depth, channel.in_flight_count, channel.client_count)
        else:
            found[address] = Backlog(0 if topic is None else topic.depth, 0, 0)
    return found


def is_topic_unknown(options: ReadOptions) -> bool:
    """Tell whether nsqds are found through nsqlookupd alone, and every one says: no such topic.

    Blocks: up to a few seconds for each that does not answer.
    """
    return not options.nsqd and all(_is_unknown_to(lookupd, options) for lookupd in options.lookupd)


def _is_unknown_to(lookupd: str, options: ReadOptions) -> bool:
    try:
        with NsqlookupdHTTP(lookupd, options.config, connect_timeout=_TIMEOUT,
                            timeout=_TIMEOUT) as client:
            return not client.lookup(options.topic).producers
    except HTTPStatusError as exc:
        return exc.status == 404
    except NSQError:
        return False


def _http_addresses(options: ReadOptions) -> list[str]:
    addresses = list(options.nsqd_http)
    for lookupd in options.lookupd:
        try:
            with NsqlookupdHTTP(lookupd, options.config, connect_timeout=_TIMEOUT,
                                timeout=_TIMEOUT) as client:
                producers = client.lookup(options.topic).producers
        except NSQError as exc:
            logger.debug("no depth: %s", exc)
            continue
        addresses += [p.http_address for p in producers if p.broadcast_address and p.http_port]
    return list(dict.fromkeys(addresses))
