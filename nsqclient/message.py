"""``Message``: a body, what nsqd said about it, and the ways to answer it.

A message does not know its connection; it calls a small :class:`Responder`. Source: TCP
protocol spec, "Data Format"; client guide, "Message Handling".
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.plurals import counted


class Requeue(Exception):
    """Raise it in a handler to have the message delivered again.

    Args:
        delay: seconds (float or timedelta) until the next delivery; None for the automatic one,
            ``default_requeue_delay`` times attempts, at most ``max_requeue_delay``.
        backoff: whether this counts as a failure, so that the consumer slows down.
    """

    def __init__(self, delay: Duration | None = None, backoff: bool = True) -> None:
        super().__init__(delay, backoff)
        self.delay = None if delay is None else to_seconds(delay, "requeue delay")
        self.backoff = backoff


class Responder(Protocol):
    """What a message needs of its connection. Thread-safe."""

    def finish(self, message: Message) -> None:
        """Send FIN."""
        ...

    def requeue(self, message: Message, delay: float | None, backoff: bool) -> None:
        """Send REQ."""
        ...

    def touch(self, message: Message) -> None:
        """Send TOUCH."""
        ...

    def keep_alive(self, message: Message) -> None:
        """Send TOUCH again and again until the message is answered."""
        ...

    def drop_expired(self, message: Message) -> None:
        """Forget a message that nsqd has given to somebody else before it was handled."""
        ...


class Message:
    """A message as it was delivered.

    Threads: any thread may answer it; one answer wins, a second raises AlreadyRespondedError.
    """

    __slots__ = (
        "body", "id", "attempts", "timestamp", "received", "deadline", "_responder",
        "_responded", "_is_async",
    )

    #: The payload.
    body: bytes
    #: 16 hex digits in ASCII; unique per topic and nsqd, and the same in all its channels.
    id: bytes
    #: How many times it has been delivered, this time included: 1 to 65535, then from 0 again.
    attempts: int
    #: When nsqd took it, in nanoseconds since the epoch.
    timestamp: int
    #: When it came, on the clock of ``time.monotonic()``.
    received: float
    #: When nsqd will give it to somebody else unless it is answered or touched; same clock.
    deadline: float

    # What a partitioned nsqd says beside; a stock one says nothing of it.
    #: Number of the partition it came from; None from a stock nsqd.
    partition: int | None = None
    #: Grows from message to message of a partition; None from a stock nsqd.
    internal_id: int | None = None
    #: Given by its publisher to follow it; 0 where it was not traced, None from a stock nsqd.
    trace_id: int | None = None
    #: Where it lies in its partition's queue, in bytes; only with ``ordered=True``.
    offset: int | None = None
    #: How many bytes it takes there; only with ``ordered=True``.
    size: int | None = None
    #: Bytes of its headers as they came.
    _header_size: int = 0

    def __init__(
        self,
        body: bytes,
        message_id: bytes,
        attempts: int,
        timestamp: int,
        received: float,
        deadline: float,
        responder: Responder,
    ) -> None:
        self.body = body
        self.id = message_id
        self.attempts = attempts
        self.timestamp = timestamp
        self.received = received
        self.deadline = deadline
        self._responder = responder
        self._responded = False
        self._is_async = False

    @property
    def headers(self) -> dict[str, Any]:
        """Its JSON headers; empty where it has none, as always from a stock nsqd."""
        return {}

    @property
    def nsqd_address(self) -> str:
        """``host:port`` of the nsqd that sent it."""
        address: str = getattr(self._responder, "address", "")
        return address

    @property
    def has_responded(self) -> bool:
        """Tell whether it was finished or requeued."""
        return self._responded

    @property
    def time_left(self) -> float:
        """Seconds until nsqd gives it to somebody else; negative when it is too late."""
        return self.deadline - time.monotonic()

    def finish(self) -> None:
        """Tell nsqd that the message is done (FIN).

        When the connection is gone nsqd will deliver the message again; that is logged and
        counted, and raised only with the option ``raise_lost_answers``.

        Raises:
            AlreadyRespondedError: it was answered before.
            ConnectionLostError: only with ``raise_lost_answers``.
        """
        self._responder.finish(self)

    def requeue(self, delay: Duration | None = None, backoff: bool = True) -> None:
        """Give the message back, to be delivered again (REQ).

        Args: see :class:`Requeue`. nsqd clamps the delay to its ``--max-req-timeout``.

        Raises:
            AlreadyRespondedError: it was answered before.
            ConfigError: the delay is negative or no duration.
        """
        seconds = None if delay is None else to_seconds(delay, "requeue delay")
        self._responder.requeue(self, seconds, backoff)

    def touch(self) -> None:
        """Ask nsqd for another ``msg_timeout``, up to its ``max_msg_timeout`` in all (TOUCH).

        Raises:
            AlreadyRespondedError: it was answered before.
        """
        self._responder.touch(self)

    def keep_alive(self) -> None:
        """Touch the message in the background until it is answered.

        Only for work that is surely going on: it ends by itself when nsqd grants no more time
        (``max_msg_timeout`` after the delivery), or the connection is gone.

        Raises:
            AlreadyRespondedError: it was answered before.
        """
        self._responder.keep_alive(self)

    def enable_async(self) -> None:
        """Leave the answer to you: the handler's return no longer finishes the message.

        An exception in the handler still requeues it, unless it was answered.
        """
        self._is_async = True

    @property
    def is_async(self) -> bool:
        """Tell whether ``enable_async()`` was called."""
        return self._is_async

    def __repr__(self) -> str:
        return (
            f"<Message {self.id.decode('ascii', 'replace')} attempts={self.attempts}"
            f" {counted(len(self.body), 'byte')} from {self.nsqd_address}>"
        )
