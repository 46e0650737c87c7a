"""``FlowControl``: performs what ``rdy`` and ``backoff`` decide, for one consumer.

It decides under its lock and sends after it, always without waiting, because readers, workers
and the timer all come through here. RDY that did not fit into the socket is left to a background
task.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from nsqclient.consumer.backoff import Backoff, Outcome, Phase
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.rdy import (
    WINDOW, LevelReason, RdyDistributor, RdyLevel, Snapshot,
)
from nsqclient.consumer.nsqd_subscription import NsqdSubscription
from nsqclient.display import counted
from nsqclient.message import Message
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import LineLimit

#: Seconds until the next look while some connection waits for its part of max_in_flight, and all
#: levels have settled: handlers are busy with old messages.
_FIRST_RETRY, _LAST_RETRY = 0.05, 0.4
#: Messages that nobody answered are forgotten this many seconds after their deadline.
_ORPHAN_AGE = 60.0
#: A connection counts as starved from this part of its RDY on; it anticipates (client guide).
_STARVED = 0.85


S = TypeVar("S", bound=NsqdSubscription)


class _StrategyError(Exception):
    """The user's ``backoff_strategy`` raised; the cause says what."""


class FlowControl(Generic[S]):
    """The RDY and the backoff of all connections of one consumer.

    Args:
        workers: how many threads handle messages, for the level; None: they are not handled by
            threads of this consumer, and ``max_in_flight`` is the level.

    Life: ``start()`` after the timer was started; ``stop()`` raises no RDY any more.
    Threads: every method, any thread; none waits for a socket.
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
        self._log = context.log
        self._clock = clock
        buffer_timeout = max(config.output_buffer_timeout, 0.0) or 0.25
        #: Seconds after which a lowered RDY is surely in force.
        self.settle_time: float = 2 * buffer_timeout
        self._config = config
        self._timer = context.timer
        self._run_in_background = context.run_in_background
        self._on_phase = on_phase
        self._lock = Lock()
        self._distributor = RdyDistributor(  # guarded by _lock, as all below
            self.settle_time, config.low_rdy_idle_timeout, config.low_rdy_timeout, rng,
        )
        self._backoff = Backoff(
            lambda attempt: self._backoff_delay(attempt, rng), config.max_backoff_duration
        )
        #: The ceiling on messages. Written under _lock.
        self.max_in_flight: int = config.max_in_flight
        #: Those that are attached; replaced as a whole.
        self.subscriptions: tuple[S, ...] = ()
        self._workers = workers or 0
        #: Loops that take messages; changed by single calls, which no signal interrupts.
        self.loops: set[object] = set()
        self._share = 0.0 if workers is None else config.rdy_share_of_timeout
        self._level = RdyLevel(self._share)
        #: Seconds that handlers took: whoever runs one appends.
        self.handler_times: deque[float] = self._level.handler_times
        #: The messages that are being handled, and since when: whoever handles one notes it.
        self.running: dict[Message, float] = {}
        #: Whether the level is below max_in_flight. Then each handler is timed, else one of those
        #: that arrived together: ``times_handlers``, set by readers, until a worker has done so.
        self.is_limited: bool = False
        self.times_handlers: bool = True
        #: Whether readers are to call ``on_arrival``; read without the lock.
        self.counts_arrivals: bool = False
        self._arrived = 0  # messages; by the readers without the lock: a lost count delays a look
        self._look_at = 0  # when the level may rise, as a number of messages
        self._is_look_scheduled = False
        self._hold_again = -math.inf  # when a hold is to be renewed; read without the lock
        self._level_lines = LineLimit(2)
        self._phases: deque[tuple[Phase, float]] = deque()  # to be reported
        self._is_reporting = False
        #: ``set_paused(True)`` is in force, or there is no loop where there may be some.
        self.is_paused: bool = False
        #: Too many bytes wait; call ``update()`` after a change.
        self.is_held: bool = False
        self._stopped = False  # written without the lock
        self._waits_until = 0.0  # when the wait of the backoff is over, at the latest
        self._retry_is_due = False
        self._retry_delay = _FIRST_RETRY
        #: True while results matter to the backoff; read without the lock by workers.
        self.is_backing_off: bool = False

    @property
    def phase(self) -> Phase:
        """Where the backoff is."""
        return self._backoff.phase

    @property
    def backoff_counter(self) -> int:
        """Failures that are not made good yet."""
        return self._backoff.counter

    @property
    def level(self) -> int:
        """How many messages may be in flight now."""
        return min(self._level.value, self.max_in_flight)

    @property
    def level_reason(self) -> LevelReason:
        """What decides the level."""
        return self._level.reason if self._share else LevelReason.OFF

    @property
    def handler_time(self) -> float | None:
        """Seconds that the slowest of the last handlers took."""
        return self._level.handler_time

    def start(self) -> None:
        """Begin the regular looks at how RDY is shared."""
        self._timer.schedule(self._config.rdy_redistribute_interval, self._redistribute)

    def stop(self) -> None:
        """Raise no RDY any more. CLS is what ends the flow on each connection."""
        # Without the lock: a signal handler that waits for the stop may have interrupted the
        # thread that holds it.
        self._stopped = True

    def attach(self, sub: S) -> None:
        """Take a new connection in and give it its share."""
        with self._lock:
            sub.rdy_state = self._distributor.add(sub, sub.max_rdy, self._clock())
            self.subscriptions = (*self.subscriptions, sub)
        self.update()

    def detach(self, sub: S) -> None:
        """Forget a connection and give its share to the others."""
        with self._lock:
            self._distributor.remove(sub)
            self.subscriptions = tuple(
                other for other in self.subscriptions if other is not sub)
        self.update()

    def retire(self, sub: S) -> None:
        """Give a connection that is being replaced no more RDY."""
        with self._lock:
            if sub.rdy_state is not None:
                sub.rdy_state.max_rdy = 0
        self.update()

    def set_max_in_flight(self, count: int) -> None:
        """Change the ceiling; 0 stops the flow."""
        with self._lock:
            self.max_in_flight = count
        self.update()

    def set_paused(self, paused: bool) -> None:
        """Stop the flow, or let it go on."""
        with self._lock:
            self.is_paused = paused
        self.update()

    def begin_loop(self, loop: object) -> None:
        """A loop takes messages in place of a worker, until ``end_loop(loop)``.

        While there is none the flow stops: messages that nobody takes would expire in our queue,
        one attempt after the other.
        """
        self.loops.add(loop)
        self._apply_loops()

    def end_loop(self, loop: object) -> None:
        """It has ended. Idempotent."""
        self.loops.discard(loop)
        self._apply_loops()

    def _apply_loops(self) -> None:
        with self._lock:  # of several threads the last one sees what all of them changed
            self._workers = len(self.loops)
            self.is_paused = not self.loops
        self.update()

    # -- the level

    def on_arrival(self, count: int) -> None:
        """Messages were queued. By each reader, while ``counts_arrivals``."""
        self._arrived += count
        if not self._is_look_scheduled or self._arrived >= self._look_at:
            self.update()

    def hold(self, seconds: float | None = None) -> bool:
        """A handler keeps messages on purpose; it is to be said again within a msg_timeout.

        Returns: whether the level has risen.
        """
        now, before = self._clock(), self.level
        if now < self._hold_again or not self._share:
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
        """The shortest of all connections. Needs _lock."""
        return min((sub.msg_timeout for sub in self.subscriptions), default=60.0)

    def _log_level(self) -> None:
        level = self.level
        line_level = self._level_lines.level(logging.INFO)
        if self._level.reason is LevelReason.HANDLER_TIME:
            self._log.log(
                line_level,
                "%d in flight at most instead of max_in_flight %d: handlers take up to %.3g s, and"
                " messages would expire in the queue",
                level, self.max_in_flight, self._level.slowest)
        else:
            self._log.log(
                line_level, "max_in_flight applies again: %d in flight at most", level)

    def _decide_level(self, now: float) -> None:
        """Needs _lock."""
        level = self._level
        if not self._share:
            level.value = self.max_in_flight
            return
        began = min(self.running.copy().values(), default=now)
        level.look(now, Snapshot(
            self.max_in_flight, self._workers or 1, len(self._distributor.states),
            self._msg_timeout(), self._arrived, now - began,
        ))
        if self.running and not self._is_look_scheduled:
            # Nothing else is heard of a handler that hangs.
            self._timer.schedule(self._msg_timeout() * self._share / 2, self._look)
            self._is_look_scheduled = True
        self._look_at = self._arrived + min(level.value, WINDOW)
        self.is_limited = level.value < self.max_in_flight
        self.counts_arrivals = self._workers < self.max_in_flight and (
            self.is_limited or not self._is_look_scheduled)

    def on_result(self, outcome: Outcome) -> None:
        """Take the result of a message, before its answer is written.

        RDY goes out before FIN or REQ, so that a test with RDY 1 gives one message only.
        """
        if outcome is not Outcome.FAILURE and not self.is_backing_off:
            return  # nothing to make good: the common case takes no lock
        try:
            before, after, wait, counter = self._take_result(outcome)
        except _StrategyError as exc:  # the message must be answered all the same
            self._log.error(
                "backoff_strategy failed: no backoff for this failure", exc_info=exc.__cause__)
            return
        if wait is not None:
            self._log.warning(
                "backing off for %.3g s after %s: handlers raised or requeued; raise"
                " Requeue(backoff=False) for failures that should not delay other messages",
                wait, counted(counter, "failure"))
        elif before is not after:
            self._log.info("backoff ended, receiving at full rate")
        else:
            return
        self.update()
        self._run_in_background(self._report_phases)

    def _backoff_delay(self, attempt: int, rng: random.Random) -> float:
        """Ask the strategy. What a signal handler raises in one of ours goes to the caller."""
        if not callable(self._config.backoff_strategy):
            return self._config.backoff_delay(attempt, rng)
        try:
            return self._config.backoff_delay(attempt, rng)
        except Exception as exc:  # the user's code
            raise _StrategyError from exc

    def _take_result(self, outcome: Outcome) -> tuple[Phase, Phase, float | None, int]:
        """Return the phases before and after, the wait that begins, the failures so far."""
        with self._lock:
            before = self._backoff.phase
            wait = self._backoff.on_result(outcome)
            after = self._backoff.phase
            self.is_backing_off = after is not Phase.FLOWING
            if wait is not None:
                # Here, so that an exception of a signal handler finds no wait without an end. Where
                # it comes before this is done, the tick ends the wait.
                self._waits_until = self._clock() + wait
                self._timer.schedule(wait, self._on_wait_over)
            if wait is not None or before is not after:
                self._phases.append((after, wait or 0.0))
            return before, after, wait, self._backoff.counter

    def _on_wait_over(self) -> None:
        with self._lock:
            if self._backoff.phase is not Phase.WAITING or self._clock() < self._waits_until:
                return  # the tick ended it, and maybe another has begun
            self._backoff.on_wait_over()
            self.is_backing_off = True
            self._phases.append((Phase.TESTING, 0.0))
        self.update()
        self._run_in_background(self._report_phases)

    def _report_phases(self) -> None:
        """Report phases in their order, one thread for all. On a background thread."""
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

    def _redistribute(self) -> None:
        self._timer.schedule(self._config.rdy_redistribute_interval, self._redistribute)
        before = self._clock() - _ORPHAN_AGE
        for sub in self.subscriptions:
            sub.forget_orphans(before)
        self.update()
        # The next two do nothing, unless a thread of the user's was interrupted.
        self._on_wait_over()
        self._post(self.subscriptions)

    def update(self) -> None:
        """Look at all connections and send the RDY that has to change."""
        try:
            with self._lock:
                before = self._level.reason
                changes = self._decide()
                is_news = self._level.reason is not before
            self._post(changes)
        except BaseException:  # of a signal handler: what was decided may not be sent
            self._timer.schedule(0.0, lambda: self._post(self.subscriptions))
            raise
        if is_news:
            self._log_level()

    def _post(self, subs: Iterable[S]) -> None:
        for sub in subs:
            if not sub.post_rdy():
                self._run_in_background(sub.flush_rest)

    def _decide(self) -> list[S]:
        """Decide, and see to the next look. Needs _lock."""
        if self._stopped:
            return []
        now = self._clock()
        distributor = self._distributor
        for state in distributor.states.values():
            state.in_flight = state.key.count_in_flight(now)
        self._decide_level(now)
        level = self._level.value
        ceiling = self.max_in_flight
        if self.is_paused or self.is_held or self._backoff.phase is Phase.WAITING:
            ceiling = 0
        testing = self._backoff.phase is Phase.TESTING
        changes = distributor.decide(now, ceiling, level=level, only_one=testing)
        if changes:
            self._retry_delay = _FIRST_RETRY
        if not self._retry_is_due and distributor.wants_more(
            now, ceiling, level=level, only_one=testing
        ):
            settled = distributor.next_settled(now)
            delay = self._retry_delay if settled is None else settled - now
            self._timer.schedule(delay, self._retry)
            self._retry_is_due = True  # not before: the call may be interrupted
            self._retry_delay = min(2 * self._retry_delay, _LAST_RETRY)
        return [state.key for state in changes]

    def _retry(self) -> None:
        with self._lock:
            self._retry_is_due = False
        self.update()

    def is_starved(self) -> bool:
        """Return whether some connection has nearly all out that its RDY allows."""
        if self.hold():
            return False  # RDY is raised at this moment
        now = self._clock()
        return any(
            0 < sub.count_in_flight(now) >= math.floor(count * _STARVED)
            for sub, count in self.rdy_by_connection().items()
        )

    def rdy_by_connection(self) -> dict[S, int]:
        """The RDY that was sent last on each connection."""
        with self._lock:
            return dict(
                (sub, sub.rdy_state.rdy) for sub in self.subscriptions
                if sub.rdy_state is not None
            )
