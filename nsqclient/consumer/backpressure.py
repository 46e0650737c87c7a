"""``Backpressure``: RDY 0 while the messages that wait for a worker take too much memory.

Messages that are being handled do not count: ``max_in_flight`` limits them. If handlers have left
more unanswered than that (``enable_async()``), these count, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter

from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.processor import MessageProcessor, by_subscription
from nsqclient.consumer.subscription import Subscription
from nsqclient.errors import RemoteProtocolError
from nsqclient.message import MESSAGE_OVERHEAD, Message
from nsqclient.protocol.events import Endpoint
from nsqclient.runtime.lock import Lock

#: Seconds between two measurements during a hold. One of a long queue takes tens of milliseconds;
#: the next comes no sooner than so many times that.
_INTERVAL, _REST = 0.05, 10
#: The queue is not measured again before this part of the limit was added to it.
_STEP = 1 / 16
#: Seconds between warnings; in between a hold is logged at DEBUG.
_WARNING_INTERVAL = 60.0

_body_of = attrgetter("body")
_header_size_of = attrgetter("_header_size")


class Backpressure:
    """Takes what arrives. Holds RDY at 0 while more than ``max_queued_bytes`` wait, until half of
    it is left.

    Threads: any. Its lock is the innermost; nothing is called while it is held.
    """

    def __init__(
        self, context: ConsumerContext, flow: FlowControl[Subscription],
        processor: MessageProcessor, *, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow = flow
        self._processor = processor
        self._timer = context.timer
        self._log = context.log
        self._clock = clock
        self._most = context.config.max_queued_bytes
        self._lock = Lock()
        # Guarded by _lock, as all below.
        self._measured = 0  # bytes that waited when the queue was measured last
        self._added = 0  # bytes that have arrived since; some of them may have left already
        self._held_since = 0.0
        #: Bytes from each nsqd that arrived in this hold after the settle time.
        self._late: dict[Endpoint, int] = {}
        self._warned_at, self._is_warned = float("-inf"), False

    @property
    def is_held(self) -> bool:
        """Whether RDY is 0 because of ``max_queued_bytes``. Changed under _lock."""
        return self._flow.is_held

    def queued_bytes(self) -> int:
        """Measure what waits for a worker."""
        return _size(self._processor.waiting())

    def enqueue(self, sub: Subscription, messages: list[Message], size: int) -> None:
        """Queue what a connection delivered, bodies of ``size`` bytes. Called by its reader.

        Raises:
            RemoteProtocolError: nsqd ignores RDY 0; the connection must end.
        """
        processor, flow = self._processor, self._flow
        if processor.requeues_incoming:
            sub.requeue_unstarted(messages)
            return
        size += len(messages) * MESSAGE_OVERHEAD
        if self.is_held:
            self._check_late(sub, size)
        if processor.queue(messages):
            processor.drop_expired()
        if self._processor.requeues_incoming:
            processor.requeue_queued()  # a stop has begun while they were put
        flow.times_handlers = True
        if flow.counts_arrivals:
            flow.on_arrival(len(messages))
        with self._lock:
            self._added += size
            is_due = (not self.is_held and self._measured + self._added > self._most
                      and self._added >= self._most * _STEP)
        if is_due:
            self._measure()

    def _check_late(self, sub: Subscription, size: int) -> None:
        """Raise when no nsqd that obeys RDY 0 can have sent so much."""
        with self._lock:
            if self._clock() < self._held_since + self._flow.settle_time:
                return
            late = self._late[sub.place] = self._late.get(sub.place, 0) + size
        if late > self._most:
            raise RemoteProtocolError(
                f"{sub.address} sends without regard to RDY: {late / 2**20:.1f} MiB came later than"
                f" {self._flow.settle_time:g} s after RDY 0")

    def _measure(self) -> None:
        """Measure the queue, and begin or end the hold."""
        began = self._clock()
        count, size = self._count()
        if (self.is_held or size > self._most) and self._drop_expired():
            count, size = self._count()
        now = self._clock()
        with self._lock:
            self._measured, self._added = size, 0
            before = self.is_held
            # A single message is never too much, whatever its size: it could not be received.
            if count <= 1 or size <= self._most // 2:
                self._flow.is_held = False
            elif size > self._most and not before:
                self._flow.is_held, self._held_since, self._late = True, now, {}
            held = self.is_held
            warns = held and not before and now >= self._warned_at + _WARNING_INTERVAL
            if warns:
                self._warned_at = now
        if held != before:
            self._flow.update()
            if warns:
                self._log.warning(
                    "RDY 0 until workers catch up: %.1f MiB wait in the queue, max_queued_bytes is"
                    " %.1f MiB; add workers, make the handler faster, or lower max_in_flight",
                    size / 2**20, self._most / 2**20)
            elif self._is_warned and not held:
                self._log.info("half of max_queued_bytes is free again, RDY restored")
            self._is_warned = warns
        if held:
            self._timer.schedule(max(_INTERVAL, _REST * (now - began)), self._measure)

    def _count(self) -> tuple[int, int]:
        """Return how many messages count as waiting, and their bytes."""
        waiting = self._processor.waiting()
        count, size = len(waiting), _size(waiting)
        subs, most = self._flow.subscriptions, max(self._flow.max_in_flight, 1)
        if sum(map(len, subs)) > most:
            queued = set(map(id, waiting))
            others = [m for sub in subs for m in sub.in_flight.messages() if id(m) not in queued]
            if len(others) > most:
                count, size = count + len(others), size + _size(others)
        return count, size

    def _drop_expired(self) -> bool:
        """Drop what nsqd has taken back; return whether there was any."""
        now = self._clock()

        def is_expired(message: Message) -> bool:
            if message._responded:
                return False  # a task for a worker, or it was requeued
            sub = message._responder
            assert isinstance(sub, Subscription)
            return message.deadline <= now or sub.is_lost

        if not any(map(is_expired, self._processor.waiting())):
            return False
        for sub, messages in by_subscription(self._processor.remove_waiting(is_expired)).items():
            sub.drop_all_expired(messages)
        return True


def _size(messages: list[Message]) -> int:
    """Bytes that messages take. In C, because a queue may have hundreds of thousands."""
    bodies = sum(map(len, map(_body_of, messages)))
    headers: int = sum(map(_header_size_of, messages))
    return bodies + headers + len(messages) * MESSAGE_OVERHEAD
