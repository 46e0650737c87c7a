"""``PipelinedConnection``: one connection to one nsqd that several publishes use at once.

Each worker of ``publish_async()`` sends its command and waits. The reader thread of the connection
wakes it when nsqd has answered. nsqd answers in order, so no command waits for the one before.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from nsqclient.config import Config
from nsqclient.connection.blocking import STORED, Answer, need_real_sockets
from nsqclient.connection.connection import Connection
from nsqclient.errors import ClosedError, ConnectError, NSQConnectionError, NSQError, ServerError
from nsqclient.producer.outcome import StaleConnection
from nsqclient.protocol.events import ServerSettings
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline


class _Waiter:
    """A command without a response, and the thread that waits for it."""

    def __init__(self) -> None:
        self.is_sent = False
        self.is_answered = False
        self.error: NSQError | None = None
        self.wake: threading.Lock = threading.Lock()
        self.wake.acquire()

    def settle(self, error: NSQError | None) -> None:
        """Wake the thread. Only the reader calls this."""
        self.error, self.is_answered = error, True
        self.wake.release()


class PipelinedConnection:
    """A connection to one nsqd for any number of publishes at once, each in a thread of its own.

    BlockingConnection describes what both have.

    Threads: any. ``exchange``, ``wait`` and ``leave`` of one publish in the same thread.
    """

    #: The reader ends it if nsqd is silent, so a publish need not ask when bytes last arrived.
    heard_at: float = math.inf

    def __init__(self, address: str, config: Config) -> None:
        self.address = address
        self._conn = Connection(address, config, self)
        self._waiters: dict[int, _Waiter] = {}  # by thread, the oldest first; by single calls
        self._error: NSQError | None = None  # the reason given to cut()
        self.is_ended: bool = False
        self.opened_at: float = 0.0
        self.used_at: float = 0.0
        self.suspected_at: float = 0.0

    def __str__(self) -> str:
        return self.address

    @property
    def settings(self) -> ServerSettings:
        """The settings in nsqd's response to IDENTIFY."""
        return self._conn.settings

    @property
    def is_closed(self) -> bool:
        """True if it takes no further command."""
        return self._conn.is_closed

    @property
    def progress(self) -> int:
        """A number that changes while nsqd takes bytes of the calling thread's command."""
        waiter = self._waiters.get(threading.get_ident())
        return 0 if waiter is None or waiter.is_sent else self._conn.bytes_sent

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

    def exchange(self, command: bytes, until: float) -> Answer | None:
        """Send a publish and wait for the answer; None if it has not arrived at ``until``.

        Call ``wait()`` then, and ``leave()`` at the end.

        Blocks: until ``until``, or the end of the connection.

        Raises:
            StaleConnection: nsqd has surely not read it.
            NSQError: the outcome is unknown.
        """
        waiter = self._waiters[threading.get_ident()] = _Waiter()
        try:
            # Another thread may write the bytes, and stop before the end: wait() looks.
            self._conn.send(lambda core: core.send_publish(command, waiter), waits=False)
        except ClosedError as exc:
            raise StaleConnection(self.address, "the connection ended just before") from exc
        except NSQConnectionError:
            pass  # on_closed() tells the waiter: the command may have been sent
        return self.wait(until)

    def wait(self, until: float) -> Answer | None:
        """Continue to write the command and to wait for the answer, like ``exchange``."""
        waiter = self._waiters[threading.get_ident()]
        if not waiter.is_sent:
            waiter.is_sent = self._conn.drain(max(0.0, until - time.monotonic()))
        left = max(0.0, until - time.monotonic())
        if not waiter.wake.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            return None
        if waiter.error is None:
            return STORED
        if isinstance(waiter.error, ServerError):
            return Answer(waiter.error)
        raise waiter.error

    def leave(self) -> None:
        """End a publish.

        If it is the oldest without an answer, or nsqd does not take its bytes, the connection
        ends. A later publish ends alone, and the others go on.
        """
        waiters = list(self._waiters.copy().values())
        waiter = self._waiters.pop(threading.get_ident(), None)
        if waiter is not None and not waiter.is_answered:
            if waiter is waiters[0] or not waiter.is_sent:
                self.close()

    def look(self) -> bool:
        """True if the connection is alive."""
        return not self.is_closed

    # -- from any thread

    def has_unread(self) -> bool:
        """False: the reader receives everything."""
        return False

    def cut(self, error: NSQError) -> None:
        """End it; publishes that wait raise ``error``."""
        self._error = self._error or error
        self.close()

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
