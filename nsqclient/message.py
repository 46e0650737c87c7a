"""``Message``: a body, its metadata from nsqd, and the methods to respond to it.

Source: TCP protocol spec, "Data Format"; client guide, "Message Handling".
"""

from __future__ import annotations

import json
import time
from collections.abc import Sized
from typing import Any, NamedTuple, NoReturn, Protocol, Union

from nsqclient.display import counted
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.forking import check_process

#: Memory of a message besides its body, in bytes: its objects and its entries in the queue and the
#: table of messages in flight. Measured: 365 to 430 (CPython 3.11, 64 bit).
MESSAGE_OVERHEAD = 512


class MessageId(bytes):
    """The id of a message: bytes that ``str(id)`` and ``print(id)`` show as text.

    The text is the 16 hex digits from nsqd. An id of partitioned NSQ is 16 arbitrary bytes, shown
    as 32 hex digits.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return self.decode("ascii") if self.isalnum() else self.hex()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class Requeue(Exception):
    """Raised or returned by a handler to requeue the message.

    Args:
        delay: seconds (float or timedelta) until the next delivery. None: the automatic delay,
            ``default_requeue_delay`` times attempts, at most ``max_requeue_delay``.
        backoff: whether this counts as a failure and slows the consumer down.
    """

    def __init__(self, delay: Duration | None = None, backoff: bool = True) -> None:
        super().__init__(delay, backoff)
        self.delay: float | None = None if delay is None else to_seconds(delay, "requeue delay")
        self.backoff = backoff


class GiveUp(Exception):
    """Raised or returned by a handler to give the message up, because retries do not help.

    ``on_giving_up`` is called with the message, then the message is finished, without backoff. In a
    BatchHandler it applies to all unanswered messages of the batch.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


#: The result of a handler. Values other than Requeue and GiveUp are ignored. Excludes coroutines.
HandlerResult = Union[
    None, Requeue, GiveUp, type[Requeue], type[GiveUp], float, str, bytes, Sized]


def raise_decision(result: object) -> None:
    """Raise a handler's result if it is a Requeue or a GiveUp."""
    if isinstance(result, type) and issubclass(result, (Requeue, GiveUp)):
        result = result()
    if isinstance(result, (Requeue, GiveUp)):
        # One object may be returned many times: its traceback would grow each time.
        raise result.with_traceback(None)


class Failure(NamedTuple):
    """The reason why a message is given up."""

    reason: str  #: one line
    #: The handler's exception. None if this delivery did not reach a handler: the message had been
    #: delivered ``max_attempts`` times, and the last one ended by timeout or ``requeue()``.
    exception: BaseException | None = None


class Responder(Protocol):
    """Answers messages. Thread-safe."""

    def finish(self, message: Message) -> None: ...
    def requeue(self, message: Message, delay: float | None, backoff: bool) -> None: ...
    def touch(self, message: Message) -> None: ...
    def keep_alive(self, message: Message) -> None: ...
    def give_up(self, message: Message, reason: str) -> None: ...
    def drop_expired(self, message: Message) -> None: ...


class Message:
    """A delivered message.

    The methods that answer it raise AlreadyRespondedError after FIN or REQ. Threads: any.
    """

    __slots__ = (
        "body", "raw_id", "attempts", "timestamp", "received", "deadline", "responder",
        "has_responded", "is_async", "_failure",
    )

    _failure: Failure  # set only while it is given up, to save time for all other messages

    #: The payload.
    body: bytes
    #: Number of deliveries, including this one: 1 to 65535, then 0 again.
    attempts: int
    #: Time at which nsqd received it, in nanoseconds since the epoch.
    timestamp: int
    #: Time at which the consumer received it, on the clock of ``time.monotonic()``.
    received: float
    #: Time at which nsqd delivers it again, unless it is answered or touched; same clock.
    deadline: float
    #: True once it is finished or requeued.
    has_responded: bool
    #: True once ``enable_async()`` is called.
    is_async: bool

    # Sent only by a partitioned nsqd.
    #: Number of its partition; None from a stock nsqd.
    partition: int | None = None
    #: Grows from message to message of a partition; None from a stock nsqd.
    internal_id: int | None = None
    #: Set by the publisher for tracing; 0 if it is not traced, None from a stock nsqd.
    trace_id: int | None = None
    #: Position in its partition's queue, in bytes; only with ``ordered``, ``with_offsets`` or
    #: ``start_at``.
    offset: int | None = None
    #: Length in its partition's queue, in bytes; only if there is an ``offset``.
    size: int | None = None
    #: Length of its raw headers, in bytes.
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
        self.raw_id = message_id
        self.attempts = attempts
        self.timestamp = timestamp
        self.received = received
        self.deadline = deadline
        self.responder = responder
        self.has_responded = False
        self.is_async = False

    @property
    def id(self) -> MessageId:
        """16 hex digits, as bytes that print as text.

        Unique per topic and nsqd, and the same in all channels of the topic.
        """
        return MessageId(self.raw_id)

    def json(self) -> Any:
        """Decode the body as JSON.

        Raises:
            ValueError: the body is not valid JSON in UTF-8, or is nested too deeply.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("the body is JSON that is nested too deeply") from None

    @property
    def headers(self) -> dict[str, Any]:
        """The JSON headers. Always empty from a stock nsqd."""
        return {}

    @property
    def failure(self) -> Failure | None:
        """The reason for giving it up, while ``on_giving_up`` runs; otherwise None."""
        return getattr(self, "_failure", None)

    @property
    def topic(self) -> str:
        """Empty for a message without a consumer."""
        topic: str = getattr(self.responder, "topic", "")
        return topic

    @property
    def channel(self) -> str:
        """Empty for a message without a consumer."""
        channel: str = getattr(self.responder, "channel", "")
        return channel

    @property
    def nsqd_address(self) -> str:
        """``host:port`` of the nsqd that sent it."""
        address: str = getattr(self.responder, "address", "")
        return address

    @property
    def time_left(self) -> float:
        """Seconds until the message expires; negative once it has expired."""
        return self.deadline - time.monotonic()

    def finish(self) -> None:
        """Finish the message (FIN). If the connection is lost, nsqd delivers the message again."""
        check_process()
        self.responder.finish(self)

    def requeue(self, delay: Duration | None = None, backoff: bool = True) -> None:
        """Requeue the message (REQ): nsqd delivers it again.

        Args: see :class:`Requeue`. nsqd limits the delay to its ``--max-req-timeout``.

        Raises:
            ConfigError: the delay is negative or not a duration.
        """
        seconds = None if delay is None else to_seconds(delay, "requeue delay")
        check_process()
        self.responder.requeue(self, seconds, backoff)

    def give_up(self, reason: str) -> None:
        """Give the message up, as ``raise GiveUp(reason)`` does in a handler.

        ``on_giving_up`` is called with the message in this thread; then the message is finished. If
        the callback raises, the message is requeued.
        """
        self.responder.give_up(self, reason)

    def touch(self) -> None:
        """Ask nsqd for another ``msg_timeout``, up to its ``max_msg_timeout`` in all (TOUCH)."""
        check_process()
        self.responder.touch(self)

    def keep_alive(self) -> None:
        """Touch the message in the background until it is answered.

        Ends ``max_msg_timeout`` after the delivery, or when the connection is lost. A handler that
        hangs keeps its message until then, so use it only for work that ends.
        """
        check_process()
        self.responder.keep_alive(self)

    def enable_async(self) -> None:
        """Do not finish the message when the handler returns; finish or requeue it yourself.

        An exception in the handler still requeues it, unless it was answered.
        """
        self.is_async = True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Message cannot be pickled or copied: pass its body on; answer it in this process")

    def __repr__(self) -> str:
        return (
            f"<Message {self.id} attempts={self.attempts}"
            f" {counted(len(self.body), 'byte')} from {self.nsqd_address}>"
        )
