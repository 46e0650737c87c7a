"""``Link``: one nsqd of a producer, and what its connection reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from nsqclient.connection import Connection
from nsqclient.errors import (
    ClosedError,
    ConnectError,
    NSQConnectionError,
    NSQError,
    ServerError,
)
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.wire import RawMessage
from nsqclient.publishing.verdicts import UNABLE, Verdict, verdict_of
from nsqclient.runtime.deadline import Deadline


#: Seconds without a byte or an answer after which a publish thinks of another nsqd, at most.
_PATIENCE = 1.0
#: The part of a publish's time after which it does, where that is less.
_PATIENT_PART = 0.25


def patience(seconds: float | None) -> float:
    """How long a publish that has so many seconds takes the silence of one nsqd."""
    return _PATIENCE if seconds is None else min(_PATIENCE, seconds * _PATIENT_PART)


class LinkOwner(Protocol):
    """Whom a Link tells what it hears: its Links."""

    def remove(self, link: Link, conn: Connection | None) -> None:
        """This connection is of no use any more."""
        ...

    def on_unable(self, link: Link, conn: Connection) -> None:
        """nsqd is up and cannot store."""
        ...

    def on_closed(self, link: Link, conn: Connection, error: NSQError) -> None:
        """A connection ended."""
        ...

    def on_heard(self, link: Link) -> None:
        """One that was passed over answers again."""
        ...


class JustEnded(ConnectError):
    """The connection ended before anything was sent: try again at once."""


class Link:
    """One nsqd of a producer. All its state is guarded by the lock of its Links."""

    def __init__(self, address: str, owner: LinkOwner) -> None:
        self.address = address
        self.conn: Connection | None = None  # read without the lock by publishers
        self.sources: set[str] = set()  # who named it
        self.is_dialing = False  # or waits for its turn to be dialed
        self.dialed: Connection | None = None  # while it is being opened
        self.has_worked = False  # it was connected once
        self.has_stored = False  # on this connection
        self.failures = 0  # dials that failed or led to nothing, in a row
        self.refusals = 0  # publishes that nsqd was unable to store, in a row
        self.failed_at = 0.0  # when it failed last, on time.monotonic()
        self.rests_until = 0.0  # no dial before, unless publishers wait; same clock
        self.last_error: NSQError | None = None
        self.is_silent = False  # leaves publishes unanswered, so others are used
        #: Empty while a command of a Company is unanswered; its one element is moved.
        self.lane: deque[None] = deque([None])
        self._answers = 0  # by the reader
        self._owner = owner

    def send(self, command: bytes, token: Any, deadline: Deadline) -> None:
        """Send a publish; ``token.settle(verdict, error)`` is called when the verdict is known.

        Blocks: while the socket takes no bytes, until the deadline; the rest follows by itself.

        Raises:
            JustEnded: nothing was sent.
        """
        self._send(lambda core: core.send_publish(command, token), deadline)

    def send_and_receive(
        self, command: bytes, token: Any, is_settled: Callable[[], bool], deadline: Deadline
    ) -> None:
        """As ``send``, for a thread that waits for the verdict and may receive it itself.

        It may return before ``is_settled()``. Blocks: until the deadline.
        """
        conn = self._send(
            lambda core: core.send_publish(command, token), deadline, call_reader=False
        )
        conn.receive(type(token), is_settled, deadline)

    def send_several(self, commands: list[tuple[bytes, Any]], deadline: Deadline) -> Connection:
        """Send publishes with their tokens in one write; as ``send``.

        Returns: by what they went; somebody is to ``receive`` there, or to ``call_reader``.
        """
        def queue(core: ClientProtocol) -> None:
            for command, token in commands:
                core.send_publish(command, token)

        return self._send(queue, deadline, call_reader=False)

    def _send(
        self, queue: Callable[[ClientProtocol], None], deadline: Deadline, call_reader: bool = True
    ) -> Connection:
        conn = self.conn
        try:
            if conn is None:
                raise ClosedError("no connection")
            conn.send(queue, deadline, call_reader)
        except ClosedError as exc:
            self._owner.remove(self, conn)
            raise JustEnded(self.address, "the connection ended just before") from exc
        except NSQConnectionError:
            pass  # queued, so the reader settles the token when it reports the end
        assert conn is not None
        return conn

    def progress(self) -> tuple[int, int]:
        """Two numbers that grow while nsqd takes bytes and answers publishes."""
        conn = self.conn
        return (0 if conn is None else conn.bytes_sent), self._answers

    def is_alive(self) -> bool:
        """Try to write to it; False when the connection has ended."""
        conn = self.conn
        try:
            if conn is None:
                raise ClosedError("no connection")
            conn.send(lambda core: core.send_nop())
        except (ClosedError, NSQConnectionError):
            self._owner.remove(self, conn)
            return False
        return True

    # -- from the connection's reader

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Producers subscribe to nothing."""

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None:
        """nsqd gave its verdict."""
        self._answers += 1
        if self.is_silent:
            self._owner.on_heard(self)
        if error is None:
            self.refusals = self.failures = 0
            self.has_stored = True
        elif error.code in UNABLE:
            self._owner.on_unable(self, conn)
        token.settle(verdict_of(error), error)

    def on_answer_failed(self, conn: Connection, error: ServerError) -> None:
        """Producers answer nothing."""

    def on_close_wait(self, conn: Connection) -> None:
        """Producers do not send CLS."""

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended; publishes without a verdict get one now."""
        self._owner.on_closed(self, conn, error)
        # After a refusal nsqd reads no further: what was pipelined behind it is not stored.
        verdict = Verdict.NOT_READ if isinstance(error, ServerError) else Verdict.UNKNOWN
        for token in unanswered:
            token.settle(verdict, error)
