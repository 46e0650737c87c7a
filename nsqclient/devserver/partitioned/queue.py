"""The queue of one partition, and the channels that read it. Pure: ``now`` is an argument.

Unlike a stock channel, one of these reads a common log from a position on; what comes back goes
ahead of what is new, oldest first.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from nsqclient.devserver.queues import Agenda, Consumer
from nsqclient.protocol.extended import (
    MessageForm,
    MessageIds,
    encode_ext,
    make_internal_id,
    raw_size,
)

_NEVER = float("inf")
#: The count of a partition's first user message; the first entry is the server's own.
_FIRST_COUNT = 2
#: The highest number of attempts that is told.
_MAX_ATTEMPTS = 4000


@dataclass(frozen=True)
class LogMessage:
    """One stored message."""

    ids: MessageIds
    timestamp: int  #: nanoseconds since the epoch
    body: bytes
    ext: bytes  #: mark and JSON header, as an extended topic sends them
    offset: int
    size: int


class PartitionConsumer(Consumer):
    """A client that has subscribed to a partition; ``form`` says what its messages carry."""

    __slots__ = ("form",)

    def __init__(
        self, number: int, msg_timeout: float, sample_rate: int, form: MessageForm
    ) -> None:
        super().__init__(number, msg_timeout, sample_rate)
        self.form = form


@dataclass
class _Flight:
    index: int
    consumer: PartitionConsumer
    deadline: float
    delivered_at: float


@dataclass
class PartitionLog:
    """All messages of one partition, and its channels."""

    number: int
    messages: list[LogMessage] = field(default_factory=list)
    channels: dict[str, PartitionChannel] = field(default_factory=dict)
    end: int = 0  #: the offset behind the last message

    def append(self, body: bytes, trace_id: int, header: bytes, timestamp: int) -> LogMessage:
        """Store a message; call ``flow`` of every channel next."""
        ext = encode_ext(header)
        size = raw_size(body, ext if header else b"")
        ids = MessageIds(
            make_internal_id(self.number, len(self.messages) + _FIRST_COUNT), trace_id
        )
        message = LogMessage(ids, timestamp, body, ext, self.end, size)
        self.messages.append(message)
        self.end += size
        return message

    def flow(self, now: float) -> None:
        """Let every channel send what it can."""
        for channel in self.channels.values():
            channel.flow(now)

    def end_consumers(self, now: float) -> None:
        """Cut every consumer off, without a word; what they had in flight waits for others."""
        for channel in self.channels.values():
            channel.end_consumers(now)


class PartitionChannel:
    """One channel of one partition. A new one begins at the end of the log."""

    def __init__(
        self, log: PartitionLog, name: str, agenda: Agenda, max_msg_timeout: float
    ) -> None:
        self.name = name
        self.is_ordered = False
        self.scheduled = _NEVER  # when it stands on the agenda next
        self.position = len(log.messages)
        self.in_flight: dict[int, _Flight] = {}
        self.consumers: dict[int, PartitionConsumer] = {}
        self.finished = 0
        self._log = log
        self._agenda = agenda
        self._max_msg_timeout = max_msg_timeout
        self._attempts: dict[int, int] = {}
        self._back: list[int] = []  # a heap of indexes that came back
        self._deferred: list[tuple[float, int]] = []
        self._line: deque[PartitionConsumer] = deque()  # whose turn it is

    def depth(self) -> int:
        """How many messages are not finished."""
        return (
            len(self._log.messages) - self.position
            + len(self._back) + len(self._deferred) + len(self.in_flight)
        )

    def unfinished(self) -> list[LogMessage]:
        """The messages that are not finished, in order."""
        back = [*self._back, *(index for _, index in self._deferred),
                *(flight.index for flight in self.in_flight.values())]
        messages = self._log.messages
        return [messages[index] for index in sorted(back)] + messages[self.position:]

    # -- consumers

    def add_consumer(self, consumer: PartitionConsumer) -> None:
        """Let a consumer in, with RDY 0."""
        self.consumers[consumer.number] = consumer
        self._line.append(consumer)

    def remove_consumer(self, consumer: PartitionConsumer, now: float) -> None:
        """Let it go; what it had in flight is delivered again, and does not count as tried."""
        if self.consumers.pop(consumer.number, None) is None:
            return
        self._line.remove(consumer)
        for internal_id, flight in list(self.in_flight.items()):
            if flight.consumer is consumer:
                self._attempts[flight.index] -= 1
                self._return(internal_id)
        self.flow(now)

    def end_consumers(self, now: float) -> None:
        """End every consumer's connection."""
        for consumer in list(self.consumers.values()):
            consumer.is_ended = True
            consumer.outbox = []
            self._agenda.wake(consumer)
            self.remove_consumer(consumer, now)

    def set_ready(self, consumer: Consumer, ready: int, now: float) -> None:
        """RDY: how many messages it may have in flight; more than 1 means 1 where ordered."""
        consumer.ready = ready
        self.flow(now)

    # -- messages

    def flow(self, now: float) -> None:
        """Send what waits to consumers with room, in turn."""
        while self._back or self.position < len(self._log.messages):
            if self.is_ordered and self.in_flight:
                return
            consumer = self._next_with_room()
            if consumer is None:
                return
            if self._back:
                index = heapq.heappop(self._back)
            else:
                index = self.position
                self.position += 1
            self._deliver(index, consumer, now)

    def _next_with_room(self) -> PartitionConsumer | None:
        for _ in range(len(self._line)):
            consumer = self._line[0]
            self._line.rotate(-1)
            if consumer.in_flight < consumer.ready:
                return consumer
        return None

    def _deliver(self, index: int, consumer: PartitionConsumer, now: float) -> None:
        message = self._log.messages[index]
        attempts = self._attempts[index] = self._attempts.get(index, 0) + 1
        deadline = now + consumer.msg_timeout
        self.in_flight[message.ids.internal_id] = _Flight(index, consumer, deadline, now)
        consumer.in_flight += 1
        consumer.message_count += 1
        payload = consumer.form.write(message.body, message.ext, message.offset, message.size)
        if not consumer.outbox:
            self._agenda.wake(consumer)
        consumer.outbox.append(
            (message.timestamp, min(attempts, _MAX_ATTEMPTS), message.ids.pack(), payload)
        )
        self._note(deadline)

    def _return(self, internal_id: int, due: float | None = None) -> None:
        """Take a message out of flight, to be delivered again."""
        flight = self.in_flight.pop(internal_id)
        flight.consumer.in_flight -= 1
        if due is None:
            heapq.heappush(self._back, flight.index)
        else:
            heapq.heappush(self._deferred, (due, flight.index))
            self._note(due)

    def _find(self, consumer: Consumer, message_id: bytes) -> int | None:
        """Find a message of this consumer's; only the first half of the id counts."""
        internal_id = MessageIds.unpack(message_id).internal_id
        flight = self.in_flight.get(internal_id)
        return None if flight is None or flight.consumer is not consumer else internal_id

    def finish(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """FIN: forget the message. Returns why not, or None."""
        internal_id = self._find(consumer, message_id)
        if internal_id is None:
            return _NOT_IN_FLIGHT
        flight = self.in_flight.pop(internal_id)
        del self._attempts[flight.index]
        consumer.in_flight -= 1
        consumer.finish_count += 1
        self.finished += 1
        self.flow(now)
        return None

    def requeue(
        self, consumer: Consumer, message_id: bytes, delay: float, now: float
    ) -> str | None:
        """REQ; with a delay it is ignored without a word where the channel is ordered."""
        internal_id = self._find(consumer, message_id)
        if internal_id is None:
            return _NOT_IN_FLIGHT
        if delay > 0 and self.is_ordered:
            return None
        consumer.requeue_count += 1
        self._return(internal_id, now + delay if delay > 0 else None)
        self.flow(now)
        return None

    def touch(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """TOUCH: restart the timeout, up to max_msg_timeout after the delivery."""
        internal_id = self._find(consumer, message_id)
        if internal_id is None:
            return _NOT_IN_FLIGHT
        flight = self.in_flight[internal_id]
        latest = flight.delivered_at + self._max_msg_timeout
        flight.deadline = min(now + consumer.msg_timeout, latest)
        return None

    # -- time

    def tick(self, now: float) -> None:
        """Take back what timed out, and let in what was deferred long enough."""
        self.scheduled = _NEVER
        for internal_id, flight in list(self.in_flight.items()):
            if flight.deadline <= now:
                flight.consumer.timeout_count += 1
                self._return(internal_id)
        while self._deferred and self._deferred[0][0] <= now:
            heapq.heappush(self._back, heapq.heappop(self._deferred)[1])
        self.flow(now)
        dues = [flight.deadline for flight in self.in_flight.values()]
        dues += [due for due, _ in self._deferred[:1]]
        if dues:
            self._note(min(dues))

    def _note(self, due: float) -> None:
        if due < self.scheduled:
            self.scheduled = due
            self._agenda.schedule(due, self)

    def set_position(self, is_before: Callable[[LogMessage], bool], now: float) -> None:
        """Read again from the first message on that is not before; all clients begin anew."""
        self.end_consumers(now)
        self._back.clear()
        self._deferred.clear()
        self._attempts.clear()
        messages = self._log.messages
        self.position = sum(1 for message in messages if is_before(message))


_NOT_IN_FLIGHT = "ID not in flight"
