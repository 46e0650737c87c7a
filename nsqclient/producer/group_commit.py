"""``GroupCommit``: synchronous publishes of many threads to one nsqd share its round trips.

The first thread that finds no leader leads: it sends all that is queued in one write, one command
for each topic, receives the answers itself, has the threads of these messages woken one by the
other, so that they queue their next ones, and passes the lead to the first message in the queue. A
lone publisher is a leader without followers: it sends and receives for itself.

Invariants. ``_lock`` guards the queue, the lead and the outcomes. No call that may block is made
with it.

1. A message is queued, or taken, or its thread has left. It goes from the queue to ``_taken`` in
   one call, so an exception from a signal handler cannot lose it.
2. Only the leader takes messages and sends. It was the first in the queue, so it takes its own.
3. Where nobody leads, the queue is empty: a thread takes the lead, if that is free, and queues its
   message under the lock under which a leader looks at the queue to pass the lead on. So what is
   queued while somebody leads, at whatever point, is sent by that thread or by a later leader.
4. A thread that joined leaves through ``_leave()``, and once more where that was interrupted. It
   removes a message that is still queued, settles what was taken and not sent, and passes the
   lead on; each of these steps may be repeated.
5. ``_taken`` is empty but between taking and having sent. What was sent is settled by the thread
   that receives the answer, which may be the reader, or at the end of the connection.
6. A message is settled once; ``is_done`` is set before its thread is woken. What is settled while
   its leader has the lead wakes the leader, which wakes all of them at the latest when it passes
   the lead on; what is settled after that wakes its thread. A thread may also be woken to lead, or
   for no reason: it looks, and sleeps again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Protocol, TypeVar

from nsqclient.connection.connection import Connection
from nsqclient.errors import ConnectError, NSQError
from nsqclient.producer.outcome import PublishOutcome, is_one_at_fault
from nsqclient.protocol import commands
from nsqclient.protocol.extensions import StoredPosition
from nsqclient.runtime.lock import Lock

if TYPE_CHECKING:
    from nsqclient.producer.futures import PublishFuture

#: Most messages and bytes of one MPUB of ours; well under nsqd's limits, and quick to store.
BATCH_MESSAGES = 2000
BATCH_BYTES = 1024 * 1024
#: Asynchronous publishes whose deadlines are further apart, in seconds, do not share an MPUB.
_DEADLINE_SPREAD = 0.5
#: Seconds in which threads are woken one after the other; those that are left, at once.
_IN_TURN = 0.005
#: Bytes of a command from which on the reader receives its answer: nsqd takes longer than that.
_LARGE = 64 * 1024

M = TypeVar("M", "PendingPublish", "PublishFuture")


def take_batch(queue: deque[M], batch: list[M], max_bytes: int, *, one_command: bool) -> None:
    """Move messages that may be sent together from the front of the queue to ``batch``.

    At least one, also where that is too large; with ``one_command`` only those that may share a
    command. In one call, so that an exception from a signal handler or a fork finds each message
    in one of the two.
    """
    first = queue[0]
    size, count = 4, 0
    for one in queue:
        size += 4 + len(one.body)
        if count and (size > max_bytes or count == BATCH_MESSAGES or one_command and (
            one.topic != first.topic or one.alone or first.alone
            or abs(one.until - first.until) > _DEADLINE_SPREAD
        )):
            break
        count += 1
    batch.extend(map(deque.popleft, repeat(queue, count)))


class PendingPublish:
    """One attempt of a synchronous publish. One thread waits for it.

    Args:
        alone: ``body`` is a command of its own; else what is to be the body of a message.
        until: its deadline, on ``time.monotonic()``.
    """

    outcome = PublishOutcome.UNKNOWN  # of the class until they change, for speed
    error: NSQError | None = None
    is_done = False
    #: Of a publish to a partition: the partition and its nsqd, when it is sent; what nsqd answered.
    route: tuple[int, str] | None = None
    stored: StoredPosition | None = None
    following: PendingPublish | None = None  # its thread wakes that one's when it leaves

    def __init__(self, topic: str, body: bytes, alone: bool, until: float) -> None:
        self.topic, self.body = topic, body
        self.alone, self.until = alone, until
        self.wake = threading.Lock()  # released, under the group's lock, to wake the thread
        self.wake.acquire()

    def settle(self, outcome: PublishOutcome, error: NSQError | None) -> None:
        """Set the outcome, unless it has one. Needs the group's lock."""
        if not self.is_done:
            self.outcome, self.error = outcome, error
            self.is_done = True

    def rouse(self) -> None:
        """Wake its thread, where it sleeps. Needs the group's lock."""
        if self.wake.locked():
            self.wake.release()


class Batch:
    """Messages that share a command; the token of that command. ``lock`` is the group's.

    Args:
        leader: is woken in its messages' place; None from the moment it passes the lead on.
    """

    __slots__ = ("messages", "leader", "_lock")

    def __init__(self, messages: list[PendingPublish], lock: Lock,
                 leader: PendingPublish | None = None) -> None:
        self.messages, self._lock, self.leader = messages, lock, leader

    def command(self) -> bytes:
        """Build the command."""
        first = self.messages[0]
        if first.alone:
            return first.body
        return commands.pub_or_mpub(first.topic, [one.body for one in self.messages])

    def assign(self, name: str, route: tuple[int, str]) -> None:
        """It is about to be sent to a partition; ``name`` are the words of the command."""
        for one in self.messages:
            one.route = route
            if not one.alone:
                one.topic = name

    def note_stored(self, stored: StoredPosition) -> None:
        """nsqd answered where its message is stored, which was alone."""
        self.messages[0].stored = stored

    def is_settled(self) -> bool:
        """Whether all have their outcome."""
        return self.messages[-1].is_done

    def settle(self, outcome: PublishOutcome, error: NSQError | None) -> None:
        """Set the outcome of those that have none yet, and wake the leader, or all. Repeatable."""
        if error is not None and is_one_at_fault(outcome, error, len(self.messages)):
            outcome = PublishOutcome.NOT_READ  # each is sent again, in a command of its own
        with self._lock:
            for one in self.messages:
                one.settle(outcome, error)
            for one in self.messages if self.leader is None else [self.leader]:
                one.rouse()

    def dismiss_leader(self) -> None:
        """Wake the threads of settled messages, now and from now on. Needs the group's lock."""
        self.leader = None
        for one in self.messages:
            if one.is_done:
                one.rouse()


class StallWatch(Protocol):
    """Watches whether messages that were sent are answered."""

    @property
    def progress(self) -> tuple[int, int]:
        """For ``Destination.mark_unresponsive``."""
        ...

    def is_stalled(self, now: float) -> bool:
        """Return, once it is time to check, whether nothing happened for too long."""
        ...


class Destination(Protocol):
    """Where a GroupCommit sends: an nsqd, or a partition."""

    address: str

    def send_batches(self, batches: list[Batch], until: float) -> Connection:
        """Send them in one write; return where the answers are to be received.

        Raises:
            NSQError: nothing was sent.
        """
        ...

    def on_no_answer(self) -> None:
        """The leader has waited for the answers as long as it may."""
        ...

    def stall_detector(self, seconds: float, now: float) -> StallWatch:
        """Begin to watch whether it makes progress."""
        ...

    def mark_unresponsive(self, progress: tuple[int, int]) -> bool:
        """It makes no progress; return whether there is another one to send to."""
        ...


class GroupCommit:
    """The synchronous publishes to one nsqd, ``max_bytes`` at once. Thread-safe."""

    def __init__(self, node: Destination, max_bytes: int) -> None:
        self._node = node
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._queue: deque[PendingPublish] = deque()  # by _lock, as all below
        self._leader: PendingPublish | None = None  # a thread compares its own without it
        self._taken: list[PendingPublish] = []
        self._batches: list[Batch] = []  # what the leader has taken, until it passes the lead on
        self._is_sending = False  # what was taken may have been sent

    def publish(self, mine: PendingPublish, stall_after: float, retry_unknown: bool) -> None:
        """Send a message, together with those of other threads, and wait for its outcome.

        Without ``is_done`` afterwards the outcome is UNKNOWN, or NOT_READ where it was not sent:
        the deadline came first, or ``error`` says why another nsqd is to be tried.

        Args:
            stall_after: seconds; from then on it is watched whether the nsqd makes progress.
            retry_unknown: a message that was sent may be sent to another nsqd then.

        Blocks: until the deadline of the message.
        """
        try:
            try:
                with self._lock:
                    if self._leader is None:
                        self._leader = mine
                    self._queue.append(mine)
                if self._leader is not mine:
                    left = mine.until - time.monotonic()
                    mine.wake.acquire(timeout=max(0.0, min(stall_after, left)))
                if not mine.is_done:
                    self._wait(mine, stall_after, retry_unknown)
            finally:
                if mine.following is not None:
                    with self._lock:
                        mine.following.rouse()
                if self._leader is mine or not mine.is_done:
                    self._leave(mine)
        finally:  # where an exception from a signal handler has interrupted the other
            if self._leader is mine or not mine.is_done:
                self._leave(mine)

    def _wait(self, mine: PendingPublish, stall_after: float, retry_unknown: bool) -> None:
        """Lead when it is this thread's turn, and wait until its message is done or hopeless."""
        stalls: StallWatch | None = None
        now = 0.0
        while True:
            if self._leader is mine or self._leads(mine):
                self._exchange(mine, min(mine.until, time.monotonic() + stall_after))
                self._pass_lead()
            elif stalls is not None:
                mine.wake.acquire(timeout=max(0.0, min(stall_after, mine.until - now)))
            if mine.is_done:
                return
            now = time.monotonic()
            if now >= mine.until:
                return
            if stalls is None:
                stalls = self._node.stall_detector(stall_after, now)
            elif stalls.is_stalled(now) and self._node.mark_unresponsive(stalls.progress):
                if self._withdraw(mine) or retry_unknown:
                    mine.error = ConnectError(self._node.address, "connected, but no answer")
                    return

    def _leads(self, mine: PendingPublish) -> bool:
        """Return whether it is this thread's turn. What passes the lead wakes this thread first."""
        with self._lock:
            return self._leader is mine

    def _exchange(self, mine: PendingPublish, until: float) -> None:
        """Send what is queued, and receive the answers."""
        with self._lock:
            self._is_sending = False
            take_batch(self._queue, self._taken, self._max_bytes, one_command=False)
        taken = self._taken
        batches = self._batches = self._divide(taken, mine)
        try:
            self._is_sending = True
            conn = self._node.send_batches(batches, until)
        except NSQError as exc:
            Batch(taken, self._lock).settle(PublishOutcome.NOT_READ, exc)
            return
        self._taken = []
        if len(mine.body) > _LARGE:
            conn.wake_reader()
        else:
            for batch in batches:
                if not batch.is_settled():
                    conn.receive_until(Batch, batch.is_settled, until)
        if not mine.is_done:  # another thread receives
            mine.wake.acquire(timeout=max(0.0, until - time.monotonic()))
            if not mine.is_done:
                self._node.on_no_answer()
        others = [one for one in taken if one.is_done and one is not mine]
        if others and mine.is_done:
            self._wake_in_turn(mine, others)

    def _wake_in_turn(self, mine: PendingPublish, others: list[PendingPublish]) -> None:
        """Wake the threads of these messages one after the other, and sleep until all left.

        Woken at once they would only wait for the interpreter, and be put to sleep once more.
        Meanwhile they queue their next messages.
        """
        for one, following in zip(others, [*others[1:], mine]):
            one.following = following
        mine.wake.acquire(blocking=False)
        with self._lock:
            others[0].rouse()
        mine.wake.acquire(timeout=_IN_TURN)

    def _divide(self, messages: list[PendingPublish], leader: PendingPublish) -> list[Batch]:
        """Make one command for each topic, and for each message that is to be alone."""
        groups: dict[object, list[PendingPublish]] = {}
        for one in messages:
            groups.setdefault(one if one.alone else one.topic, []).append(one)
        return [Batch(group, self._lock, leader) for group in groups.values()]

    def _pass_lead(self) -> None:
        """Give the lead to the first message in the queue."""
        if self._taken:  # interrupted: else it was sent, or settled
            outcome = PublishOutcome.UNKNOWN if self._is_sending else PublishOutcome.NOT_READ
            error = ConnectError(self._node.address, "interrupted while sending")
            Batch(self._taken, self._lock).settle(outcome, error)
        with self._lock:
            self._taken = []
            for batch in self._batches:
                batch.dismiss_leader()
            self._batches = []
            successor = self._queue[0] if self._queue else None
            if successor is not None:
                successor.rouse()
            self._leader = successor

    def _withdraw(self, mine: PendingPublish) -> bool:
        """Remove a message that is still queued; False where it may have been sent."""
        with self._lock:
            if mine in self._queue:
                mine.outcome = PublishOutcome.NOT_READ
                self._queue.remove(mine)
        return mine.outcome is PublishOutcome.NOT_READ

    def _leave(self, mine: PendingPublish) -> None:
        """The thread of this message waits and leads no more. May be repeated."""
        if not mine.is_done:
            self._withdraw(mine)
        if self._leader is mine:
            self._pass_lead()
