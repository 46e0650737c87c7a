"""``InFlight``: the messages that are out on one connection, and what happened to them.

Here it is decided that a message gets one answer. Nothing is sent from here.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from nsqclient.errors import AlreadyRespondedError
from nsqclient.message import Message

#: Seconds between reports of messages that expired unhandled.
_REPORT_INTERVAL = 60.0


@dataclass
class Counts:
    """What happened on one connection."""

    received: int = 0
    finished: int = 0
    requeued: int = 0
    touched: int = 0
    handed_back: int = 0  #: requeued unstarted: at stop, or far above ``max_queued_bytes``
    expired: int = 0  #: dropped unhandled, because nsqd had given them to somebody else
    lost_answers: int = 0  #: answers that could not be sent any more
    late_answers: int = 0  #: answers that nsqd refused: the message had timed out
    orphaned: int = 0  #: in flight when the connection was lost, or never answered


class InFlight:
    """Messages by id. Threads: every method, any thread; no other lock is taken inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[bytes, Message] = {}  # guarded by _lock
        self.counts = Counts()  # written under _lock
        #: The connection has ended, and nsqd has taken its messages back. Written under _lock.
        self.is_lost = False
        self._unreported = 0  # messages that expired since the last report; guarded by _lock
        self._next_report = -math.inf  # on time.monotonic(); guarded by _lock

    def __len__(self) -> int:
        """How many there are, expired ones included."""
        return len(self._messages)

    def count(self, now: float) -> int:
        """How many there are that nsqd still counts as ours."""
        with self._lock:
            return sum(message.deadline > now for message in self._messages.values())

    def messages(self) -> list[Message]:
        """Return all of them, expired ones included."""
        with self._lock:
            return list(self._messages.values())

    def unanswered(self, now: float) -> set[Message]:
        """Those that somebody still may answer in time."""
        with self._lock:
            return {
                message for message in self._messages.values()
                if message.deadline > now and not message.has_responded
            }

    def forget(self, before: float) -> None:
        """Drop those whose deadline passed before ``before`` and that nobody answered."""
        with self._lock:
            old = [m for m in self._messages.values() if m.deadline < before]
            for message in old:
                del self._messages[message.id]
            self.counts.orphaned += len(old)

    def add(self, messages: list[Message]) -> None:
        """Take in what came. One that comes again replaces the one that timed out."""
        with self._lock:
            self._messages.update({message.id: message for message in messages})
            self.counts.received += len(messages)

    def get(self, message_id: bytes) -> Message | None:
        """Return the message with this id, if it is still out."""
        with self._lock:
            return self._messages.get(message_id)

    def holds(self, message: Message) -> bool:
        """Tell whether this delivery of the message is still out."""
        return self.get(message.id) is message

    def claim(self, message: Message) -> None:
        """Give the caller the right to answer.

        Raises:
            AlreadyRespondedError: somebody else has it.
        """
        with self._lock:
            if message.has_responded:
                raise AlreadyRespondedError(f"{message!r} was answered before")
            message._responded = True

    def claim_all(self, messages: Iterable[Message]) -> list[Message]:
        """Claim those that nobody has answered, remove them, and return those still out."""
        with self._lock:
            unanswered = [message for message in messages if not message.has_responded]
            for message in unanswered:
                message._responded = True
            return self._take(unanswered)

    def take(self, messages: Iterable[Message]) -> list[Message]:
        """Remove messages; return those that were still there: only those may be answered."""
        with self._lock:
            return self._take(messages)

    def _take(self, messages: Iterable[Message]) -> list[Message]:
        """Needs _lock."""
        taken = []
        for message in messages:
            if self._messages.get(message.id) is message:
                del self._messages[message.id]
                taken.append(message)
        return taken

    def take_finished(self, finished: deque[Message]) -> tuple[list[bytes], int]:
        """Empty the queue of finished messages, and remove them.

        Returns: the ids to send FIN for, and how many answers the lost connection has cost.
        """
        messages, ids, missing = self._messages, [], 0
        with self._lock:
            for _ in range(len(finished)):  # messages are removed from it here alone
                message = finished.popleft()
                if messages.get(message.id) is message:
                    del messages[message.id]
                    ids.append(message.id)
                else:
                    missing += 1
            self.counts.finished += len(ids)
            if self.is_lost:
                return ids, missing
            self.counts.late_answers += missing  # it was delivered again, or forgotten
            return ids, 0

    def tally(self, name: str, number: int = 1) -> int:
        """Add to one of the counts; return what it was before."""
        with self._lock:
            before: int = getattr(self.counts, name)
            setattr(self.counts, name, before + number)
            return before

    def count_expired(self, now: float, number: int = 1) -> int:
        """Count messages that expired unhandled; return how many there are to report now.

        The first one at once, then every minute what has come together. Those that were lost with
        their connection are nothing to report: it is its loss that is.
        """
        with self._lock:
            self.counts.expired += number
            if self.is_lost:
                return 0
            self._unreported += number
            if now < self._next_report:
                return 0
            count, self._unreported = self._unreported, 0
            self._next_report = now + _REPORT_INTERVAL
            return count

    def extend(self, message: Message, deadline: float) -> None:
        """nsqd was asked for more time."""
        with self._lock:
            if not self.is_lost:
                message.deadline = deadline
            self.counts.touched += 1

    def expire(self, message_id: bytes) -> None:
        """nsqd says that the message is no longer ours."""
        with self._lock:
            message = self._messages.get(message_id)
            if message is not None:
                message.deadline = min(message.deadline, time.monotonic())

    def lose(self) -> None:
        """The connection ended: the messages are nsqd's again."""
        now = time.monotonic()
        with self._lock:
            self.is_lost = True
            for message in self._messages.values():
                message.deadline = min(message.deadline, now)
            self.counts.orphaned += len(self._messages)
            self._messages.clear()
