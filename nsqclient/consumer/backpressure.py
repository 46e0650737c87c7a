"""``Backpressure``: RDY 0 while the messages that wait for a worker take too much memory.

Messages that handlers hold count only if there are more of them than ``max_in_flight``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Protocol

from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.subscription import Subscription
from nsqclient.errors import RemoteProtocolError
from nsqclient.message import MESSAGE_OVERHEAD, Message
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import LineLimit

#: Seconds between two measurements while RDY is 0. The pause is at least _REST times as long as the
#: measurement, because measuring a long queue takes tens of milliseconds.
_INTERVAL, _REST = 0.05, 10

_body_of = attrgetter("body")
_header_size_of = attrgetter("_header_size")


class MessageQueue(Protocol):
    def waiting(self) -> list[Message]: ...
    def remove_waiting(self, condition: Callable[[Message], bool]) -> list[Message]: ...


class Backpressure:
    """Sets RDY to 0 above ``max_queued_bytes`` and restores it at half of that.

    Threads: any. Calls nothing while it holds its lock.
    """

    def __init__(
        self, context: ConsumerContext, flow: FlowControl[Subscription], queue: MessageQueue,
        *, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow = flow
        self._queue = queue
        self._timer = context.timer
        self._log = context.log
        self._clock = clock
        self._limit = context.config.max_queued_bytes
        #: Received bytes after which readers call ``measure()``: the queue may exceed the limit, or
        #: half of it may have expired behind a slow handler.
        self.room: int = self._limit // 8
        self._lines = LineLimit(2)
        self._lock = Lock()
        self._held_since = 0.0  # guarded by _lock, as _late
        #: Bytes received on each connection after the settle time of this hold.
        self._late: dict[Subscription, int] = {}

    def queued_bytes(self) -> int:
        return _size(self._queue.waiting())

    def check_late(self, sub: Subscription, size: int) -> None:
        """``size`` bytes have arrived although RDY is 0.

        Raises:
            RemoteProtocolError: nsqd ignores RDY 0; the connection must be closed.
        """
        with self._lock:
            if self._clock() < self._held_since + self._flow.settle_time:
                return
            late = self._late[sub] = self._late.get(sub, 0) + size
        if late > self._limit:
            raise RemoteProtocolError(
                f"{sub.address} ignores RDY: {late / 2**20:.1f} MiB came later than"
                f" {self._flow.settle_time:g} s after RDY 0")

    def measure(self) -> None:
        """Drop expired messages and measure the others. Begin, continue or end the hold."""
        began = self._clock()

        def is_expired(message: Message) -> bool:
            if message.has_responded:
                return False  # a task for a worker, or already requeued
            sub = message.responder
            return message.deadline <= began or isinstance(sub, Subscription) and sub.is_lost

        for message in self._queue.remove_waiting(is_expired):
            message.responder.drop_expired(message)
        counted = self._counted_messages()
        size, now = _size(counted), self._clock()
        left = max(self._limit - size, self._limit // 16)
        self.room = min(left, max(size, self._limit // 8))
        with self._lock:
            before = self._flow.is_held
            # A single message of any size is accepted, otherwise it could never be received.
            if len(counted) <= 1 or size <= self._limit // 2:
                self._flow.is_held = False
            elif size > self._limit and not before:
                self._flow.is_held, self._held_since, self._late = True, now, {}
            is_held = self._flow.is_held
        if is_held != before:
            self._flow.update()
        if is_held and not before:
            self._log.log(
                self._lines.level(logging.WARNING),
                "RDY 0 until workers catch up: %.1f MiB wait in the queue, max_queued_bytes is"
                " %.1f MiB; add workers, make the handler faster, or lower max_in_flight",
                size / 2**20, self._limit / 2**20)
        elif before and not is_held:
            self._log.log(self._lines.level(logging.INFO),
                          "half of max_queued_bytes is free again, RDY restored")
        if is_held:
            self._timer.schedule(max(_INTERVAL, _REST * (now - began)), self.measure)

    def _counted_messages(self) -> list[Message]:
        """Return the waiting messages, and all other unanswered ones if above max_in_flight."""
        waiting, most = self._queue.waiting(), max(self._flow.max_in_flight, 1)
        if sum(map(len, self._flow.subscriptions)) <= most:
            return waiting
        queued = set(map(id, waiting))
        others = [message for sub in self._flow.subscriptions
                  for message in sub.in_flight.messages() if id(message) not in queued]
        return waiting + others if len(others) > most else waiting


def _size(messages: list[Message]) -> int:
    """Return the memory used by messages. Fast, because there may be hundreds of thousands."""
    bodies = sum(map(len, map(_body_of, messages)))
    headers: int = sum(map(_header_size_of, messages))
    return bodies + headers + len(messages) * MESSAGE_OVERHEAD
