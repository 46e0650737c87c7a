"""``Shutdown``: stops a consumer in bounded time and requeues unhandled messages.

1. Dials and lookups end; RDY is not raised any more.
2. CLS is sent on each connection. nsqd sends no more messages and answers CLOSE_WAIT.
3. Messages that no handler has seen are requeued at once (REQ 0, no backoff), including those that
   arrive before CLOSE_WAIT. ``on_stop`` is called.
4. Up to the deadline, running handlers finish, a last batch is handled, and async messages are
   answered. Readers continue to answer heartbeats.
5. The last FINs are sent, the connections closed, and the threads joined.

These steps run in a thread of their own. ``stop()`` may be called in a signal handler while the
interrupted thread holds a lock of the consumer: only that thread waits, until its deadline.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.connections import ConnectionManager
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.processor import MessageProcessor
from nsqclient.consumer.stats import ClosedConnectionTotals, ConnectionCounters, StopReport
from nsqclient.consumer.subscription import NsqdSubscription, Subscription
from nsqclient.display import counted
from nsqclient.message import Message
from nsqclient.protocol.events import Endpoint
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dialing import DialScheduler
from nsqclient.runtime.threads import LibraryThread
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool

S = TypeVar("S", bound=NsqdSubscription)

#: Seconds for each part of the last step, even if the handlers use up the whole timeout.
_GRACE = 0.4
#: stop() returns at most this many seconds after its timeout.
_LONGEST = 0.95


class Shutdown:
    """Stops one consumer, once. Threads: any."""

    def __init__(
        self,
        context: ConsumerContext,
        connections: ConnectionManager[Subscription],
        flow: FlowControl[Subscription],
        processor: MessageProcessor,
        background: WorkerPool[Callable[[], None]],
        batch: BatchHandler | None = None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = context.log
        self.totals: ClosedConnectionTotals = ClosedConnectionTotals()
        self._connections = connections
        self._flow = flow
        self._processor = processor
        self._timer = context.timer
        self._background = background
        self._batch = batch
        self._on_stop = on_stop
        self.has_begun: bool = False
        # Plain locks, because stop() may be called in a signal handler. The thread that acquires
        # the first one runs the steps. The second one is held until they are over.
        self._first = threading.Lock()
        self._over = threading.Lock()
        self._over.acquire()
        self._is_over = False
        self._report = StopReport(0, 0, 0, complete=False)

    def stop(self, timeout: float, wait: bool) -> StopReport:
        """Stop within ``timeout`` seconds. Later calls wait for the first one."""
        deadline = Deadline(timeout)
        self.has_begun = True
        if not self._first.locked():  # otherwise the steps are running
            try:
                LibraryThread(self._run, "nsq-stop", (deadline,)).launch()
            except RuntimeError:  # no thread can be started
                if sys.is_finalizing():  # no other thread runs
                    self._connections.abandon()
                    return self._report
                self._run(deadline)
        if wait and not self._is_over:
            longest = min(deadline.at_most(timeout) + _LONGEST, threading.TIMEOUT_MAX)
            if self._over.acquire(timeout=longest):
                self._over.release()
        return self._report

    def _run(self, deadline: Deadline) -> None:
        if not self._first.acquire(blocking=False):
            return  # a second call, at the same time
        subs: list[Subscription] = []
        report = self._report
        try:
            try:  # a failure here must not skip step 5
                report = self._end_work(deadline, subs)
            except Exception:
                self._log.exception("stop: a step failed")
            self._report = dataclasses.replace(report, threads=self._end_all(subs))
            abandoned = report.abandoned
            self._log.log(
                logging.WARNING if abandoned else logging.INFO,
                "stopped: while stopping %d finished, %d requeued unstarted, %d abandoned%s",
                report.finished, report.requeued_unstarted, abandoned,
                "; nsqd delivers these again; a longer stop timeout avoids this" if abandoned
                else "",
            )
        except Exception:
            self._log.exception("stop failed")
        finally:
            self._is_over = True
            self._over.release()

    def _end_work(self, deadline: Deadline, subs: list[Subscription]) -> StopReport:
        """Steps 1 to 4; ``subs`` receives the connections to close."""
        before = self._total()
        self._log.debug("stop: no more dials, no more RDY")
        subs += self._connections.stop()
        self._flow.stop()
        held = self._open_messages(subs)
        draining = post_cls(subs)
        self._processor.requeues_incoming = True
        self._background.put(self._on_stop)
        self._processor.requeue_queued()
        # Wait at most a second for an nsqd that does not answer.
        Deadline(deadline.at_most(1.0)).wait_until(
            lambda: all(sub.was_drained or sub.is_lost for sub in draining))
        # A message may have been queued between the last look and CLOSE_WAIT.
        self._processor.requeue_queued()
        self._log.debug("stop: waiting for %s", counted(len(self._processor.running), "handler"))
        if self._batch is not None:
            self._processor.run_on_worker(self._batch.flush)
        self._processor.workers.stop(deadline)
        if self._batch is not None:
            self._batch.requeue_pending()
        self._processor.requeue_queued()
        deadline.wait_until(lambda: not self._open_messages(subs))
        for sub in subs:
            sub.flush(waits=False)
        after = self._total()
        # A connection that was lost has no messages any more, and loses the later answers.
        unanswered = [message for message in held | self._open_messages(subs)
                      if not message.has_responded]
        return StopReport(
            finished=after.finished - before.finished,
            requeued_unstarted=after.requeued_unstarted - before.requeued_unstarted,
            abandoned=len(unanswered) + after.lost_answers - before.lost_answers,
        )

    def _total(self) -> ConnectionCounters:
        return self.totals.total(sub.counters for sub in self._connections.subscriptions())

    def _end_all(self, subs: list[Subscription]) -> tuple[str, ...]:
        """Step 5, in about a second at most. Returns the names of threads that did not end."""
        self._log.debug("stop: closing %s", counted(len(subs), "connection"))
        stuck = close_all(
            subs, self._timer, self._background, [self._connections.dials],
            self._processor.workers)
        if stuck:
            self._log.warning(
                "stop: these threads did not end in time: %s (a slow handler or lookup; they are"
                " daemon threads and end with the process)", ", ".join(stuck),
            )
        return tuple(stuck)

    def _open_messages(self, subs: list[Subscription]) -> set[Message]:
        now = time.monotonic()
        messages = set(self._processor.running)
        return messages.union(*(sub.in_flight.unanswered(now) for sub in subs))


def post_cls(subs: Iterable[S]) -> list[S]:
    """Send CLS on open connections and return them. Close the lost and unopened ones."""
    draining = []
    for sub in subs:
        if sub.post_cls():
            draining.append(sub)
        else:
            sub.conn.close()
    return draining


def close_all(
    subs: Sequence[NsqdSubscription], timer: Timer, background: WorkerPool[Callable[[], None]],
    dials: Iterable[DialScheduler[Endpoint]], workers: WorkerPool[Message] | None = None,
) -> list[str]:
    """Close connections and join the threads of a consumer, in about a second at most.

    Returns: the names of threads that did not end, such as one that hangs in a lookup.
    """
    rest = Deadline(_GRACE)
    for sub in subs:
        sub.conn.drain(rest.at_most(_GRACE))
        sub.conn.close()
    # Signal all threads before joining: one that hangs may use up the time.
    timer.stop(Deadline(0))
    background.take_all()
    background.stop(Deadline(0))
    rest = Deadline(_GRACE)
    stuck = [f"nsq-reader-{sub.address}" for sub in subs if not sub.conn.join(rest)]
    if not timer.stop(rest):
        stuck.append("nsq-timer")
    for each in dials:
        stuck += each.join(rest)
    stuck += background.stop(rest)
    return stuck if workers is None else stuck + workers.stop(rest)
