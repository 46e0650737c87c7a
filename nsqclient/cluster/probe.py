"""``probe``: subscribes to an nsqd as a consumer would, without taking a message."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from nsqclient.config import Config
from nsqclient.connection.handshake import NsqdSocket
from nsqclient.errors import ConnectError
from nsqclient.protocol.events import FatalError, ServerSettings
from nsqclient.runtime.deadline import Deadline

#: Seconds in which nsqd surely has rejected a command, on top of some round trips.
_REJECTION = 0.3


class Probe(NamedTuple):
    settings: ServerSettings  #: in nsqd's response to IDENTIFY
    seconds: float  #: that dial and negotiation took


class ProbedSocket(NsqdSocket):
    def open(self, channel: tuple[str, str] | None, deadline: Deadline) -> None:
        self._dial(channel, deadline)

    def need_commands(self, timeout: float) -> None:
        """Raise nsqd's error for a command: nsqd demands TLS only with the first command."""
        self._core.send_nop()
        with contextlib.suppress(ConnectError):  # it said nothing in time
            self._await_event(FatalError, Deadline(timeout))

    def close(self) -> None:
        self._shut_down()
        self.abandon()


def probe(
    address: str, config: Config, timeout: float, channel: tuple[str, str] | None = None
) -> Probe:
    """Connect to an nsqd, negotiate and authenticate; find out whether it accepts commands.

    Args:
        channel: topic and channel to subscribe to, which SUB creates if they do not exist. RDY
            stays 0.

    Blocks: at most ``timeout`` and half a second.

    Raises:
        NSQError: a consumer would fail in the same way.
    """
    conn = ProbedSocket(address, config)
    began = time.monotonic()
    try:
        conn.open(channel, Deadline(timeout))
        took = time.monotonic() - began
        if channel is None:
            conn.need_commands(_REJECTION + 2 * took)
        return Probe(conn.settings, took)
    finally:
        conn.close()
