"""``Message``: a body, its metadata from nsqd, and the methods to respond to it.

A message does not know its connection; it calls a small :class:`Responder`. Source: TCP
protocol spec, "Data Format"; client guide, "Message Handling".
"""

from __future__ import annotations

import json
import time
from collections.abc import Sized
from typing import Any, NamedTuple, NoReturn, Protocol, Union

from nsqclient.display import counted
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.forking import check_process

#: Bytes that a message takes beside its body: the objects for it, its id and its times, its place
#: in the queue and in the table of messages in flight. 365 to 430 were measured (CPython 3.11,
#: 64 bit); a little more is counted, so that a queue of empty bodies stays under the limit too.
MESSAGE_OVERHEAD = 512


class MessageId(bytes):
    """The id of a message: the bytes from nsqd, which are printed as text.

    ``str(id)``, ``f"{id}"`` and ``print(id)`` give the 16 hex digits; otherwise it behaves as
    bytes. The id of a partitioned NSQ is 16 arbitrary bytes, and its text their hex digits.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return self.decode("ascii") if self.isalnum() else self.hex()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class Requeue(Exception):
    """Raise it in a handler, or return it, to requeue the message.

    Args:
        delay: seconds (float or timedelta) until the next delivery; None for the automatic one,
            ``default_requeue_delay`` times attempts, at most ``max_requeue_delay``.
        backoff: whether this counts as a failure, so that the consumer slows down.
    """

    def __init__(self, delay: Duration | None = None, backoff: bool = True) -> None:
        super().__init__(delay, backoff)
        self.delay: float | None = None if delay is None else to_seconds(delay, "requeue delay")
        self.backoff = backoff


class GiveUp(Exception):
    """Raise it in a handler, or return it, to give the message up: more attempts do not help.

    ``on_giving_up`` is called with the message, then it is finished. There is no backoff. In a
    BatchHandler it applies to all messages of the batch that are not answered.

    Args:
        reason: for the dead letter and the log.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


#: What a handler may return; other values than these decisions are ignored. The result of an
#: ``async def`` is none of them.
HandlerResult = Union[
    None, Requeue, GiveUp, type[Requeue], type[GiveUp], float, str, bytes, Sized]


def raise_decision(result: object) -> None:
    """Raise what a handler returned if it is a Requeue or a GiveUp, which mean the same raised."""
    if isinstance(result, type) and issubclass(result, (Requeue, GiveUp)):
        result = result()
    if isinstance(result, (Requeue, GiveUp)):
        # One object may be returned many times: its traceback would grow with each.
        raise result.with_traceback(None)


class Failure(NamedTuple):
    """Why a message is given up. Immutable."""

    reason: str  #: one line
    #: What the handler raised; None where this delivery reached no handler: the message had been
    #: delivered ``max_attempts`` times, and the last of them ended without an answer, or with a
    #: call of ``requeue()``.
    exception: BaseException | None = None


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

    def give_up(self, message: Message, reason: str) -> None:
        """Call ``on_giving_up`` and send FIN."""
        ...

    def drop_expired(self, message: Message) -> None:
        """Forget a message that nsqd has given to another consumer before it was handled."""
        ...


class Message:
    """A message as it was delivered.

    Threads: any thread may answer it; one answer wins, a second raises AlreadyRespondedError.
    """

    __slots__ = (
        "body", "_id", "attempts", "timestamp", "received", "deadline", "_responder",
        "_responded", "_is_async", "_failure",
    )

    _failure: Failure  # set while it is given up; with each message it would cost all of them

    #: The payload.
    body: bytes
    #: How many times it has been delivered, this time included: 1 to 65535, then from 0 again.
    attempts: int
    #: When nsqd received it, in nanoseconds since the epoch.
    timestamp: int
    #: When the consumer received it, on the clock of ``time.monotonic()``.
    received: float
    #: When nsqd delivers it again, unless it is answered or touched; same clock.
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
        self._id = message_id
        self.attempts = attempts
        self.timestamp = timestamp
        self.received = received
        self.deadline = deadline
        self._responder = responder
        self._responded = False
        self._is_async = False

    @property
    def id(self) -> MessageId:
        """16 hex digits in ASCII; unique per topic and nsqd, and the same in all its channels.

        They are bytes, and print as text.
        """
        return MessageId(self._id)  # made here, so that messages cost nothing for it

    def json(self) -> Any:
        """Decode the body as JSON.

        Raises:
            ValueError: the body is not JSON in UTF-8, or nested too deeply.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("the body is JSON that is nested too deeply") from None

    @property
    def headers(self) -> dict[str, Any]:
        """Its JSON headers; empty if it has none, and always from a stock nsqd."""
        return {}

    @property
    def failure(self) -> Failure | None:
        """Why it is given up, while ``on_giving_up`` runs; otherwise None."""
        return getattr(self, "_failure", None)

    @property
    def topic(self) -> str:
        """The topic that it was consumed from; empty for a message without a consumer."""
        topic: str = getattr(self._responder, "topic", "")
        return topic

    @property
    def channel(self) -> str:
        """The channel that it was consumed from; empty for a message without a consumer."""
        channel: str = getattr(self._responder, "channel", "")
        return channel

    @property
    def nsqd_address(self) -> str:
        """``host:port`` of the nsqd that sent it."""
        address: str = getattr(self._responder, "address", "")
        return address

    @property
    def has_responded(self) -> bool:
        """Whether it was finished or requeued."""
        return self._responded

    @property
    def time_left(self) -> float:
        """Seconds until the message expires; negative when it has expired."""
        return self.deadline - time.monotonic()

    def finish(self) -> None:
        """Finish the message (FIN).

        If the connection is lost, nsqd delivers the message again. This is logged and counted.

        Raises:
            AlreadyRespondedError: it was answered before.
        """
        check_process()
        self._responder.finish(self)

    def requeue(self, delay: Duration | None = None, backoff: bool = True) -> None:
        """Requeue the message (REQ): nsqd delivers it again.

        Args: see :class:`Requeue`. nsqd limits the delay to its ``--max-req-timeout``.

        Raises:
            AlreadyRespondedError: it was answered before.
            ConfigError: the delay is negative or not a duration.
        """
        seconds = None if delay is None else to_seconds(delay, "requeue delay")
        check_process()
        self._responder.requeue(self, seconds, backoff)

    def give_up(self, reason: str) -> None:
        """Give the message up, as ``raise GiveUp(reason)`` does in a handler.

        For a batch, a loop over ``messages()``, or after ``enable_async()``. ``on_giving_up`` is
        called with the message in this thread; then the message is finished. If the callback
        raises, the message is requeued.

        Raises:
            AlreadyRespondedError: it was answered before.
        """
        self._responder.give_up(self, reason)

    def touch(self) -> None:
        """Ask nsqd for another ``msg_timeout``, up to its ``max_msg_timeout`` in all (TOUCH).

        Raises:
            AlreadyRespondedError: it was answered before.
        """
        check_process()
        self._responder.touch(self)

    def keep_alive(self) -> None:
        """Touch the message in the background until it is answered.

        It ends at ``max_msg_timeout`` after the delivery, or when the connection is lost. A handler
        that hangs keeps its message until then, so use it only for work that ends.

        Raises:
            AlreadyRespondedError: it was answered before.
        """
        check_process()
        self._responder.keep_alive(self)

    def enable_async(self) -> None:
        """Do not finish the message when the handler returns; finish or requeue it yourself.

        An exception in the handler still requeues it, unless it was answered.
        """
        self._is_async = True

    @property
    def is_async(self) -> bool:
        """Whether ``enable_async()`` was called."""
        return self._is_async

    def __reduce__(self) -> NoReturn:
        """It belongs to a connection, so it cannot be pickled or copied."""
        raise TypeError(
            "a Message cannot be pickled or copied: pass its body on; answer it in this process")

    def __repr__(self) -> str:
        return (
            f"<Message {self.id} attempts={self.attempts}"
            f" {counted(len(self.body), 'byte')} from {self.nsqd_address}>"
        )
