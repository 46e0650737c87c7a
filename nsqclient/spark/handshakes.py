"""Connects to nsqds once, so that a rejected option is an error before a message arrives."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from nsqclient.config import Config
from nsqclient.cluster.probe import ProbedSocket
from nsqclient.discovery import lookup_nodes
from nsqclient.errors import NegotiationError, NotNSQError, NSQError, ServerError
from nsqclient.partitioned.discovery import lookup
from nsqclient.runtime.deadline import Deadline

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Errors of a handshake that no retry fixes.
_FATAL = (NegotiationError, NotNSQError, ServerError)
#: Seconds for one handshake.
_TIMEOUT = 5.0
_AT_ONCE = 16


def check_handshakes(
    nsqds: Iterable[str], lookupds: Sequence[str], topic: str, config: Config
) -> None:
    """Negotiate with every nsqd, and close the connection.

    Unreachable servers are ignored, because readers and writers retry them.

    Args:
        topic: ask the nsqlookupds for the nsqds of this topic; empty: for all nsqds.

    Raises:
        NegotiationError, ServerError, NotNSQError: an nsqd rejects an option, or the client.
    """
    addresses = list(nsqds)
    for lookupd in lookupds:
        try:
            addresses += (
                lookup(lookupd, topic, config) if topic else lookup_nodes(lookupd, config))
        except NSQError as exc:
            logger.debug("no handshakes with nsqds of %s: %s", lookupd, exc)
    # At once, since a silent nsqd takes the whole timeout.
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(lambda address: _negotiate(address, config), set(addresses)):
            pass  # raises the error of that nsqd


def _negotiate(address: str, config: Config) -> None:
    conn = ProbedSocket(address, config)
    try:
        conn.open(None, Deadline(_TIMEOUT))
    except _FATAL:
        raise
    except NSQError as exc:
        logger.debug("no handshake: %s", exc)
    finally:
        conn.close()
