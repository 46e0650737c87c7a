"""``Backpressure``: stops the flow while the messages that wait for a worker take too much memory.

It performs what :mod:`nsqclient.flow.queue_limit` decides, for one consumer. What counts as
waiting:

- every message in the queue, a second delivery of the same id, and one that has expired, included;
- messages of a partition that wait for the one before them;
- when handlers have left more messages unanswered than ``max_in_flight`` (``enable_async()``, or
  after timeouts), those too.

Messages that are being handled do not count: ``max_in_flight`` limits them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from operator import attrgetter

from nsqclient.consuming.flow_control import FlowControl
from nsqclient.consuming.handling import Handling
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.subscription import Subscription
from nsqclient.errors import RemoteProtocolError
from nsqclient.flow.queue_limit import MESSAGE_OVERHEAD, QueueLimit
from nsqclient.message import Message
from nsqclient.runtime.memory import release_memory
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool

#: Seconds between two looks while the flow is held. A look at a long queue takes tens of
#: milliseconds; the next one comes no sooner than so many times that.
_INTERVAL, _REST = 0.05, 10
#: Seconds in which the log tells only once that the flow is held.
_LOG_INTERVAL = 60.0

#: With a limit of so many bytes, memory is given back to the system when a hold ends: at least
#: half of the limit was freed.
_RELEASED_FROM = 64 * 1024 * 1024

_body_of = attrgetter("body")
_header_size_of = attrgetter("_header_size")


class Backpressure:
    """Holds RDY at 0 while more than ``max_queued_bytes`` wait, until half of it is left.

    Args:
        flow: sets RDY.
        run_chore: runs what takes a while on a background thread.
        subscriptions: returns the connections that are open.
        on_turned: called after the queue was gone through: a stop that began meanwhile may have
            missed a message.

    Threads: any. Its lock is the innermost; nothing is called while it is held.
    """

    def __init__(
        self,
        max_queued_bytes: int,
        flow: FlowControl,
        workers: WorkerPool[Message],
        handling: Handling,
        subscriptions: Callable[[], list[Subscription]],
        timer: Timer,
        run_chore: Callable[[Callable[[], None]], None],
        log: LifeLog,
        on_turned: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow = flow
        self._workers = workers
        self._handling = handling
        self._subscriptions = subscriptions
        self._timer = timer
        self._run_chore = run_chore
        self._log = log
        self._on_turned = on_turned
        self._clock = clock
        self._lock = threading.Lock()
        self._limit = QueueLimit(max_queued_bytes, flow.settle_time)  # changed under _lock
        self._look_is_due = False  # guarded by _lock
        self._logged = float("-inf")  # when the log told of a hold; guarded by _lock
        self._told = False  # the log has told of this hold; guarded by _lock

    @property
    def is_held(self) -> bool:
        """Tell whether RDY is 0 because of ``max_queued_bytes``."""
        return self._limit.is_held

    def queued_bytes(self) -> int:
        """Measure what waits for a worker."""
        return _size(self._waiting())

    # -- from the readers

    def accepts(self, sub: Subscription, count: int, size: int) -> bool:
        """Tell whether messages that arrived may be queued; else they must go back to nsqd.

        Raises:
            RemoteProtocolError: the connection must end, because its nsqd ignores RDY 0.
        """
        limit = self._limit
        if limit.held_since is None:
            return True
        rdy = sub.highest_rdy
        with self._lock:
            is_flood = limit.is_flood(
                sub, count, size + count * MESSAGE_OVERHEAD, rdy, self._clock()
            )
            accepted = limit.accepts(sub, len(self._subscriptions()))
        if is_flood:
            raise RemoteProtocolError(
                f"{sub.address} sends without regard to RDY: more messages came later than"
                f" {limit.settle_time:g} s after RDY 0 than RDY {rdy} explains"
            )
        return accepted

    def on_queued(self, count: int, size: int) -> None:
        """Messages were put into the queue."""
        with self._lock:
            is_due = self._limit.add(size + count * MESSAGE_OVERHEAD)
        if is_due:
            self._measure()

    # -- the decision and what follows from it

    def _measure(self) -> None:
        began = self._clock()
        count, size = self._count()
        limit = self._limit
        if (limit.is_held or size > limit.limit) and self._drop_dead():
            count, size = self._count()
        now = self._clock()
        with self._lock:
            before = limit.is_held
            limit.measured(count, size, now)
            held = limit.is_held
            is_news = self._is_news(held, now) if held != before else False
            look = held and not self._look_is_due
            self._look_is_due = self._look_is_due or look
        if held != before:
            self._apply()
        if before and not held and limit.limit >= _RELEASED_FROM:
            self._run_chore(release_memory)
        if is_news and held:
            self._log.held(size, limit.limit)
        elif is_news:
            self._log.hold_ends()
        if look:
            self._timer.schedule(max(_INTERVAL, _REST * (now - began)), self._look)

    def _is_news(self, held: bool, now: float) -> bool:
        """Tell whether the log is to tell of it. Needs _lock."""
        if held:
            self._told = now - self._logged >= _LOG_INTERVAL
            if self._told:
                self._logged = now
        return self._told

    def _apply(self) -> None:
        # Of several threads the last one is right, whichever that is.
        while True:
            held = self._limit.is_held
            self._flow.set_held(held)
            if held == self._limit.is_held:
                return

    def _look(self) -> None:
        # On the timer thread, while the flow is held.
        with self._lock:
            self._look_is_due = False
        self._measure()

    def _waiting(self) -> list[Message]:
        return self._workers.items() + self._handling.set_aside()

    def _count(self) -> tuple[int, int]:
        """How many messages count as waiting, and their bytes."""
        waiting = self._waiting()
        count, size = len(waiting), _size(waiting)
        subs = self._subscriptions()
        most = max(self._flow.max_in_flight, 1)
        if sum(map(len, subs)) > most:
            queued = set(map(id, waiting))
            others = [m for sub in subs for m in sub.in_flight.messages() if id(m) not in queued]
            if len(others) > most:
                count, size = count + len(others), size + _size(others)
        return count, size

    def _drop_dead(self) -> bool:
        """Drop what waits in vain: nsqd has taken it back. Tell whether there was any."""
        now = self._clock()

        def is_dead(message: Message) -> bool:
            if message._responded:
                return False  # a task for a worker, or it was handed back
            sub = message._responder
            assert isinstance(sub, Subscription)
            return message.deadline <= now or sub.is_lost

        if not any(map(is_dead, self._waiting())):
            return False
        by_sub: dict[Subscription, list[Message]] = {}
        for message in self._workers.take_where(is_dead) + self._handling.take_aside(is_dead):
            sub = message._responder
            assert isinstance(sub, Subscription)
            by_sub.setdefault(sub, []).append(message)
        for sub, messages in by_sub.items():
            sub.drop_all_expired(messages)
        self._on_turned()
        return True


def _size(messages: list[Message]) -> int:
    """Bytes that messages take. In C, because a queue may have hundreds of thousands."""
    bodies = sum(map(len, map(_body_of, messages)))
    headers: int = sum(map(_header_size_of, messages))
    return bodies + headers + len(messages) * MESSAGE_OVERHEAD
