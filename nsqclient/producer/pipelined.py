"""``PipelinedConnection``: one connection to one nsqd that several publishes use at once.

Each worker of ``publish_async()`` sends its command and waits; the reader thread of the connection
wakes it with its response. nsqd answers in order, so that no command waits for the one before.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from typing import Any

from nsqclient.config import Config
from nsqclient.connection.blocking import Exchange, need_real_sockets
from nsqclient.connection.connection import Connection
from nsqclient.errors import ClosedError, ConnectError, NSQConnectionError, NSQError, ServerError
from nsqclient.producer.outcome import StaleConnection
from nsqclient.protocol.events import ServerSettings
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline


class _Waiter:
    """A command without a response, and the thread that waits for it."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.error: NSQError | None = None
        self.is_sending: bool = True
        self.wake: threading.Lock = threading.Lock()
        self.wake.acquire()

    def settle(self, error: NSQError | None) -> bool:
        """Wake its thread, unless that was done; return whether it was not."""
        if self.exchange.pop("until", None) is None:
            return False
        self.error = error
        self.wake.release()
        return True


class PipelinedConnection:
    """A connection to one nsqd for any number of publishes at once, each in a thread of its own.

    For all that it shares with BlockingConnection, that describes it.

    Threads: any. ``begin``, then ``exchange``, of one publish in the same thread.
    """

    #: The reader ends it where nsqd is silent, so nobody else asks when something came last.
    heard_at: float = math.inf
    #: Traced publishes do not use it.
    stored: None = None

    def __init__(self, address: str, config: Config) -> None:
        self.address = address
        self._conn = Connection(address, config, self)
        self._waiters: dict[int, _Waiter] = {}  # by thread, the oldest first; by single calls
        self._error: NSQError | None = None  # why the timer cut it
        self.is_ended: bool = False
        self.is_cut: bool = False
        self.opened_at: float = 0.0
        self.used_at: float = 0.0

    def __str__(self) -> str:
        return self.address

    @property
    def settings(self) -> ServerSettings:
        """The settings in nsqd's response to IDENTIFY."""
        return self._conn.settings

    @property
    def is_closed(self) -> bool:
        """Return whether it takes no further command."""
        return self._conn.is_closed

    @property
    def pieces(self) -> int:
        """A number that grows while nsqd takes bytes."""
        return self._conn.bytes_sent

    def open(self, deadline: Deadline) -> None:
        """Open the connection, and start its reader. Blocks and raises as ``Connection.open``."""
        need_real_sockets()
        self._conn.open(deadline)
        self.opened_at = self.used_at = time.monotonic()
        try:
            self._conn.start()
        except RuntimeError as exc:
            raise ConnectError(self.address, f"no thread to read from it: {exc}") from exc

    # -- publishes

    def begin(self, exchange: Exchange) -> None:
        """Show the timer what the calling thread waits for; ``exchange()`` comes next."""
        self._waiters[threading.get_ident()] = _Waiter(exchange)

    def exchange(self, command: bytes, traced: bool = False) -> ServerError | None:
        """Send a publish and return nsqd's error, None where it is stored.

        Blocks: until the response, the end of the connection, or ``cut()``.

        Raises:
            StaleConnection: nsqd has surely not read it.
            NSQError: the outcome is unknown.
        """
        waiter = self._waiters[threading.get_ident()]
        try:
            # An error that ends it comes to the waiter, as the command may have been sent.
            with contextlib.suppress(NSQConnectionError):
                self._conn.send(lambda core: core.send_publish(command, waiter))
                waiter.is_sending = False
            waiter.wake.acquire()
        except ClosedError as exc:
            raise StaleConnection(self.address, "the connection ended just before") from exc
        finally:
            del self._waiters[threading.get_ident()]
        if waiter.error is None or isinstance(waiter.error, ServerError):
            return waiter.error
        raise waiter.error

    def look(self) -> bool:
        """Return whether the connection is alive."""
        return not self.is_closed

    # -- from any thread

    def exchanges(self) -> list[Exchange]:
        """Return what publishes wait for, the oldest first."""
        return [waiter.exchange for waiter in self._waiters.copy().values()]

    def has_unread(self) -> bool:
        """Return whether something waits in the socket, or the end of the stream."""
        return self._conn.has_unread

    def cut(self, error: NSQError, exchange: Exchange | None = None) -> bool:
        """As BlockingConnection.cut, where no other exchange is older, or it is not sent yet.

        A later publish that has less time gets the error alone: the others go on. Where nsqd takes
        no bytes, only the end of the connection ends its wait.
        """
        waiters = list(self._waiters.copy().values())
        mine = [waiter for waiter in waiters if waiter.exchange is exchange]
        if exchange is not None and not (mine and mine[0].settle(error)):
            return False
        self.is_cut = True
        if exchange is None or mine == waiters[:1] or mine[0].is_sending:
            self._error = self._error or error
            self.close()
        return True

    def close(self) -> None:
        """End it; its reader closes the socket. Idempotent."""
        self.is_ended = True
        self._conn.close()

    def abandon(self) -> None:
        """In a forked child: close the inherited socket without sending anything to nsqd."""
        self._conn.abandon()

    def join(self, deadline: Deadline) -> bool:
        """Wait for its threads to end; True when they have. Cut or close it first."""
        return self._conn.join(deadline)

    # -- from the reader

    def on_published(self, conn: Any, token: _Waiter, error: ServerError | None) -> None:
        """nsqd has answered a publish."""
        self.used_at = time.monotonic()
        token.settle(error)

    def on_closed(self, conn: Any, error: NSQError, unanswered: list[_Waiter]) -> None:
        """The connection ended; after a refusal nsqd has read no further."""
        self.is_ended = True
        if isinstance(error, ServerError):
            error = StaleConnection(self.address, f"it ended after another publish: {error}")
        for waiter in unanswered:
            waiter.settle(self._error or error)

    def on_messages(self, conn: Any, batch: list[RawMessage]) -> None:
        """Producers subscribe to nothing."""

    def on_command_failed(self, conn: Any, error: ServerError) -> None:
        """Producers answer nothing."""

    def on_close_wait(self, conn: Any) -> None:
        """Producers do not send CLS."""
