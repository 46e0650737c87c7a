"""Nsqds of a producer without a socket: a test sees what is sent, and says what nsqd answers."""

from __future__ import annotations

import threading
from typing import Any

from nsqclient.errors import ClosedError, ConnectError
from nsqclient.producer.outcome import StaleConnection
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until


class FakeNodes:
    """Stands in for NodePool, for the one NsqdNode that it has, and for its Connection."""

    address = "nsqd:4150"

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_up = True
        self._closed = False
        #: Commands that were sent, with their tokens.
        self.sent: list[tuple[bytes, Any]] = []
        #: So many sends find the connection ended.
        self.stale = 0
        #: Raised by the next send.
        self.broken: BaseException | None = None
        #: Raised by take().
        self.error: Exception | None = None

    def go_down(self) -> None:
        """From now on no nsqd is connected."""
        self._is_up = False

    def come_up(self) -> None:
        """From now on one is connected."""
        with self._changed:
            self._is_up = True
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse whoever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def ready(self) -> tuple[FakeNodes, ...]:
        """As NodePool.ready."""
        return (self,) if self._is_up and not self._closed and self.error is None else ()

    @property
    def pipelined(self) -> FakeNodes:
        """As NodePool.pipelined."""
        return self

    def in_order(self) -> tuple[FakeNodes, ...]:
        """As Rotation.in_order."""
        return self.ready

    def mark_unresponsive(self, *arguments: object) -> bool:
        """As NodePool's and NsqdNode's: there is no other nsqd."""
        return False

    def progress(self) -> tuple[int, int]:
        """As NsqdNode.progress: it takes and answers nothing."""
        return (0, 0)

    def has_unread(self) -> bool:
        """As NsqdNode.has_unread."""
        return False

    def acquire(self, deadline: Deadline, rotation: object) -> FakeNodes:
        """As NodePool.acquire."""
        if self.error is not None:
            raise self.error
        with self._changed:
            self._changed.wait_for(lambda: self._is_up or self._closed, deadline.remaining())
            if self._closed:
                raise ClosedError("the producer is closed")
            if not self._is_up:
                raise ConnectError(self.address, "nobody is there")
        return self

    def send(self, command: bytes, token: Any, until: float) -> None:
        """As NsqdNode.send."""
        if self.stale:
            self.stale -= 1
            raise StaleConnection(self.address, "ended")
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        self.sent.append((command, token))

    def sent_line(self, number: int) -> bytes:
        """Wait for a send, by its number from 0, and return the line of the command."""
        wait_until(lambda: len(self.sent) > number)
        return self.sent[number][0].partition(b"\n")[0]

    def token(self, number: int) -> Any:
        """Wait for a send, by its number from 0, and return its token."""
        self.sent_line(number)
        return self.sent[number][1]
