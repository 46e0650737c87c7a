"""Nsqds of a producer without a socket: a test sees what is sent, and says what nsqd answers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from nsqclient.errors import ClosedError, ConnectError
from nsqclient.publishing.link import JustEnded
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until


class FakeLinks:
    """Stands in for Links, for the one Link that it has, and for its Connection."""

    address = "nsqd:4150"

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.lane: deque[None] = deque([None])
        #: Who received in place of the reader: the types of token.
        self.helped: list[type] = []
        #: How often the reader was called.
        self.calls = 0
        self._is_up = True
        self._closed = False
        #: Commands that were sent, with their tokens.
        self.sent: list[tuple[bytes, Any]] = []
        #: So many sends find the connection ended.
        self.just_ended = 0
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
    def ready(self) -> tuple[FakeLinks, ...]:
        """As Links.ready."""
        return (self,) if self._is_up and not self._closed and self.error is None else ()

    def in_turn(self) -> tuple[FakeLinks, ...]:
        """As Links.in_turn."""
        return self.ready

    def pass_over(self, link: FakeLinks) -> bool:
        """As Links.pass_over: there is no other nsqd."""
        return False

    def progress(self) -> tuple[int, int]:
        """As Link.progress: it takes and answers nothing."""
        return (0, 0)

    def take(self, deadline: Deadline) -> FakeLinks:
        """As Links.take."""
        if self.error is not None:
            raise self.error
        with self._changed:
            self._changed.wait_for(lambda: self._is_up or self._closed, deadline.remaining())
            if self._closed:
                raise ClosedError("the producer is closed")
            if not self._is_up:
                raise ConnectError(self.address, "nobody is there")
        return self

    def send(self, command: bytes, token: Any, deadline: Deadline) -> None:
        """As Link.send."""
        if self.just_ended:
            self.just_ended -= 1
            raise JustEnded(self.address, "ended")
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        self.sent.append((command, token))

    def send_and_receive(
        self, command: bytes, token: Any, is_settled: Callable[[], bool], deadline: Deadline
    ) -> None:
        """As Link.send_and_receive: the answer comes by itself."""
        self.send(command, token, deadline)

    def send_several(
        self, commands: list[tuple[bytes, Any]], deadline: Deadline
    ) -> FakeLinks:
        """As Link.send_several; it stands in for the Connection too."""
        for command, token in commands:
            self.send(command, token, deadline)
        return self

    def receive(self, kind: type, is_settled: Callable[[], bool], deadline: Deadline) -> None:
        """As Connection.receive: somebody else was quicker."""
        self.helped.append(kind)

    def call_reader(self) -> None:
        """As Connection.call_reader."""
        self.calls += 1

    def sent_line(self, number: int) -> bytes:
        """Wait for a send, by its number from 0, and return the line of the command."""
        wait_until(lambda: len(self.sent) > number)
        return self.sent[number][0].partition(b"\n")[0]

    def token(self, number: int) -> Any:
        """Wait for a send, by its number from 0, and return its token."""
        self.sent_line(number)
        return self.sent[number][1]
