"""``PipelinedConnection``: one connection to one nsqd that several publishes use at once.

Each worker of ``publish_async()`` sends its command and waits. The reader thread of the connection
wakes it when nsqd has answered. nsqd answers in order, so no command waits for the one before.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from nsqclient.config import Config
from nsqclient.connection.blocking import STORED, Answer
from nsqclient.connection.connection import Connection
from nsqclient.connection.handshake import Subscribe
from nsqclient.errors import ClosedError, ConnectError, NSQConnectionError, NSQError, ServerError
from nsqclient.producer.outcome import StaleConnection
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline


class _Pending:
    """A publish without a response."""

    def __init__(self, command: bytes, read_answer: Callable[[bytes], Any]) -> None:
        self.command = command
        self.read_answer = read_answer
        self.is_queued = False
        self.is_sent = False
        self.error: NSQError | None = None
        self.wake: threading.Lock = threading.Lock()
        self.wake.acquire()

    def settle(self, error: NSQError | None) -> None:
        self.error = error
        self.wake.release()


class PipelinedConnection(Connection):
    """A connection for any number of publishes at once, each in a thread of its own.

    A publish calls ``begin()``, then ``wait()`` until there is an answer, and ``leave()`` if it
    gives up. BlockingConnection describes what both kinds of connections have.

    Threads: any; the calls of one publish in the same thread.
    """

    is_plain: bool = False
    #: The reader ends it if nsqd is silent, so a publish need not ask when bytes last arrived.
    heard_at: float = math.inf

    def __init__(self, address: str, config: Config) -> None:
        super().__init__(address, config, self)
        self._pending: dict[int, _Pending] = {}  # by thread id; changed by atomic calls
        self._is_retired = False
        self.opened_at: float = 0.0
        self.used_at: float = 0.0
        self.suspected_at: float = 0.0

    @property
    def is_closed(self) -> bool:
        """True if it takes no further publish."""
        return self._is_retired or super().is_closed

    def open(
        self, deadline: Deadline, subscribe: Subscribe | tuple[str, str] | None = None
    ) -> None:
        super().open(deadline)
        self.opened_at = self.used_at = time.monotonic()
        try:
            self.start()
        except RuntimeError as exc:
            raise ConnectError(
                self.address, f"cannot start a thread to read from it: {exc}") from exc

    # -- one publish, in its thread

    @property
    def has_begun(self) -> bool:
        """True if nsqd may have read a part of the publish."""
        pending = self._pending.get(threading.get_ident())
        return pending is None or pending.is_queued

    @property
    def progress(self) -> int:
        pending = self._pending.get(threading.get_ident())
        return 0 if pending is None or pending.is_sent else self.bytes_sent

    def begin(self, command: bytes, read_answer: Callable[[bytes], Any]) -> None:
        """Begin a publish. Raises StaleConnection if the connection takes no further publish."""
        self._pending[threading.get_ident()] = _Pending(command, read_answer)
        if self._is_retired:  # checked last: retire() looks for publishes after it has set this
            raise StaleConnection(self.address, "the connection was replaced just before")

    def wait(self, until: float, data: None = None) -> Answer | None:
        """Write the rest of the command and wait for the answer; None if it is late.

        Raises:
            StaleConnection: nsqd has surely not read the command.
            NSQError: the outcome is unknown.
        """
        pending = self._pending[threading.get_ident()]
        if not pending.is_sent:
            pending.is_sent = self._send(pending, until)
        left = max(0.0, until - time.monotonic())
        if not pending.wake.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            return None
        self.leave()
        if pending.error is None:
            return STORED
        if isinstance(pending.error, ServerError):
            return Answer(pending.error)
        raise pending.error

    def _send(self, pending: _Pending, until: float) -> bool:
        """Write the command; return False if bytes are left."""
        if not pending.is_queued:
            # A command is not queued behind bytes that nsqd does not take: publishes that have
            # ended without an answer would fill the memory.
            if not self.drain(max(0.0, until - time.monotonic())) and not self.is_ended:
                return False
            try:
                self.send(
                    lambda core: core.send_publish(pending.command, pending, pending.read_answer),
                    waits=False)
            except ClosedError as exc:
                raise StaleConnection(self.address, "the connection ended just before") from exc
            except NSQConnectionError:
                pass  # on_closed() tells the pending: the command may have been sent
            pending.is_queued = True
        # send() is over when another thread has begun to write the bytes, which may stop early.
        return self.drain(max(0.0, until - time.monotonic()))

    def leave(self) -> None:
        """End a publish. The others go on, and nobody waits for an answer that comes later."""
        self._pending.pop(threading.get_ident(), None)
        if self._is_retired and not self._pending:
            self.close()

    # -- from any thread

    def look(self) -> bool:
        return not self.is_closed

    def has_unread(self) -> bool:
        """False: the reader receives everything."""
        return False

    def retire(self) -> None:
        """Take no further publish, and end when the last one has its answer or has given up."""
        self._is_retired = True
        if not self._pending:
            self.close()

    def cut(self, reason: str) -> None:
        self.close(reason)

    # -- from the reader

    def on_published(self, conn: Any, token: _Pending, error: ServerError | None) -> None:
        self.used_at = time.monotonic()
        token.settle(error)

    def on_closed(self, conn: Any, error: NSQError, unanswered: list[_Pending]) -> None:
        """The connection ended. After a refusal nsqd has not read the commands behind it."""
        if isinstance(error, ServerError):
            error = StaleConnection(self.address, f"it ended after another publish: {error}")
        for pending in unanswered:
            pending.settle(error)

    def on_messages(self, conn: Any, batch: list[RawMessage]) -> None:
        """Producers subscribe to nothing."""

    def on_command_failed(self, conn: Any, error: ServerError) -> None:
        """Producers answer nothing."""

    def on_close_wait(self, conn: Any) -> None:
        """Producers do not send CLS."""
