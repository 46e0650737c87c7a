"""``Publisher``: sends a publish in the calling thread, until its outcome is final."""

from __future__ import annotations

import itertools
import logging
import math
import random
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from nsqclient.connection.blocking import STORED, STORED_FRAME, Answer
from nsqclient.connection.exchange import exchange
from nsqclient.errors import (
    ClosedError, ConnectError, ConnectionLostError, NSQError, PublishError, ReentrantCallError,
    ServerError, as_cause,
)
from nsqclient.hints import BLOCKED, NOT_NSQD
from nsqclient.producer.nodes import NodePool, NsqdNode
from nsqclient.producer.outcome import (
    INTERVAL, INTERVAL_PART, SERVER_UNAVAILABLE, Attempts, Patience, StaleConnection, Step,
)
from nsqclient.producer.pool import C, ConnectionPool
from nsqclient.producer.stats import MAX_RECENT, Statistics
from nsqclient.protocol.client import expect_ok
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Monitor

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds between two attempts when no connected nsqd could store the message: the first pause,
#: which doubles, and the longest.
_PAUSE, _MAX_PAUSE = 0.05, 0.5
#: Seconds between two checks by ``wait_for_running()``.
_LOOK = 0.5


class Publisher:
    """Sends the publishes of one producer, each in the thread that calls. Thread-safe."""

    def __init__(
        self, nodes: NodePool, retry_unknown: bool, statistics: Statistics, sticky: bool = False
    ) -> None:
        self._nodes = nodes
        self._sticky = sticky
        self._turn = itertools.count(random.randrange(1000))
        self.retry_unknown: bool = retry_unknown
        self.statistics: Statistics = statistics
        self.is_closed: bool = False  # it begins no further call
        self._running: set[object] = set()  # one for each call under way
        self._ended = Monitor()  # close() waits for the calls under way

    # -- calls

    def run(
        self, publish: Callable[..., T], arguments: tuple[Any, ...], messages: int, size: int
    ) -> T:
        """Run and count one synchronous publish of ``messages`` messages with ``size`` bytes."""
        began = time.monotonic()
        ticket = object()
        try:
            # Before is_closed is checked: close() waits for the calls that passed the check.
            self._running.add(ticket)
            if self.is_closed:
                raise ClosedError("the producer is closed")
            result = publish(*arguments)
            recent = self.statistics.recent
            recent.append((messages, size, time.monotonic() - began))
            if len(recent) >= MAX_RECENT:
                self.statistics.add_recent()
            return result
        except PublishError as exc:
            self.statistics.count_failure(exc, messages)
            raise
        finally:
            self._running.discard(ticket)
            if self.is_closed:
                self._ended.notify_all()

    def count_running(self) -> int:
        return len(self._running)

    def wait_for_running(self, deadline: Deadline) -> bool:
        """Wait for the calls under way, after ``is_closed`` was set; False if some are left."""
        # A publish that an exception of a signal handler ends may not notify.
        while not self._ended.wait_for(lambda: not self._running, deadline.at_most(_LOOK)):
            if deadline.expired() or sys.is_finalizing():
                return False
        return True

    # -- attempts

    def publish(
        self, command: bytes, until: float, seconds: float, attempts: Attempts | None = None,
        is_async: bool = False,
    ) -> None:
        """Send a command until its outcome is final. Blocks and raises as ``Producer.publish``.

        Args:
            until: the deadline, on ``time.monotonic()``; ``seconds`` after the call.
            is_async: share a connection with other such publishes.
        """
        interval = seconds * INTERVAL_PART
        if interval > INTERVAL:
            interval = INTERVAL
        unable: list[NsqdNode] = []  # could not store the message, since the last pause
        pause = _PAUSE
        while True:
            nodes = self._nodes.connected
            if unable:
                nodes = tuple([node for node in nodes if node not in unable]) or nodes
            if nodes:
                node = nodes[0 if self._sticky else next(self._turn) % len(nodes)]
            else:
                node = self._acquire(until, attempts or self._attempts(seconds, command), is_async)
            error = self.attempt(node, command, until, interval, is_async).error
            if error is None:
                return
            attempts = attempts or self._attempts(seconds, command)
            if not isinstance(error, StaleConnection):
                attempts.on_failure(error, node.address)
                self.statistics.count_retried(attempts.messages)
            if isinstance(error, ServerError) and error.code in SERVER_UNAVAILABLE:
                unable.append(node)
                if all(other in unable for other in self._nodes.connected):
                    self._nodes.pause(min(pause, until - time.monotonic()))
                    unable, pause = [], min(2 * pause, _MAX_PAUSE)
            if time.monotonic() >= until:
                raise attempts.timed_out(error)

    def _attempts(self, seconds: float, command: bytes) -> Attempts:
        return Attempts(seconds, len(command), self.retry_unknown)

    def _acquire(self, until: float, attempts: Attempts, is_async: bool) -> NsqdNode:
        try:
            return self._nodes.acquire(Deadline(max(0.0, until - time.monotonic())), is_async)
        except ReentrantCallError:
            raise
        except NSQError as exc:
            logger.debug("no nsqd for a publish", exc_info=exc)
            error = attempts.without_nsqd(exc)
            raise error from (None if error is exc else as_cause(exc))

    def ping(self, deadline: Deadline) -> None:
        while True:
            node = self._nodes.acquire(deadline)
            pool = node.pool
            conn = pool.take(time.monotonic())
            if conn is None:
                conn = self._nodes.wait_for_connection(
                    node, pool, deadline.until, INTERVAL, lambda: _is_in_use(pool))
            if conn is not None:
                pool.idle.append(conn)
                pool.serve()
                return
            if deadline.expired():
                raise ConnectError(node.address, "no connection in time", BLOCKED)

    def attempt(
        self, node: NsqdNode, command: bytes, until: float, interval: float,
        is_async: bool = False, read_answer: Callable[[bytes], Any] = expect_ok,
        closes_after_error: bool = False, only_here: bool = False,
    ) -> Answer:
        """Send a command once, on a connection to this nsqd.

        Args:
            interval: seconds between two checks for progress.
            read_answer: returns the value of the Answer.
            closes_after_error: nsqd may not have read the whole command then.
            only_here: no other nsqd can store the message.

        Blocks: until the response, or the deadline.
        """
        pool: ConnectionPool[Any] = node.pipeline if is_async else node.pool
        began = time.monotonic()
        conn = pool.take(began)
        has_waited = conn is None
        if conn is None:
            conn = self._nodes.wait_for_connection(
                node, pool, until, math.inf if only_here else interval, lambda: _is_in_use(pool))
            if conn is None:
                return Answer(StaleConnection(
                    node.address, pool.shortage(time.monotonic() - began)))
        try:
            now = time.monotonic() if has_waited else began
            look_at = now + interval
            if look_at > until:
                look_at = until
            responses, answer, data = node.responses, STORED, None
            if conn.is_plain:
                conn.sent, data = exchange(conn.fd, command, 0, look_at - now)
            if data != STORED_FRAME:
                conn.begin(command, read_answer)
                answer = conn.wait(look_at, data) or self._wait_on(
                    node, pool, conn, only_here, Patience(
                        now, until, interval, conn.used_at, pool.silence, (0, responses)))
            node.responses += 1
            if answer.error is None and node.failures:
                node.failures = 0
            conn.used_at = time.monotonic()
            is_over = answer.error is not None and (conn.is_ended or closes_after_error)
            if is_over:
                pool.drop(conn)
        except BaseException as exc:
            is_new = conn.used_at == conn.opened_at
            try:
                pool.drop(conn)
            except BaseException:  # raised by a signal handler
                pool.drop(conn)
                raise
            if not isinstance(exc, NSQError):  # raised by a signal handler
                raise
            self._nodes.on_lost(node, exc, is_new)
            return Answer(exc)
        if is_over:
            self._nodes.on_refused(node)
            return answer
        # No call comes before it: an exception finds the connection in use, or on the stack.
        pool.idle.append(conn)
        if pool.waiting or pool.is_closed:
            pool.serve()
        return answer

    def _wait_on(
        self, node: NsqdNode, pool: ConnectionPool[C], conn: C, only_here: bool, patience: Patience
    ) -> Answer:
        """Wait for the answer as long as Patience says; raise NSQError then."""
        while True:
            now = time.monotonic()
            has_others = not only_here and any(
                other is not node for other in self._nodes.connected)
            step = patience.decide(
                now, (conn.progress, node.responses), conn.heard_at, has_others, pool.dialed_at)
            if conn.is_closed and (self.retry_unknown or not conn.has_begun):
                step = Step.REPLACED
            if step is Step.PROBE:
                pool.close_idle(patience.began)
                conn.suspected_at = now
                self._nodes.timer.wake()
            elif step is Step.STALLED:
                self._nodes.leave_stalled(node)
                pool.close_idle()
            if step is Step.SILENT:
                raise ConnectionLostError(node.address, f"silent for {pool.silence:g} s")
            if step not in (Step.WAIT, Step.PROBE):
                error = ConnectError if conn.has_begun else StaleConnection
                hint = NOT_NSQD if step in (Step.LATE, Step.STALLED) else ""
                raise error(node.address, step.value, hint)
            answer = conn.wait(patience.next_look(now))
            if answer is not None:
                return answer


def _is_in_use(pool: object) -> bool:
    """True if two calls of this thread use the pool: one interrupts the other.

    Only the stack shows it: no record could be made in the step that takes a connection.
    """
    calls = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        calls += frame.f_code in _CALLS and frame.f_locals.get("pool") is pool
        frame = frame.f_back
    return calls > 1


_CALLS = (Publisher.attempt.__code__, Publisher.ping.__code__)
