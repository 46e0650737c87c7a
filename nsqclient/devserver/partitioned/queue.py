"""The log of one partition, and the channels that read it. Pure: ``now`` is an argument.

Unlike a stock channel, a channel here reads a common log from a position on; returned messages
come before new ones, oldest first.
"""

from __future__ import annotations

import fnmatch
import heapq
import json
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqclient.devserver.protocol.partitioned import encode_ext, encode_position
from nsqclient.devserver.queues import Consumer, Scheduler
from nsqclient.protocol.partitioned.extensions import (
    MessageFormat, MessageIds, make_internal_id,
)
from nsqclient.protocol.partitioned.selection import StartPosition

_NEVER = float("inf")
#: The count of a partition's first user message; the first entry is the server's own.
_FIRST_COUNT = 2
#: Bytes of a stored message besides its body and header: size, ids, time, attempts.
_OVERHEAD = 4 + 26
#: The highest number of attempts that is sent.
_MAX_ATTEMPTS = 4000
#: The header that says which consumers a message is for.
_TAG_KEY = "##client_dispatch_tag"
#: The error of a start position in a partition without messages.
NO_POSITION = "commit log end of file"
_NOT_IN_FLIGHT = "ID not in flight"
#: headers of a message -> whether it is delivered; None: a message without headers
ExtFilter = Callable[[dict[str, Any] | None], bool]


class LogMessage(NamedTuple):
    ids: MessageIds
    timestamp: int  #: nanoseconds since the epoch
    body: bytes
    ext: bytes  #: mark and JSON header, as an extended topic sends them
    offset: int
    size: int


class PartitionConsumer(Consumer):
    """A client that has subscribed to a partition.

    Args:
        tag: it gets only messages with this tag; empty: messages without a tag, or with a tag that
            no consumer of the channel has.
        matches: its filter of headers; None: every message.
    """

    __slots__ = ("form", "tag", "matches")

    def __init__(
        self, number: int, msg_timeout: float, sample_rate: int, form: MessageFormat,
        tag: str = "", matches: ExtFilter | None = None,
    ) -> None:
        super().__init__(number, msg_timeout, sample_rate)
        self.form: MessageFormat = form
        self.tag: str = tag
        self.matches: ExtFilter | None = matches


@dataclass
class _InFlightMessage:
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
        size = _OVERHEAD + len(body) + (len(ext) if header else 0)
        ids = MessageIds(
            make_internal_id(self.number, len(self.messages) + _FIRST_COUNT), trace_id
        )
        message = LogMessage(ids, timestamp, body, ext, self.end, size)
        self.messages.append(message)
        self.end += size
        return message

    def flow(self, now: float) -> None:
        for channel in self.channels.values():
            channel.flow(now)

    def end_consumers(self, now: float) -> None:
        for channel in self.channels.values():
            channel.end_consumers(now)


class PartitionChannel:
    """One channel of one partition. A new one begins at the end of the log."""

    def __init__(
        self, log: PartitionLog, name: str, scheduler: Scheduler, max_msg_timeout: float
    ) -> None:
        self.name = name
        self.is_ordered = False
        self.is_paused = False
        self.scheduled: float = _NEVER  # the earliest time for which it is scheduled
        self.position: int = len(log.messages)
        self.in_flight: dict[int, _InFlightMessage] = {}
        self.consumers: dict[int, PartitionConsumer] = {}
        self.finished: int = 0
        self._log = log
        self._scheduler = scheduler
        self._max_msg_timeout = max_msg_timeout
        self._attempts: dict[int, int] = {}
        self._returned: list[int] = []  # a heap of indexes
        self._deferred: list[tuple[float, int]] = []
        self._turns: deque[PartitionConsumer] = deque()  # in round-robin order
        self._is_selective = False  # some of them choose messages by headers

    def depth(self) -> int:
        return (
            len(self._log.messages) - self.position
            + len(self._returned) + len(self._deferred) + len(self.in_flight)
        )

    def unfinished(self) -> list[LogMessage]:
        back = [*self._returned, *(index for _, index in self._deferred),
                *(flight.index for flight in self.in_flight.values())]
        messages = self._log.messages
        return [messages[index] for index in sorted(back)] + messages[self.position:]

    def add_consumer(self, consumer: PartitionConsumer) -> None:
        self.consumers[consumer.number] = consumer
        self._turns.append(consumer)
        self._on_consumers()

    def remove_consumer(self, consumer: PartitionConsumer, now: float) -> None:
        """Remove a consumer. Its messages are delivered again, without counting an attempt."""
        if self.consumers.pop(consumer.number, None) is None:
            return
        self._turns.remove(consumer)
        self._on_consumers()
        for internal_id, flight in list(self.in_flight.items()):
            if flight.consumer is consumer:
                self._attempts[flight.index] -= 1
                self._return(internal_id)
        self.flow(now)

    def _on_consumers(self) -> None:
        self._is_selective = any(
            consumer.tag or consumer.matches is not None for consumer in self._turns)

    def end_consumers(self, now: float) -> None:
        for consumer in list(self.consumers.values()):
            consumer.is_ended = True
            consumer.outbox = []
            self._scheduler.wake(consumer)
            self.remove_consumer(consumer, now)

    def set_ready(self, consumer: Consumer, ready: int, now: float) -> None:
        """RDY: how many messages it may have in flight; at most 1 on an ordered channel."""
        consumer.ready = ready
        self.flow(now)

    def flow(self, now: float) -> None:
        while self._returned or self.position < len(self._log.messages):
            if self.is_paused or self.is_ordered and self.in_flight:
                return
            index = self._returned[0] if self._returned else self.position
            headers = read_headers(self._log.messages[index].ext) if self._is_selective else None
            # As in a real nsqd, a message that waits for its consumer blocks later messages.
            consumer = self._next_ready_consumer(self._tag_for(headers))
            if consumer is None:
                return
            if self._returned:
                heapq.heappop(self._returned)
            else:
                self.position += 1
            if consumer.matches is not None and not consumer.matches(headers):
                self._attempts.pop(index, None)
                self.finished += 1
                continue
            self._deliver(index, consumer, now)

    def _tag_for(self, headers: dict[str, Any] | None) -> str:
        """The tag that consumers of a message must have."""
        tag = (headers or {}).get(_TAG_KEY)
        if not isinstance(tag, str):
            return ""  # as in nsqd
        return tag if any(consumer.tag == tag for consumer in self._turns) else ""

    def _next_ready_consumer(self, tag: str) -> PartitionConsumer | None:
        for _ in range(len(self._turns)):
            consumer = self._turns[0]
            self._turns.rotate(-1)
            if consumer.in_flight < consumer.ready and consumer.tag == tag:
                return consumer
        return None

    def _deliver(self, index: int, consumer: PartitionConsumer, now: float) -> None:
        message = self._log.messages[index]
        attempts = self._attempts[index] = self._attempts.get(index, 0) + 1
        deadline = now + consumer.msg_timeout
        self.in_flight[message.ids.internal_id] = _InFlightMessage(index, consumer, deadline, now)
        consumer.in_flight += 1
        consumer.message_count += 1
        form = consumer.form
        payload = (message.ext if form.has_ext else b"") + (
            encode_position(message.offset, message.size) if form.has_detail else b""
        ) + message.body
        if not consumer.outbox:
            self._scheduler.wake(consumer)
        consumer.outbox.append(
            (message.timestamp, min(attempts, _MAX_ATTEMPTS), message.ids.pack(), payload)
        )
        self._schedule(deadline)

    def _return(self, internal_id: int, due: float | None = None) -> None:
        flight = self.in_flight.pop(internal_id)
        flight.consumer.in_flight -= 1
        if due is None:
            heapq.heappush(self._returned, flight.index)
        else:
            heapq.heappush(self._deferred, (due, flight.index))
            self._schedule(due)

    def _find(self, consumer: Consumer, message_id: bytes) -> int | None:
        """Return the internal id of a message in flight to this consumer, or None."""
        internal_id = MessageIds.unpack(message_id).internal_id
        flight = self.in_flight.get(internal_id)
        return None if flight is None or flight.consumer is not consumer else internal_id

    def finish(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """FIN: remove the message. Returns nsqd's reason for a failure, or None."""
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
        """REQ; ordered channels ignore one with a delay."""
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
        internal_id = self._find(consumer, message_id)
        if internal_id is None:
            return _NOT_IN_FLIGHT
        flight = self.in_flight[internal_id]
        latest = flight.delivered_at + self._max_msg_timeout
        flight.deadline = min(now + consumer.msg_timeout, latest)
        return None

    def tick(self, now: float) -> None:
        self.scheduled = _NEVER
        for internal_id, flight in list(self.in_flight.items()):
            if flight.deadline <= now:
                flight.consumer.timeout_count += 1
                self._return(internal_id)
        while self._deferred and self._deferred[0][0] <= now:
            heapq.heappush(self._returned, heapq.heappop(self._deferred)[1])
        self.flow(now)
        dues = [flight.deadline for flight in self.in_flight.values()]
        dues += [due for due, _ in self._deferred[:1]]
        if dues:
            self._schedule(min(dues))

    def _schedule(self, due: float) -> None:
        if due < self.scheduled:
            self.scheduled = due
            self._scheduler.schedule(due, self)

    def set_position(self, start: StartPosition, now: float) -> None:
        self.end_consumers(now)
        self.begin_at(start)

    def empty(self) -> None:
        for flight in self.in_flight.values():
            flight.consumer.in_flight -= 1
        self.in_flight.clear()
        self.begin_at(StartPosition("special", -1))

    def has_position(self, start: StartPosition) -> bool:
        """True if nsqd finds the position. A partition without messages has only its end."""
        return start.kind == "special" or bool(self._log.messages)

    def begin_at(self, start: StartPosition) -> None:
        """Continue at a position. Call it while no message is in flight."""
        self._returned.clear()
        self._deferred.clear()
        self._attempts.clear()
        messages = self._log.messages
        if start.kind == "special":
            self.position = len(messages)
        elif start.kind == "msgcount":
            self.position = min(max(start.value - 1, 0), len(messages))
        elif start.kind == "timestamp":
            self.position = sum(each.timestamp < start.value * 10**9 for each in messages)
        else:
            self.position = sum(each.offset < start.value for each in messages)


# -- ext_filter of IDENTIFY, as nsqd applies it to the JSON headers of a message


def read_ext_filter(field: object) -> ExtFilter | None:
    """Return the filter of an IDENTIFY; None if it is missing, or invalid: nsqd ignores it."""
    if not isinstance(field, dict):
        return None
    matches = _read(field)
    if matches is None:
        return None
    inverse = field.get("inverse") is True
    return lambda headers: (headers is not None and matches(headers)) is not inverse


def _read(field: dict[str, Any]) -> Callable[[dict[str, Any]], bool] | None:
    kind, key, data = (field.get(name) for name in ("type", "filter_ext_key", "filter_data"))
    if isinstance(kind, bool) or not isinstance(key, str) or not key:
        return None
    if kind == 4:
        return _read_multi(key, field.get("filter_data_list"))
    if not isinstance(data, str) or not data:
        return None
    if kind == 1:
        return lambda headers: headers.get(key) == data
    if kind not in (2, 3):
        return None
    try:
        compiled = re.compile(data if kind == 2 else _glob(data))
    except re.error:
        return None
    return lambda headers: compiled.search(_text(headers, key)) is not None


def _read_multi(relation: str, rules: object) -> Callable[[dict[str, Any]], bool] | None:
    if not isinstance(rules, list) or not rules:
        return None
    pairs = []
    for rule in rules:
        if not isinstance(rule, dict):
            return None
        key, data = rule.get("filter_ext_key"), rule.get("filter_data")
        if not isinstance(key, str) or not key or not isinstance(data, str) or not data:
            return None
        pairs.append((key, data))

    def matches(headers: dict[str, Any]) -> bool:
        found = [headers.get(key) == data for key, data in pairs]
        return any(found) if relation == "any" else relation == "all" and all(found)

    return matches


def _text(headers: dict[str, Any], key: str) -> str:
    """Return a header; empty if it is missing or not a text, as in nsqd."""
    value = headers.get(key)
    return value if isinstance(value, str) else ""


def _glob(pattern: str) -> str:
    return "^(?:" + "|".join(fnmatch.translate(each) for each in _alternatives(pattern)) + ")"


def _alternatives(pattern: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    return [each for choice in found[1].split(",")
            for each in _alternatives(pattern[:found.start()] + choice + pattern[found.end():])]


def read_headers(ext: bytes) -> dict[str, Any] | None:
    """Return the headers of a stored message, from its mark and header; None without a header."""
    if len(ext) < 3:
        return None
    fields = json.loads(ext[3:])
    return fields if isinstance(fields, dict) else {}
