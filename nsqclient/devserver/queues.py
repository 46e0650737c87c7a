"""The queues of topics and channels: stored messages, channels, topics. Pure.

A :class:`Scheduler` collects wake-ups and due times, a :class:`Backend` stores messages beyond the
memory. The caller holds one lock during every call.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from nsqclient.protocol.frames import RawMessage

_NEVER = float("inf")
#: Entries by which the heap may exceed twice the number of valid ones before it is rebuilt.
_HEAP_SLACK = 64
# Parts of a message id: [41 bit time][10 bit node][12 bit sequence], as nsqd makes them.
_NODE_SHIFT = 12
_TIME_SHIFT = 22
_SEQUENCES = 1 << _NODE_SHIFT
_EPOCH = 1288834974288  # 2012-10-28, in nsqd's units of 2^20 ns


class StoredMessage:
    """One message of one topic or channel; each channel has its own copy.

    ``timestamp`` in ns since the epoch, ``deferral`` in seconds from the time when it reaches a
    channel, ``deadline`` on the clock of ``now``.
    """

    __slots__ = (
        "id", "timestamp", "body", "attempts", "deferral", "owner", "delivered_at", "deadline"
    )

    def __init__(
        self, message_id: bytes, timestamp: int, body: bytes, attempts: int = 0, deferral: float = 0
    ) -> None:
        self.id: bytes = message_id
        self.timestamp: int = timestamp
        self.body: bytes = body
        self.attempts: int = attempts
        self.deferral: float = deferral
        self.owner: int = 0  # number of the consumer that has it in flight
        self.delivered_at: float = 0.0
        self.deadline: float = 0.0

    def copy(self) -> StoredMessage:
        return StoredMessage(self.id, self.timestamp, self.body, 0, self.deferral)


class Backend:
    """Stores the messages beyond ``mem_queue_size``. The base class keeps them in memory."""

    def __init__(self) -> None:
        self._messages: deque[StoredMessage] = deque()

    @property
    def depth(self) -> int:
        return len(self._messages)

    def put(self, message: StoredMessage) -> None:
        """Add a message at the end; its deferral is lost, as on nsqd's disk."""
        message.deferral = 0
        self._messages.append(message)

    def get(self) -> StoredMessage:
        """Remove and return the first message; only while ``depth`` is not 0."""
        return self._messages.popleft()

    def peek(self) -> list[StoredMessage]:
        return list(self._messages)

    def clear(self) -> None:
        self._messages.clear()


class NullBackend(Backend):
    """Drops messages beyond ``mem_queue_size``: for ephemeral topics and channels."""

    def put(self, message: StoredMessage) -> None:
        pass


class MessageQueue:
    """Messages in memory up to a limit, then in a backend. First in, first out, unlike nsqd's."""

    __slots__ = ("memory", "backend", "_limit")

    def __init__(self, limit: int, backend: Backend) -> None:
        self.memory: deque[StoredMessage] = deque()
        self.backend: Backend = backend
        self._limit = limit

    def __len__(self) -> int:
        return len(self.memory) + self.backend.depth

    def put(self, message: StoredMessage) -> None:
        """Add at the end. A deferred message prefers memory: on disk its deferral is lost."""
        memory = self.memory
        if len(memory) < self._limit and (not self.backend.depth or message.deferral):
            memory.append(message)
        else:
            self.backend.put(message)

    def keep(self, message: StoredMessage) -> None:
        """Add a message that was accepted before. If the disk is full, it stays in memory."""
        try:
            self.put(message)
        except OSError:
            self.memory.append(message)

    def get(self) -> StoredMessage:
        return self.memory.popleft() if self.memory else self.backend.get()

    def peek(self) -> list[StoredMessage]:
        return [*self.memory, *self.backend.peek()]

    def clear(self) -> None:
        self.memory.clear()
        self.backend.clear()


def _no_session() -> None:
    """The default of ``Consumer.wake``."""


class Consumer:
    """A subscribed client.

    ``ready`` is its RDY count, ``outbox`` the messages to write. ``is_ended``: its channel was
    deleted. ``wake`` is called without the lock after ``outbox`` or ``is_ended`` has changed.
    """

    __slots__ = (
        "number", "msg_timeout", "sample_rate", "ready", "in_flight", "outbox", "is_waiting",
        "is_ended", "wake", "message_count", "finish_count", "requeue_count", "timeout_count",
    )

    def __init__(self, number: int, msg_timeout: float, sample_rate: int = 0) -> None:
        self.number: int = number
        self.msg_timeout: float = msg_timeout
        self.sample_rate: int = sample_rate
        self.ready: int = 0
        self.in_flight: int = 0
        self.outbox: list[RawMessage] = []
        self.is_waiting: bool = False  # in its channel's _ready_consumers
        self.is_ended: bool = False
        self.wake: Callable[[], None] = _no_session
        self.message_count: int = 0
        self.finish_count: int = 0
        self.requeue_count: int = 0
        self.timeout_count: int = 0


class Scheduled(Protocol):
    #: The earliest time for which it is scheduled.
    scheduled: float

    def tick(self, now: float) -> None:
        """Run the tasks that are due."""
        ...


class Scheduler:
    """The consumers to wake and the times at which channels are due."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.rng: random.Random = random.Random() if rng is None else rng
        self._woken: dict[Consumer, None] = {}
        self._due: list[tuple[float, int, Scheduled]] = []
        self._order = 0

    def wake(self, consumer: Consumer) -> None:
        """Add a consumer with messages in its outbox, or whose channel was deleted."""
        self._woken[consumer] = None

    def take_woken(self) -> Iterable[Consumer]:
        if not self._woken:
            return ()
        woken, self._woken = self._woken, {}
        return woken

    def schedule(self, due: float, channel: Scheduled) -> None:
        self._order += 1
        heapq.heappush(self._due, (due, self._order, channel))

    def next_due(self) -> float | None:
        return self._due[0][0] if self._due else None

    def tick(self, now: float) -> None:
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
    """Delivers each message of its topic to one consumer at a time.

    After every call the queue is empty, no consumer is ready, or the channel is paused.
    """

    def __init__(
        self, topic: str, name: str, limits: QueueLimits, backend: Backend, scheduler: Scheduler,
    ) -> None:
        self.topic = topic
        self.name = name
        self.paused: bool = False
        self.queue: MessageQueue = MessageQueue(limits.mem_queue_size, backend)
        self.in_flight: dict[bytes, StoredMessage] = {}
        self.deferred: dict[bytes, StoredMessage] = {}
        self.consumers: dict[int, Consumer] = {}
        self.message_count: int = 0
        self.requeue_count: int = 0
        self.timeout_count: int = 0
        #: The earliest time for which it is scheduled.
        self.scheduled: float = _NEVER
        self._max_msg_timeout = limits.max_msg_timeout
        self._scheduler = scheduler
        # Consumers that may have RDY left, in round-robin order.
        self._ready_consumers: deque[Consumer] = deque()
        # (time, id) of timeouts and deferrals; entries of finished or touched messages stay until
        # their time.
        self._dues: list[tuple[float, bytes]] = []

    def put(self, message: StoredMessage, now: float, *, is_accepted: bool = False) -> None:
        """Deliver, queue or defer a message. If ``is_accepted``, a full disk does not lose it."""
        deferral = message.deferral
        if deferral:
            message.deferral = 0
            self._defer(message, now + deferral)
        else:
            self._enqueue(message, now, self.queue.keep if is_accepted else self.queue.put)
        self.message_count += 1

    def _enqueue(
        self, message: StoredMessage, now: float, put: Callable[[StoredMessage], None]
    ) -> None:
        consumer = None if self.paused else self._next_ready_consumer()
        if consumer is None:
            put(message)
        else:
            self._deliver(message, consumer, now)

    def _defer(self, message: StoredMessage, due: float) -> None:
        message.deadline = due
        self.deferred[message.id] = message
        self._push_due(message)

    def _next_ready_consumer(self) -> Consumer | None:
        line = self._ready_consumers
        while line:
            consumer = line.popleft()
            if consumer.in_flight < consumer.ready:
                return consumer
            consumer.is_waiting = False
        return None

    def _deliver(self, message: StoredMessage, consumer: Consumer, now: float) -> None:
        if not consumer.sample_rate or self._scheduler.rng.randrange(100) <= consumer.sample_rate:
            message.attempts = attempts = (message.attempts + 1) & 0xFFFF
            message.owner = consumer.number
            message.delivered_at = now
            message.deadline = now + consumer.msg_timeout
            self.in_flight[message.id] = message
            self._push_due(message)
            consumer.in_flight += 1
            consumer.message_count += 1
            if not consumer.outbox:
                self._scheduler.wake(consumer)
            consumer.outbox.append((message.timestamp, attempts, message.id, message.body))
        if consumer.in_flight < consumer.ready:
            self._ready_consumers.append(consumer)
        else:
            consumer.is_waiting = False

    def deliver_again(self) -> int:
        """Send and count the messages in flight a second time; see Faults."""
        for message in self.in_flight.values():
            consumer = self.consumers.get(message.owner)
            if consumer is not None:
                consumer.in_flight += 1
                self._scheduler.wake(consumer)
                consumer.outbox.append(
                    (message.timestamp, message.attempts, message.id, message.body))
        return len(self.in_flight)

    def _pump(self, now: float) -> None:
        queue = self.queue
        while len(queue) and not self.paused:
            consumer = self._next_ready_consumer()
            if consumer is None:
                return
            try:
                message = queue.get()
            except OSError:
                self._ready_consumers.appendleft(consumer)
                raise
            self._deliver(message, consumer, now)

    def _update_readiness(self, consumer: Consumer, now: float) -> None:
        if consumer.in_flight < consumer.ready and not consumer.is_waiting:
            consumer.is_waiting = True
            self._ready_consumers.append(consumer)
            self._pump(now)

    def add_consumer(self, consumer: Consumer) -> None:
        self.consumers[consumer.number] = consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer. Its messages stay in flight until their timeout, as in nsqd."""
        self.consumers.pop(consumer.number, None)
        consumer.ready = 0  # _next_ready_consumer() then drops it

    def set_ready(self, consumer: Consumer, ready: int, now: float) -> None:
        consumer.ready = ready
        self._update_readiness(consumer, now)

    def finish(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        message = self.in_flight.get(message_id)
        if message is None or message.owner != consumer.number:
            return _response_error(message)
        del self.in_flight[message_id]
        consumer.in_flight -= 1
        consumer.finish_count += 1
        self._update_readiness(consumer, now)
        return None

    def requeue(
        self, consumer: Consumer, message_id: bytes, delay: float, now: float
    ) -> str | None:
        message = self.in_flight.get(message_id)
        if message is None or message.owner != consumer.number:
            return _response_error(message)
        del self.in_flight[message_id]
        self.requeue_count += 1
        consumer.in_flight -= 1
        consumer.requeue_count += 1
        if delay > 0:
            self._defer(message, now + delay)
        else:
            self._enqueue(message, now, self.queue.keep)
        self._update_readiness(consumer, now)
        return None

    def touch(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        message = self.in_flight.get(message_id)
        if message is None or message.owner != consumer.number:
            return _response_error(message)
        latest = message.delivered_at + self._max_msg_timeout
        message.deadline = min(now + consumer.msg_timeout, latest)
        self._push_due(message)
        return None

    def tick(self, now: float) -> None:
        self.scheduled = _NEVER
        try:
            self._queue_due(now)
            self._pump(now)
        finally:  # also after a read error
            due = self._first_due()
            if due is not None:
                self._schedule(due)

    def _queue_due(self, now: float) -> None:
        while (due := self._first_due()) is not None and due <= now:
            _, message_id = heapq.heappop(self._dues)
            message = self.deferred.pop(message_id, None)
            if message is not None:
                self.queue.keep(message)
                continue
            message = self.in_flight.pop(message_id)
            self.timeout_count += 1
            owner = self.consumers.get(message.owner)
            if owner is not None:
                owner.in_flight -= 1
                owner.timeout_count += 1
            self.queue.keep(message)
            if owner is not None:
                self._update_readiness(owner, now)

    def _first_due(self) -> float | None:
        """Return the earliest valid due time, after removing invalid ones before it."""
        while self._dues:
            due, message_id = self._dues[0]
            message = self.in_flight.get(message_id) or self.deferred.get(message_id)
            if message is not None and message.deadline == due:
                return due
            heapq.heappop(self._dues)
        return None

    def _push_due(self, message: StoredMessage) -> None:
        heap = self._dues
        if len(heap) > 2 * (len(self.in_flight) + len(self.deferred)) + _HEAP_SLACK:
            heap[:] = [(each.deadline, each.id)
                       for held in (self.in_flight, self.deferred) for each in held.values()]
            heapq.heapify(heap)
        heapq.heappush(heap, (message.deadline, message.id))
        self._schedule(message.deadline)

    def _schedule(self, due: float) -> None:
        if due < self.scheduled:
            self.scheduled = due
            self._scheduler.schedule(due, self)

    def set_paused(self, paused: bool, now: float) -> None:
        self.paused = paused
        self._pump(now)

    def empty(self, now: float) -> None:
        for messages in (self.queue, self.in_flight, self.deferred, self._dues):
            messages.clear()
        for consumer in self.consumers.values():
            consumer.in_flight = 0
            self._update_readiness(consumer, now)

    def end(self) -> None:
        for consumer in self.consumers.values():
            consumer.ready = 0
            consumer.is_ended = True
            self._scheduler.wake(consumer)
        self.consumers.clear()

    def is_idle(self) -> bool:
        return not (len(self.queue) or self.in_flight or self.deferred)


def _response_error(message: StoredMessage | None) -> str:
    return "ID not in flight" if message is None else "client does not own message"


class MessageIds:
    """Message ids of one topic: strictly increasing, consecutive within one publish."""

    def __init__(self, node_id: int) -> None:
        self._node = (node_id % 1024) << _NODE_SHIFT
        self._time = 0
        self._sequence = 0

    def take(self, count: int, timestamp: int) -> list[bytes]:
        """Return ``count`` new ids; ``timestamp`` in ns may go back."""
        ids = []
        units = max((timestamp >> 20) - _EPOCH, 0)
        if units > self._time:
            self._time, self._sequence = units, 0
        for _ in range(count):
            ids.append(b"%016x" % (self._time << _TIME_SHIFT | self._node | self._sequence))
            self._sequence += 1
            if self._sequence == _SEQUENCES:
                self._time, self._sequence = self._time + 1, 0
        return ids


class Topic:
    """Copies each message to all channels; stores messages while it is paused or has no channel."""

    def __init__(
        self, name: str, limits: QueueLimits, backend: Backend, node_id: int
    ) -> None:
        self.name = name
        self.paused = False
        self.channels: dict[str, Channel] = {}
        self.queue: MessageQueue = MessageQueue(limits.mem_queue_size, backend)
        self.message_count: int = 0
        self.message_bytes: int = 0
        self.ids: MessageIds = MessageIds(node_id)

    def put(self, message: StoredMessage, now: float) -> None:
        if self.paused or not self.channels:
            self.queue.put(message)
        else:
            self._distribute(message, now)
        self.message_count += 1
        self.message_bytes += len(message.body)

    def flow(self, now: float) -> None:
        """Move the stored messages to the channels, unless the topic is paused."""
        while self.channels and not self.paused and len(self.queue):
            self._distribute(self.queue.get(), now, is_accepted=True)

    def empty(self) -> None:
        self.queue.clear()

    def _distribute(
        self, message: StoredMessage, now: float, *, is_accepted: bool = False
    ) -> None:
        copies = [message]
        copies += [message.copy() for _ in range(len(self.channels) - 1)]
        for channel, copy in zip(self.channels.values(), copies):
            channel.put(copy, now, is_accepted=is_accepted)
