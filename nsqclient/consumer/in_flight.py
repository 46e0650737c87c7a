"""Tables of one connection's messages in flight, and of one consumer's unhandled deliveries."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterable

from nsqclient.consumer.stats import ConnectionCounters
from nsqclient.errors import AlreadyRespondedError, ReentrantCallError
from nsqclient.message import Message
from nsqclient.protocol.events import Endpoint
from nsqclient.runtime.lock import Lock

#: Number of unhandled messages to remember. A full table takes 11 MB.
MAX_UNHANDLED_REMEMBERED = 50_000


class DeliveryCounts:
    """Counts deliveries of each message of a consumer that have ended in a certain way.

    Remembers the messages counted last, finished ones too: nsqd may refuse a late FIN and deliver
    the message again. Threads: any.
    """

    def __init__(self, most: int = MAX_UNHANDLED_REMEMBERED) -> None:
        self._most = most
        self._lock = Lock()
        # The key includes the endpoint because ids are unique only within it.
        self._counts: OrderedDict[tuple[Endpoint, bytes], int] = OrderedDict()  # guarded by _lock

    def add(self, place: Endpoint, message_id: bytes) -> None:
        key = place, message_id
        with self._lock:
            self._counts[key] = self._counts.pop(key, 0) + 1
            if len(self._counts) > self._most:
                self._counts.popitem(last=False)

    def count(self, place: Endpoint, message_id: bytes) -> int:
        with self._lock:
            return self._counts.get((place, message_id), 0)


class InFlightTable:
    """The messages in flight on one connection, by id. Each message is answered only once.

    Threads: any, for every method. Takes no lock but its own. Does no I/O.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._messages: dict[bytes, Message] = {}  # guarded by _lock
        self.counters: ConnectionCounters = ConnectionCounters()  # written under _lock
        #: nsqd has taken the messages back. Written under _lock.
        self.is_lost: bool = False

    def __len__(self) -> int:
        return len(self._messages)

    def count(self, now: float) -> int:
        with self._lock:
            return sum(message.deadline > now for message in self._messages.values())

    def messages(self) -> list[Message]:
        with self._lock:
            return list(self._messages.values())

    def unanswered(self, now: float) -> set[Message]:
        with self._lock:
            return set(
                message for message in self._messages.values()
                if message.deadline > now and not message.has_responded
            )

    def forget(self, before: float) -> None:
        with self._lock:
            old = list(m for m in self._messages.values() if m.deadline < before)
            for message in old:
                del self._messages[message.raw_id]
            self.counters.orphaned += len(old)

    def add(self, messages: list[Message]) -> list[Message]:
        """Record received messages as in flight. A redelivered message replaces its first delivery.

        Returns: the messages not recorded because they are already in flight with at least as many
            attempts. nsqd increases attempts on each redelivery, so it sent these by mistake.
        """
        repeated: list[Message] = []
        with self._lock:
            added = {message.raw_id: message for message in messages}
            if len(added) < len(messages) or not added.keys().isdisjoint(self._messages):
                repeated = self._add_one_by_one(messages)
            else:
                self._messages.update(added)
            self.counters.received += len(messages)
        return repeated

    def put(self, messages: list[Message]) -> None:
        """Record received messages as in flight, whatever their attempts."""
        with self._lock:
            self._messages.update({message.raw_id: message for message in messages})
            self.counters.received += len(messages)

    def _add_one_by_one(self, messages: list[Message]) -> list[Message]:
        repeated = []
        for message in messages:
            before = self._messages.get(message.raw_id)
            # Attempts have 16 bits: after 65535 nsqd continues at 0.
            if before is None or 0 < (message.attempts - before.attempts) % 65536 < 32768:
                self._messages[message.raw_id] = message
            else:
                repeated.append(message)
        return repeated

    def get(self, message_id: bytes) -> Message | None:
        return self._messages.get(message_id)

    def holds(self, message: Message) -> bool:
        """True if this delivery of the message is still in flight."""
        return self.get(message.raw_id) is message

    def mark_responded(self, message: Message) -> None:
        """Mark the message as answered. Only one caller succeeds.

        Raises:
            AlreadyRespondedError: another caller has answered the message.
        """
        try:
            with self._lock:
                is_first, message.has_responded = not message.has_responded, True
        except ReentrantCallError:  # called by a finalizer in the thread that holds the lock
            is_first, message.has_responded = not message.has_responded, True
        if not is_first:
            raise AlreadyRespondedError(f"{message!r} was answered before")

    def take_unanswered(self, messages: Iterable[Message]) -> list[Message]:
        """Mark unanswered messages as answered and remove them. Returns those still in flight."""
        with self._lock:
            unanswered = list(message for message in messages if not message.has_responded)
            for message in unanswered:
                message.has_responded = True
            return self._take(unanswered)

    def take(self, messages: Iterable[Message]) -> list[Message]:
        """Remove messages. Returns those still in flight: only these may be answered."""
        with self._lock:
            return self._take(messages)

    def _take(self, messages: Iterable[Message]) -> list[Message]:
        taken = []
        for message in messages:
            if self._messages.get(message.raw_id) is message:
                del self._messages[message.raw_id]
                taken.append(message)
        return taken

    def take_finished(self, finished: deque[Message]) -> tuple[list[bytes], int]:
        """Empty the queue of finished messages and remove them from the table.

        Returns: the ids to send FIN for, and the number of answers lost with the connection.
        """
        messages, ids, missing = self._messages, [], 0
        with self._lock:
            for _ in range(len(finished)):  # safe: no other code removes messages from it
                message = finished.popleft()
                if messages.get(message.raw_id) is message:
                    del messages[message.raw_id]
                    ids.append(message.raw_id)
                else:
                    missing += 1
            self.counters.finished += len(ids)
            if self.is_lost:
                return ids, missing
            self.counters.late_answers += missing  # they were redelivered or forgotten
            return ids, 0

    def count_more(self, counter: str, number: int = 1) -> int:
        with self._lock:
            total: int = getattr(self.counters, counter) + number
            setattr(self.counters, counter, total)
            return total

    def extend(self, message: Message, deadline: float) -> None:
        with self._lock:
            if not self.is_lost:
                message.deadline = deadline
            self.counters.touched += 1

    def expire(self, message_id: bytes) -> None:
        """Mark a message as expired because nsqd no longer counts it as in flight."""
        with self._lock:
            message = self._messages.get(message_id)
            if message is not None:
                message.deadline = min(message.deadline, time.monotonic())

    def mark_lost(self) -> None:
        """The connection ended: expire and drop all messages, which nsqd delivers again."""
        now = time.monotonic()
        with self._lock:
            self.is_lost = True
            for message in self._messages.values():
                message.deadline = min(message.deadline, now)
            self.counters.orphaned += len(self._messages)
            self._messages.clear()
