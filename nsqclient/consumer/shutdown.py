"""``Shutdown``: how a consumer stops in bounded time and requeues what it has not done.

1. No more dials and lookups; no RDY is raised.
2. CLS on each connection: nsqd sends no more messages, and answers CLOSE_WAIT.
3. Messages that no handler has seen are requeued at once (REQ 0, no backoff), also those that
   still arrive before CLOSE_WAIT. ``on_stop`` is called.
4. Running handlers finish, a last batch is handled, and messages that handlers left to others
   (``enable_async()``) are answered, up to the deadline; readers go on, so heartbeats are answered.
5. The last FINs are sent, the sockets shut down, and the threads joined.

It runs in a thread of its own, so that ``stop()`` may be called in a signal handler while the
interrupted thread holds one of our locks: only that thread waits, and never past its deadline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.connections import ConnectionManager
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.processor import MessageProcessor
from nsqclient.consumer.stats import ClosedConnectionTotals, ConnectionCounters, StopReport
from nsqclient.consumer.subscription import Subscription
from nsqclient.display import counted
from nsqclient.errors import NSQError
from nsqclient.log_records import log_fields
from nsqclient.runtime import process_signals
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread
from nsqclient.runtime.workers import WorkerPool

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds kept back for the last steps when the handlers use up the whole timeout.
_GRACE = 0.4
#: stop() returns so many seconds after its timeout at the latest.
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
        #: A stop was asked for.
        self.has_begun: bool = False
        # Plain locks, since stop() may come in a signal handler: the thread that acquires the first
        # one runs the procedure; the second is held until it is over.
        self._first = threading.Lock()
        self._over = threading.Lock()
        self._over.acquire()
        self._is_over = False
        self._report = StopReport(0, 0, 0, complete=False)

    def stop(self, timeout: float, wait: bool) -> StopReport:
        """Stop within ``timeout`` seconds; later calls wait for the first one's end."""
        deadline = Deadline(timeout)
        self.has_begun = True
        if not self._first.locked():  # else it runs; where a call was interrupted it may not
            try:
                LibraryThread(self._run, "nsq-stop", (deadline,)).launch()
            except RuntimeError:  # no thread can be started
                if sys.is_finalizing():  # no other thread runs any more
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
            # Whatever goes wrong with the work, the rest must end.
            try:
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
        """Steps 1 to 4; ``subs`` gets the connections to end."""
        before = self._total()
        self._log.debug("stop: no more dials, no more RDY")
        subs += self._connections.stop()
        self._flow.stop()
        draining = self._send_cls(subs)
        self._processor.requeues_incoming = True
        self._background.put(self._on_stop)
        self._processor.requeue_queued()
        # An nsqd that does not answer costs a second.
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
        deadline.wait_until(lambda: not self._count_open(subs))
        for sub in subs:
            sub.flush(waits=False)
        after = self._total()
        return StopReport(
            finished=after.finished - before.finished,
            requeued_unstarted=after.requeued_unstarted - before.requeued_unstarted,
            abandoned=self._count_open(subs),
        )

    def _total(self) -> ConnectionCounters:
        return self.totals.total(sub.counters for sub in self._connections.subscriptions())

    def _end_all(self, subs: list[Subscription]) -> tuple[str, ...]:
        """Step 5; return the threads that did not end. Takes a second at most, in any case."""
        self._log.debug("stop: closing %s", counted(len(subs), "connection"))
        rest = Deadline(_GRACE)
        for sub in subs:
            sub.conn.drain(rest.at_most(_GRACE))
            sub.conn.close()
        # Readers end at once. A background task may hang in a lookup: it is not waited for long.
        rest = Deadline(_GRACE)
        stuck = [f"nsq-reader-{sub.address}" for sub in subs if not sub.conn.join(rest)]
        if not self._timer.stop(rest):
            stuck.append("nsq-timer")
        self._background.take_all()
        stuck += self._connections.dials.join(rest)
        stuck += self._background.stop(rest) + self._processor.workers.stop(rest)
        if stuck:
            self._log.warning(
                "stop: these threads did not end in time: %s (a slow handler or lookup; they are"
                " daemon threads and end with the process)", ", ".join(stuck),
            )
        return tuple(stuck)

    def _send_cls(self, subs: list[Subscription]) -> list[Subscription]:
        """Send CLS to all; return those that will answer it."""
        draining = []
        for sub in subs:
            try:
                if not sub.conn.send(lambda core: core.send_cls(), waits=False):
                    self._background.put(sub.flush_rest)
            except NSQError as exc:  # not open yet, or lost: nothing to drain
                self._log.debug("%s: CLS not sent: %s", sub.address, exc,
                                extra=log_fields(nsqd=sub.address))
                sub.conn.close()
            else:
                draining.append(sub)
        return draining

    def _count_open(self, subs: list[Subscription]) -> int:
        """How many messages are being handled, or wait for an answer from elsewhere."""
        now = time.monotonic()
        messages = set(self._processor.running)
        return len(messages.union(*(sub.in_flight.unanswered(now) for sub in subs)))


class SignalFlag:
    """Set once, by a signal handler, and waited for by the thread that it interrupts.

    Not an Event: its lock may be held by the very code that the handler interrupts, which would
    then wait for itself.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Set it. A second signal may call this in the middle of the first call."""
        with contextlib.suppress(RuntimeError):
            self._unset.release()

    def wait(self, timeout: float) -> bool:
        """Wait until it is set; False when it was not, in this time. Not after it was true."""
        return self._unset.acquire(timeout=timeout)


@contextmanager
def catch_shutdown_signals() -> Iterator[SignalFlag]:
    """Yield a flag that the first SIGINT or SIGTERM sets.

    The former handlers are put back with the first signal, so a second Ctrl-C interrupts, and at
    the end of the block. Outside the main thread no signal is caught.
    """
    came = SignalFlag()
    former: dict[int, Any] = {}

    def put_back() -> None:
        with contextlib.suppress(KeyError):  # both signals may be under way at once
            while True:
                process_signals.give_back(*former.popitem())

    def on_signal(signum: int, frame: FrameType | None) -> None:
        process_signals.note_signal()
        put_back()
        came.set()

    if threading.current_thread() is threading.main_thread():
        for signum in _SIGNALS:
            former[signum] = process_signals.take(signum, on_signal)
        process_signals.has_begun()
    try:
        yield came
    finally:
        put_back()
