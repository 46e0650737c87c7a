"""``FlowControl``: carries out the decisions of ``rdy`` and ``backoff`` for one consumer.

Decides under its lock and sends afterwards, without waiting, because readers, workers and the timer
call it.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from nsqclient.consumer.backoff import Backoff, Outcome, Phase
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.rdy import (
    WINDOW, LevelReason, RdyDistributor, RdyLevel, Snapshot,
)
from nsqclient.consumer.subscription import NsqdSubscription
from nsqclient.display import counted
from nsqclient.message import Message
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import LineLimit

#: Seconds until the next attempt to raise RDY if handlers are busy; doubles with each attempt.
_FIRST_RETRY, _LAST_RETRY = 0.05, 0.4
#: Seconds after its deadline at which an unanswered message is forgotten.
_ORPHAN_AGE = 60.0
#: Fraction of its RDY above which a connection counts as starved (client guide).
_STARVED = 0.85

S = TypeVar("S", bound=NsqdSubscription)


class _StrategyError(Exception):
    """The user's ``backoff_strategy`` raised; see ``__cause__``."""


class BackoffControl:
    """The backoff of one consumer: takes results, ends waits, and reports phases in order.

    Args:
        lock: FlowControl's.
        update: sends the RDY of a new phase.
        on_phase: called with each new phase and the seconds of a wait, on a background thread.

    Threads: any. Never blocks.
    """

    def __init__(
        self, context: ConsumerContext, lock: Lock, update: Callable[[], None],
        on_phase: Callable[[Phase, float], None], clock: Callable[[], float], rng: random.Random,
    ) -> None:
        self._context = context
        self._lock = lock
        self._update = update
        self._on_phase = on_phase
        self._clock = clock
        self._rng = rng
        self._backoff = Backoff(self._delay, context.config.max_backoff_duration)
        self._wait_ends_at = 0.0  # guarded by _lock
        self._phases: deque[tuple[Phase, float]] = deque()  # to report
        self._is_reporting = False
        #: False while flowing: only failures matter then. Workers read it without the lock.
        self.is_active: bool = False

    @property
    def phase(self) -> Phase:
        return self._backoff.phase

    @property
    def counter(self) -> int:
        return self._backoff.counter

    def on_result(self, outcome: Outcome) -> None:
        """Record the result of a message, before its answer is sent.

        RDY is sent before FIN or REQ, so that a test with RDY 1 gets only one message.
        """
        if outcome is not Outcome.FAILURE and not self.is_active:
            return  # the common case takes no lock
        log = self._context.log
        try:
            before, after, wait = self._take_result(outcome)
        except _StrategyError as exc:  # the message must be answered all the same
            log.error("backoff_strategy failed: no backoff for this failure",
                      exc_info=exc.__cause__)
            return
        if wait is not None:
            log.warning(
                "backing off for %.3g s after %s: handlers raised or requeued; raise"
                " Requeue(backoff=False) for failures that should not delay other messages",
                wait, counted(self.counter, "failure"))
        elif before is not after:
            log.info("backoff ended, receiving at full rate")
        else:
            return
        self._update()
        self._context.run_in_background(self._report_phases)

    def _delay(self, attempt: int) -> float:
        config = self._context.config
        if not callable(config.backoff_strategy):
            return config.backoff_delay(attempt, self._rng)
        try:
            return config.backoff_delay(attempt, self._rng)
        except Exception as exc:  # the user's code
            raise _StrategyError from exc

    def _take_result(self, outcome: Outcome) -> tuple[Phase, Phase, float | None]:
        with self._lock:
            before = self.phase
            wait = self._backoff.on_result(outcome)
            after = self.phase
            self.is_active = after is not Phase.FLOWING
            if wait is not None:
                self._wait_ends_at = self._clock() + wait
                self._context.timer.schedule(wait, self.end_wait)
            if wait is not None or before is not after:
                self._phases.append((after, wait or 0.0))
            return before, after, wait

    def end_wait(self) -> None:
        with self._lock:
            if self.phase is not Phase.WAITING or self._clock() < self._wait_ends_at:
                return  # not waiting, or a new wait has begun
            self._backoff.on_wait_over()
            self.is_active = True
            self._phases.append((Phase.TESTING, 0.0))
        self._update()
        self._context.run_in_background(self._report_phases)

    def _report_phases(self) -> None:
        """Report phases in order, in one thread at a time."""
        while True:
            with self._lock:
                if self._is_reporting or not self._phases:
                    return
                self._is_reporting = True
                phase, wait = self._phases.popleft()
            try:
                self._on_phase(phase, wait)
            finally:
                self._is_reporting = False


class FlowControl(Generic[S]):
    """The RDY of all connections of one consumer.

    Args:
        workers: number of threads that handle messages. None: unknown, and the level is
            ``max_in_flight``.

    Lifecycle: ``start()`` once the timer is running; ``stop()`` ends all raises of RDY.
    Threads: any. Never blocks.
    """

    def __init__(
        self,
        context: ConsumerContext,
        on_phase: Callable[[Phase, float], None],
        *,
        workers: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        rng = random.Random() if rng is None else rng
        config = context.config
        self._context = context
        self._clock = clock
        #: Seconds after which a lowered RDY is certainly in force.
        self.settle_time: float = 2 * (max(config.output_buffer_timeout, 0.0) or 0.25)
        self._lock = Lock()
        self.backoff: BackoffControl = BackoffControl(
            context, self._lock, self.update, on_phase, clock, rng)
        self._distributor = RdyDistributor(  # guarded by _lock, as all below
            self.settle_time, config.low_rdy_idle_timeout, config.low_rdy_timeout, rng,
        )
        self.max_in_flight: int = config.max_in_flight
        self.subscriptions: tuple[S, ...] = ()
        self._workers = workers  # None: unknown; 0: no loop over messages runs
        #: Running loops over messages; changed by atomic calls.
        self.loops: set[object] = set()
        self._level = RdyLevel(0.0 if workers is None else config.rdy_share_of_timeout)
        #: Messages being handled -> since when. Written by the thread that handles the message.
        self.running: dict[Message, float] = {}
        #: The level is below max_in_flight. Every handler is then timed, otherwise one for each
        #: read: readers set ``times_handlers``, the next worker clears it.
        self.is_limited: bool = False
        self.times_handlers: bool = True
        #: Whether readers should call ``on_arrival``; read without the lock.
        self.counts_arrivals: bool = False
        self._arrived = 0  # messages; not locked: a lost count only delays a check
        self._look_at = 0  # value of _arrived at which the level may rise
        self._is_look_scheduled = False
        self._hold_again = -math.inf  # when a hold must be renewed; read without the lock
        self._level_lines = LineLimit(2)
        self.is_paused: bool = False
        #: Too many bytes are queued. Call ``update()`` after a change.
        self.is_held: bool = False
        self._stopped = False  # written without the lock
        self._is_retry_scheduled = False
        self._retry_delay = _FIRST_RETRY

    @property
    def level(self) -> int:
        return min(self._level.value, self.max_in_flight)

    @property
    def level_reason(self) -> LevelReason:
        return self._level.reason if self._level.share else LevelReason.OFF

    @property
    def handler_times(self) -> deque[float]:
        return self._level.handler_times

    def start(self) -> None:
        self._context.timer.schedule(
            self._context.config.rdy_redistribute_interval, self._redistribute)

    def stop(self) -> None:
        """Stop raising RDY."""
        # Without the lock: a signal handler that stops may have interrupted its holder.
        self._stopped = True

    def attach(self, sub: S) -> None:
        with self._lock:
            sub.rdy_state = self._distributor.add(sub, sub.max_rdy, self._clock())
            self.subscriptions = (*self.subscriptions, sub)
        self.update()

    def detach(self, sub: S) -> None:
        with self._lock:
            self._distributor.remove(sub)
            self.subscriptions = tuple(
                other for other in self.subscriptions if other is not sub)
        self.update()

    def retire(self, sub: S) -> None:
        """Give no more RDY to a connection that is being replaced."""
        with self._lock:
            if sub.rdy_state is not None:
                sub.rdy_state.max_rdy = 0
        self.update()

    def set_max_in_flight(self, count: int) -> None:
        with self._lock:
            self.max_in_flight = count
        self.update()

    def set_paused(self, paused: bool) -> None:
        with self._lock:
            self.is_paused = paused
        self.update()

    def begin_loop(self, loop: object) -> None:
        """Count a loop that takes the place of a worker, until ``end_loop(loop)``.

        While no loop runs the flow is stopped, because messages would expire in the queue.
        """
        self.loops.add(loop)
        self._apply_loops()

    def end_loop(self, loop: object) -> None:
        """Idempotent."""
        self.loops.discard(loop)
        self._apply_loops()

    def _apply_loops(self) -> None:
        with self._lock:  # the last of several threads sees all changes
            self._workers = len(self.loops)
        self.update()

    def on_arrival(self, count: int) -> None:
        """Messages were queued. Called by readers while ``counts_arrivals`` is True."""
        self._arrived += count
        if not self._is_look_scheduled or self._arrived >= self._look_at:
            self.update()

    def hold(self, seconds: float | None = None) -> bool:
        """A handler keeps messages on purpose: the level is max_in_flight for a msg_timeout.

        Returns: True if the level has risen.
        """
        now, before = self._clock(), self.level
        if now < self._hold_again or not self._level.share:
            return False
        with self._lock:
            was_held = self._level.is_held(now)
            seconds = self._msg_timeout() if seconds is None else seconds
            self._level.hold(now + seconds)
            self._hold_again = now + seconds / 2
        if not was_held:
            self.update()
        return self.level > before

    def _look(self) -> None:
        with self._lock:
            self._is_look_scheduled = False
        self.update()

    def _msg_timeout(self) -> float:
        return min((sub.msg_timeout for sub in self.subscriptions), default=60.0)

    def _log_level(self) -> None:
        log, line_level = self._context.log, self._level_lines.level(logging.INFO)
        if self._level.reason is LevelReason.HANDLER_TIME:
            log.log(
                line_level,
                "%d in flight at most instead of max_in_flight %d: handlers take up to %.3g s, and"
                " messages would expire in the queue",
                self.level, self.max_in_flight, self._level.slowest)
        else:
            log.log(
                line_level, "max_in_flight applies again: %d in flight at most", self.level)

    def _decide_level(self, now: float) -> None:
        level = self._level
        if not level.share:
            level.value = self.max_in_flight
            return
        began = min(self.running.copy().values(), default=now)
        level.look(now, Snapshot(
            self.max_in_flight, self._workers or 1, len(self._distributor.states),
            self._msg_timeout(), self._arrived, now - began,
        ))
        if self.running and not self._is_look_scheduled:
            # A handler that hangs reports nothing.
            self._context.timer.schedule(self._msg_timeout() * level.share / 2, self._look)
            self._is_look_scheduled = True
        self._look_at = self._arrived + min(level.value, WINDOW)
        self.is_limited = level.value < self.max_in_flight
        self.counts_arrivals = (self._workers or 0) < self.max_in_flight and (
            self.is_limited or not self._is_look_scheduled)

    def _redistribute(self) -> None:
        self._context.timer.schedule(
            self._context.config.rdy_redistribute_interval, self._redistribute)
        before = self._clock() - _ORPHAN_AGE
        for sub in self.subscriptions:
            sub.forget_orphans(before)
        self.update()
        # A signal handler's exception may have interrupted an earlier call of these two.
        self.backoff.end_wait()
        for sub in self.subscriptions:
            sub.post_rdy()

    def update(self) -> None:
        with self._lock:
            before = self._level.reason is LevelReason.HANDLER_TIME
            changes = self._decide()
            is_news = before != (self._level.reason is LevelReason.HANDLER_TIME)
        for sub in changes:
            sub.post_rdy()
        if is_news:
            self._log_level()

    def _decide(self) -> list[S]:
        """Return the connections whose RDY changes, and schedule the next attempt. Needs _lock."""
        if self._stopped:
            return []
        now = self._clock()
        distributor = self._distributor
        for state in distributor.states.values():
            state.in_flight = state.key.count_in_flight(now)
        self._decide_level(now)
        level, phase = self._level.value, self.backoff.phase
        ceiling = self.max_in_flight
        if self.is_paused or self._workers == 0 or self.is_held or phase is Phase.WAITING:
            ceiling = 0
        testing = phase is Phase.TESTING
        changes = distributor.decide(now, ceiling, level=level, only_one=testing)
        if changes:
            self._retry_delay = _FIRST_RETRY
        if not self._is_retry_scheduled and distributor.wants_more(
            now, ceiling, level=level, only_one=testing
        ):
            settled = distributor.next_settled(now)
            delay = self._retry_delay if settled is None else settled - now
            self._context.timer.schedule(delay, self._retry)
            self._is_retry_scheduled = True  # not before: schedule() may be interrupted
            self._retry_delay = min(2 * self._retry_delay, _LAST_RETRY)
        return [state.key for state in changes]

    def _retry(self) -> None:
        with self._lock:
            self._is_retry_scheduled = False
        self.update()

    def is_starved(self) -> bool:
        if self.hold():
            return False  # RDY has just been raised
        now = self._clock()
        return any(
            0 < sub.count_in_flight(now) >= math.floor(count * _STARVED)
            for sub, count in self.rdy_by_connection().items()
        )

    def rdy_by_connection(self) -> dict[S, int]:
        with self._lock:
            return dict(
                (sub, sub.rdy_state.rdy) for sub in self.subscriptions
                if sub.rdy_state is not None
            )
