"""Asks a nsqlookupd which nsqds have a topic. No thread of its own.

Source: client guide, "Discovery".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from nsqclient.config import Config
from nsqclient.errors import DiscoveryError, HTTPError, HTTPStatusError, TLSError
from nsqclient.http.answers import Producer
from nsqclient.http.nsqlookupd import NsqlookupdHTTP
from nsqclient.http.urls import lookup_url

__all__ = ["lookup", "lookup_url", "nodes"]

logger = logging.getLogger("nsqclient.discovery")

#: Of one answer, in bytes: room for some 50,000 nsqds.
_MAX_ANSWER_SIZE = 16 * 1024 * 1024


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
            logger.debug("nsqlookupd %s does not know %s yet", address, topic)
            return []
        raise DiscoveryError(address, exc.reason) from exc
    except (HTTPError, TLSError) as exc:
        raise DiscoveryError(address, exc.reason) from exc


def _client(address: str, config: Config) -> NsqlookupdHTTP:
    timeout = config.lookupd_poll_timeout
    return NsqlookupdHTTP(
        address, config, connect_timeout=min(config.dial_timeout, timeout), timeout=timeout,
        max_answer_size=_MAX_ANSWER_SIZE,
    )


def _usable(address: str, producers: Iterable[Producer]) -> list[str]:
    found = []
    for producer in producers:
        if producer.broadcast_address and 0 < producer.tcp_port < 65536:
            found.append(producer.tcp_address)
        else:
            logger.warning("nsqlookupd %s lists an unusable producer: %r", address, producer)
    return found
