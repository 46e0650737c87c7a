"""Connects to nsqds once, so that a rejected option is an error before a message arrives."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

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


def check_handshakes(
    nsqds: Iterable[str], lookupds: Sequence[str], topic: str, config: Config
) -> None:
    """Negotiate with every nsqd, and close the connection.

    Servers that cannot be reached are left out: that may change, and reading and writing retry it.

    Args:
        topic: whose nsqds are taken from nsqlookupds; empty: all nsqds that they know.

    Raises NegotiationError, ServerError or NotNSQError.
    """
    addresses = list(nsqds)
    for lookupd in lookupds:
        try:
            addresses += (
                lookup(lookupd, topic, config) if topic else lookup_nodes(lookupd, config))
        except NSQError as exc:
            logger.debug("no handshakes with nsqds of %s: %s", lookupd, exc)
    for address in dict.fromkeys(addresses):
        conn = ProbedSocket(address, config)
        try:
            conn.open(None, Deadline(_TIMEOUT))
        except _FATAL:
            raise
        except NSQError as exc:
            logger.debug("no handshake: %s", exc)
        finally:
            conn.close()
