"""``probe``: what a consumer would meet at an nsqd. It takes no message. For checks."""

from __future__ import annotations

import time
from threading import Lock
from typing import Any, NamedTuple

from nsqclient.config import Config
from nsqclient.connection.connection import Connection
from nsqclient.errors import NSQError
from nsqclient.protocol.events import ServerSettings
from nsqclient.runtime.deadline import Deadline

#: Seconds in which nsqd surely has rejected a command, on top of some round trips.
_REJECTION = 0.3


class Probe(NamedTuple):
    """What was seen."""

    settings: ServerSettings  #: in nsqd's response to IDENTIFY
    seconds: float  #: that dial and negotiation took
    is_partitioned: bool  #: it is a partitioned nsqd


class SilentDelegate:
    """Waits for the end of a connection; without RDY nothing else can happen to it."""

    def __init__(self) -> None:
        self._is_open = Lock()  # released when the connection has ended
        self._is_open.acquire()
        self._error: NSQError | None = None

    def wait(self, timeout: float) -> NSQError | None:
        """The reason for which it ended; None when it lives."""
        return self._error if self._is_open.acquire(timeout=timeout) else None

    def on_messages(self, conn: Any, batch: Any) -> None:
        """For Connection."""

    def on_published(self, conn: Any, token: Any, error: Any) -> None:
        """For Connection."""

    def on_command_failed(self, conn: Any, error: Any) -> None:
        """For Connection."""

    def on_close_wait(self, conn: Any) -> None:
        """For Connection."""

    def on_closed(self, conn: Any, error: NSQError, unanswered: Any) -> None:
        """For Connection: remember why."""
        self._error = error
        self._is_open.release()


def probe(
    address: str, config: Config, timeout: float, channel: tuple[str, str] | None = None
) -> Probe:
    """Connect to an nsqd, negotiate and authenticate; find out whether it accepts commands.

    Args:
        timeout: seconds for all of it.
        channel: topic and channel to subscribe to, which creates them where they do not exist.
            nsqd sends no message, since RDY stays 0.

    Blocks: at most ``timeout``, and half a second.

    Raises:
        NSQError: what a consumer would meet.
    """
    delegate = SilentDelegate()
    conn = Connection(address, config, delegate)
    began = time.monotonic()
    try:
        conn.open(Deadline(timeout), channel)
        took = time.monotonic() - began
        if channel is None:
            _need_commands(conn, delegate, _REJECTION + 2 * took)
        return Probe(conn.settings, took, conn.is_partitioned)
    finally:
        conn.close()
        conn.join(Deadline(timeout))


def _need_commands(conn: Connection, delegate: SilentDelegate, timeout: float) -> None:
    """Raise what nsqd says to a command: a required TLS is reported at the first only.

    NOP changes nothing and has no response, so this waits for a rejection.
    """
    conn.start()
    try:
        conn.send(lambda core: core.send_nop())
    except NSQError as exc:
        raise delegate.wait(timeout) or exc
    error = delegate.wait(timeout)
    if error is not None:
        raise error
