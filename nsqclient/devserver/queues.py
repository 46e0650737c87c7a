"""A channel's queue: waiting, in flight and deferred messages, and who gets the next one.

Pure: ``now`` (seconds of any steady clock) is an argument, and what has to happen outside is
left on the :class:`Agenda`. Whoever calls holds one lock around it all.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from nsqclient.devserver.store import Backend, MessageQueue, StoredMessage
from nsqclient.protocol.wire import RawMessage

_NEVER = float("inf")
#: An expired entry costs little; the heap is only rebuilt when it is mostly such entries.
_HEAP_SLACK = 64


class Consumer:
    """A subscribed client as the queue sees it.

    ``ready`` is the RDY window; ``outbox`` what was given to it and is not yet written to its
    socket; ``is_ended`` says that its channel is gone and the socket must be closed.
    """

    __slots__ = (
        "number", "msg_timeout", "sample_rate", "ready", "in_flight", "outbox", "is_waiting",
        "is_ended", "message_count", "finish_count", "requeue_count", "timeout_count",
    )

    def __init__(self, number: int, msg_timeout: float, sample_rate: int = 0) -> None:
        self.number = number
        self.msg_timeout = msg_timeout
        self.sample_rate = sample_rate
        self.ready = 0
        self.in_flight = 0
        self.outbox: list[RawMessage] = []
        self.is_waiting = False  # it stands in its channel's line of consumers with room
        self.is_ended = False
        self.message_count = 0
        self.finish_count = 0
        self.requeue_count = 0
        self.timeout_count = 0


class Scheduled(Protocol):
    """What looks at its deadlines when its time has come."""

    #: When it stands on the agenda next.
    scheduled: float

    def tick(self, now: float) -> None:
        """Do what is due."""
        ...


class ServedChannel(Protocol):
    """What a consumer's commands ask of a channel; a str says why not, in nsqd's words."""

    def set_ready(self, consumer: Consumer, ready: int, now: float) -> None:
        """RDY."""
        ...

    def finish(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """FIN."""
        ...

    def requeue(
        self, consumer: Consumer, message_id: bytes, delay: float, now: float
    ) -> str | None:
        """REQ."""
        ...

    def touch(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """TOUCH."""
        ...


class Agenda:
    """What the queues leave for the outside: consumers to wake, and the next due times."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.rng = random.Random() if rng is None else rng
        self._woken: dict[Consumer, None] = {}
        self._due: list[tuple[float, int, Scheduled]] = []
        self._order = 0

    def wake(self, consumer: Consumer) -> None:
        """Note that a consumer has something in its outbox, or was ended."""
        self._woken[consumer] = None

    def take_woken(self) -> Iterable[Consumer]:
        """Remove and return the consumers that were noted."""
        if not self._woken:
            return ()
        woken, self._woken = self._woken, {}
        return woken

    def schedule(self, due: float, channel: Scheduled) -> None:
        """Note the time at which a channel must look at its deadlines."""
        self._order += 1
        heapq.heappush(self._due, (due, self._order, channel))

    def next_due(self) -> float | None:
        """When ``tick`` must be called next, or None."""
        return self._due[0][0] if self._due else None

    def tick(self, now: float) -> None:
        """Let every channel that is due move its expired and deferred messages."""
        due = self._due
        while due and due[0][0] <= now:
            at, _, channel = heapq.heappop(due)
            if at == channel.scheduled:
                channel.tick(now)


class QueueLimits(NamedTuple):
    """Options of the broker. Durations in seconds."""

    mem_queue_size: int = 10_000
    max_msg_timeout: float = 900.0
    max_channel_consumers: int = 0


class Channel:
    """One channel: every message of its topic once, to one of its consumers at a time.

    After every call either no message waits, or no consumer has room, or it is paused.
    """

    def __init__(
        self, topic: str, name: str, limits: QueueLimits, backend: Backend, agenda: Agenda
    ) -> None:
        self.topic = topic
        self.name = name
        self.paused = False
        self.queue = MessageQueue(limits.mem_queue_size, backend)
        self.in_flight: dict[bytes, StoredMessage] = {}
        self.deferred: dict[bytes, StoredMessage] = {}
        self.consumers: dict[int, Consumer] = {}
        self.message_count = 0
        self.requeue_count = 0
        self.timeout_count = 0
        #: When this channel stands on the agenda next; earlier needs call schedule().
        self.scheduled = _NEVER
        self._max_msg_timeout = limits.max_msg_timeout
        self._agenda = agenda
        self._line: deque[Consumer] = deque()  # consumers that may have room, fairly in turn
        # (time, id): entries of answered or touched messages stay until they are met.
        self._deadlines: list[tuple[float, bytes]] = []
        self._deferrals: list[tuple[float, bytes]] = []

    # -- messages come in

    def put(self, message: StoredMessage, now: float) -> None:
        """Take a message of the topic: to a consumer, to the queue, or to wait its deferral."""
        self.message_count += 1
        deferral = message.deferral
        if deferral:
            message.deferral = 0
            self._defer(message, now + deferral)
        else:
            self._enqueue(message, now)

    def _enqueue(self, message: StoredMessage, now: float) -> None:
        consumer = None if self.paused else self._next_in_line()
        if consumer is None:
            self.queue.put(message)
        else:
            self._deliver(message, consumer, now)

    def _defer(self, message: StoredMessage, due: float) -> None:
        message.deadline = due
        self.deferred[message.id] = message
        heapq.heappush(self._deferrals, (due, message.id))
        self._note(due)

    # -- messages go out

    def _next_in_line(self) -> Consumer | None:
        """Take the next consumer with room out of the line."""
        line = self._line
        while line:
            consumer = line.popleft()
            if consumer.in_flight < consumer.ready:
                return consumer
            consumer.is_waiting = False
        return None

    def _deliver(self, message: StoredMessage, consumer: Consumer, now: float) -> None:
        if not consumer.sample_rate or self._agenda.rng.randrange(100) <= consumer.sample_rate:
            message.attempts = attempts = (message.attempts + 1) & 0xFFFF
            message.owner = consumer.number
            message.delivered_at = now
            message.deadline = deadline = now + consumer.msg_timeout
            self.in_flight[message.id] = message
            self._push_deadline(deadline, message.id)
            consumer.in_flight += 1
            consumer.message_count += 1
            if not consumer.outbox:
                self._agenda.wake(consumer)
            consumer.outbox.append((message.timestamp, attempts, message.id, message.body))
        if consumer.in_flight < consumer.ready:
            self._line.append(consumer)
        else:
            consumer.is_waiting = False

    def _pump(self, now: float) -> None:
        """Give waiting messages to consumers with room, one each in turn."""
        queue = self.queue
        while len(queue) and not self.paused:
            consumer = self._next_in_line()
            if consumer is None:
                return
            self._deliver(queue.get(), consumer, now)

    def _room(self, consumer: Consumer, now: float) -> None:
        if consumer.in_flight < consumer.ready and not consumer.is_waiting:
            consumer.is_waiting = True
            self._line.append(consumer)
            self._pump(now)

    # -- the consumers' commands

    def add_consumer(self, consumer: Consumer) -> None:
        """Let a consumer in, with RDY 0."""
        self.consumers[consumer.number] = consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        """Let it go. What it has in flight stays so until its timeout, as in nsqd."""
        self.consumers.pop(consumer.number, None)
        consumer.ready = 0  # it leaves the line when its turn comes

    def set_ready(self, consumer: Consumer, ready: int, now: float) -> None:
        """RDY: how many messages the consumer may have in flight."""
        consumer.ready = ready
        self._room(consumer, now)

    def finish(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """FIN: forget the message. Returns why not, in nsqd's words, or None."""
        message = self.in_flight.get(message_id)
        if message is None or message.owner != consumer.number:
            return _why_not(message)
        del self.in_flight[message_id]
        consumer.in_flight -= 1
        consumer.finish_count += 1
        self._room(consumer, now)
        return None

    def requeue(
        self, consumer: Consumer, message_id: bytes, delay: float, now: float
    ) -> str | None:
        """REQ: give the message back, now or after ``delay`` seconds."""
        message = self.in_flight.get(message_id)
        if message is None or message.owner != consumer.number:
            return _why_not(message)
        del self.in_flight[message_id]
        self.requeue_count += 1
        consumer.in_flight -= 1
        consumer.requeue_count += 1
        if delay > 0:
            self._defer(message, now + delay)
        else:
            self._enqueue(message, now)
        self._room(consumer, now)
        return None

    def touch(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """TOUCH: restart the timeout, up to max_msg_timeout after the delivery."""
        message = self.in_flight.get(message_id)
        if message is None or message.owner != consumer.number:
            return _why_not(message)
        latest = message.delivered_at + self._max_msg_timeout
        message.deadline = min(now + consumer.msg_timeout, latest)
        self._push_deadline(message.deadline, message_id)
        return None

    # -- time

    def tick(self, now: float) -> None:
        """Requeue what is past its deadline, and let in what was deferred long enough."""
        self.scheduled = _NEVER
        while (top := self._first(self._deadlines, self.in_flight)) is not None and top[0] <= now:
            heapq.heappop(self._deadlines)
            message = self.in_flight.pop(top[1])
            self.timeout_count += 1
            owner = self.consumers.get(message.owner)
            if owner is not None:
                owner.in_flight -= 1
                owner.timeout_count += 1
            self.queue.put(message)
            if owner is not None:
                self._room(owner, now)
        while (top := self._first(self._deferrals, self.deferred)) is not None and top[0] <= now:
            heapq.heappop(self._deferrals)
            self.queue.put(self.deferred.pop(top[1]))
        self._pump(now)
        for heap, waiting in (
            (self._deadlines, self.in_flight), (self._deferrals, self.deferred)
        ):
            top = self._first(heap, waiting)
            if top is not None:
                self._note(top[0])

    @staticmethod
    def _first(
        heap: list[tuple[float, bytes]], waiting: dict[bytes, StoredMessage]
    ) -> tuple[float, bytes] | None:
        """Return the earliest entry that still holds, after removing those that do not."""
        while heap:
            message = waiting.get(heap[0][1])
            if message is not None and message.deadline == heap[0][0]:
                return heap[0]
            heapq.heappop(heap)
        return None

    def _push_deadline(self, deadline: float, message_id: bytes) -> None:
        heap = self._deadlines
        if len(heap) > 2 * len(self.in_flight) + _HEAP_SLACK:
            heap[:] = [(message.deadline, id_) for id_, message in self.in_flight.items()]
            heapq.heapify(heap)
        heapq.heappush(heap, (deadline, message_id))
        if deadline < self.scheduled:
            self._note(deadline)

    def _note(self, due: float) -> None:
        if due < self.scheduled:
            self.scheduled = due
            self._agenda.schedule(due, self)

    # -- the operator's commands

    def set_paused(self, paused: bool, now: float) -> None:
        """Stop or resume deliveries; messages accumulate meanwhile."""
        self.paused = paused
        self._pump(now)

    def empty(self, now: float) -> None:
        """Drop every message: waiting, in flight and deferred."""
        self.queue.clear()
        self.in_flight.clear()
        self.deferred.clear()
        self._deadlines.clear()
        self._deferrals.clear()
        for consumer in self.consumers.values():
            consumer.in_flight = 0
            self._room(consumer, now)

    def end(self) -> None:
        """Tell every consumer that the channel is gone."""
        for consumer in self.consumers.values():
            consumer.ready = 0
            consumer.is_ended = True
            self._agenda.wake(consumer)
        self.consumers.clear()

    def is_idle(self) -> bool:
        """Tell whether no message waits, is in flight or deferred."""
        return not (len(self.queue) or self.in_flight or self.deferred)


def _why_not(message: StoredMessage | None) -> str:
    return "ID not in flight" if message is None else "client does not own message"
