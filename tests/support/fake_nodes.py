"""Nsqds of a producer without a socket: a test sees what is sent, and says what nsqd answers."""

from __future__ import annotations

import threading
import time

from nsqclient.errors import ClosedError, ConnectError, NSQError
from nsqclient.producer.pool import PoolTimer
from nsqclient.producer.publisher import Publisher
from nsqclient.protocol.extensions import StoredPosition
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until


class FakeNodes:
    """Stands in for NodePool, and for the one NsqdNode that it has."""

    address = "nsqd:4150"

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_up = True
        self._closed = False
        self.timer = PoolTimer(lambda now: now + 1.0)

    def go_down(self) -> None:
        """From now on no nsqd is connected."""
        self._is_up = False

    def close(self) -> None:
        """Refuse whoever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.timer.stop(Deadline(10.0))

    @property
    def connected(self) -> tuple[FakeNodes, ...]:
        return (self,) if self._is_up and not self._closed else ()

    def acquire(self, deadline: Deadline, is_async: bool = False) -> FakeNodes:
        with self._changed:
            self._changed.wait_for(lambda: self._is_up or self._closed, deadline.remaining())
            if self._closed:
                raise ClosedError("the producer is closed")
            if not self._is_up:
                raise ConnectError(self.address, "nobody is there")
        return self


class Sent:
    """One attempt that waits for its outcome."""

    def __init__(self, command: bytes) -> None:
        self.line = command.partition(b"\n")[0]
        self._is_settled = threading.Event()
        self._error: NSQError | None = None

    def settle(self, error: NSQError | None = None) -> None:
        """Nsqd has stored it; or it has refused it, or the connection has ended."""
        self._error = error
        self._is_settled.set()

    def wait(self, until: float) -> tuple[NSQError | None, StoredPosition | None]:
        """Return what the attempt has led to; unknown at the deadline."""
        if not self._is_settled.wait(max(0.0, until - time.monotonic())):
            return ConnectError("nsqd:4150", "no answer in time"), None
        return self._error, None


class ScriptedPublisher(Publisher):
    """A Publisher whose attempts the test settles."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # with FakeNodes
        self.sent: list[Sent] = []
        #: Raised by the next attempt.
        self.broken: BaseException | None = None

    def attempt(  # type: ignore[no-untyped-def, override] # nothing but these is used here
        self, node, command, until, pause, **options
    ):
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        self.sent.append(Sent(command))
        return self.sent[-1].wait(until)

    def settle_all(self) -> None:
        for sent in self.sent:
            sent.settle()

    def line(self, number: int) -> bytes:
        """Wait for an attempt, by its number from 0, and return the line of the command."""
        return self.token(number).line

    def token(self, number: int) -> Sent:
        """Wait for an attempt, by its number from 0."""
        wait_until(lambda: len(self.sent) > number)
        return self.sent[number]
