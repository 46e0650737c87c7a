"""``StopProcedure``: how a consumer stops in bounded time and hands back what it has not done.

1. No more dials and lookups; no RDY is raised.
2. CLS on each connection: nsqd sends no more messages, and answers CLOSE_WAIT.
3. Messages that no handler has seen are requeued at once (REQ 0, no backoff), also those that
   still arrive before CLOSE_WAIT.
4. Running handlers finish, a last batch is handled, and messages that handlers left to others
   (``enable_async()``) are answered, up to the deadline; readers go on, so heartbeats are answered.
5. The last FINs are sent, the sockets shut down, and readers, timer, the threads that dial, chores
   and workers joined.

It runs in a thread of its own, so that ``stop()`` may be called in a signal handler while the
interrupted thread holds one of our locks: only that thread waits, and never past its deadline.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

from nsqclient.errors import NSQError
from nsqclient.consuming.flow_control import FlowControl
from nsqclient.consuming.handling import Handling
from nsqclient.consuming.membership import Membership
from nsqclient.message import Message
from nsqclient.consuming.reports import Ledger, StopReport
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.threads import LibraryThread, ThreadStartError
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.trying import try_lock
from nsqclient.runtime.workers import WorkerPool
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.subscription import Subscription

#: Seconds kept back for the last steps when the handlers use up the whole timeout.
_GRACE = 0.5


class StopProcedure:
    """Stops one consumer, once. Threads: any."""

    def __init__(
        self,
        membership: Membership,
        flow: FlowControl,
        handling: Handling,
        workers: WorkerPool[Message],
        timer: Timer,
        chores: WorkerPool[Callable[[], None]],
        log: LifeLog | None = None,
    ) -> None:
        self._log = LifeLog("consumer") if log is None else log
        self.ledger = Ledger()
        #: True once messages that arrive go back instead of to the handler.
        self.hands_back = False
        self._membership = membership
        self._flow = flow
        self._handling = handling
        self._workers = workers
        self._timer = timer
        self._chores = chores
        #: For a handler that collects messages: hand over what it has, give back what is left.
        self.before_workers_end: Callable[[], None] = lambda: None
        self.after_workers_end: Callable[[], None] = lambda: None
        # Plain locks, since stop() may come in a signal handler: whoever acquires the first one
        # starts the procedure; the second is held until it is over.
        self._first = threading.Lock()
        self._over = threading.Lock()
        self._over.acquire()
        self._changed = Monitor()
        self._draining: set[Subscription] = set()  # CLS sent, CLOSE_WAIT awaited; by _changed
        self._report = StopReport(0, 0, 0, complete=False)

    @property
    def has_begun(self) -> bool:
        """Tell whether a stop was asked for."""
        return self._first.locked()

    def stop(self, timeout: float, wait: bool) -> StopReport:
        """Stop within ``timeout`` seconds; later calls wait for the first one's end."""
        deadline = Deadline(timeout)
        self._begin(deadline)
        if wait:
            self._wait(deadline.at_most(timeout) + 3 * _GRACE)
        return self._report

    def _begin(self, deadline: Deadline) -> None:
        """Have the procedure run, unless a call before did so."""
        thread = LibraryThread(self._run, "nsq-stop", (deadline,))
        held: list[bool] = []
        is_run_here = False
        try:
            if try_lock(self._first, held):
                thread.launch()
        except ThreadStartError:  # the interpreter ends, or the system has none left
            is_run_here = True
            self._run(deadline)
        finally:
            if held == [True] and not (thread.is_launched or is_run_here):
                self._first.release()  # a signal handler raised: the next call begins

    def _wait(self, timeout: float) -> None:
        """Wait until the procedure is over."""
        held: list[bool] = []
        try:
            held.extend(map(self._over.acquire, (True,), (timeout,)))  # as try_lock
        finally:
            if held == [True]:
                self._over.release()

    def on_drained(self, sub: Subscription) -> None:
        """CLOSE_WAIT came, or the connection ended."""
        with self._changed.lock:
            self._changed.notify_all()
            self._draining.discard(sub)

    def hand_back_queued(self) -> int:
        """Requeue every message that no worker has taken; return how many that were."""
        by_sub: dict[Subscription, list[Message]] = {}
        tasks = []
        for message in self._workers.take_all():
            if message._responded:
                tasks.append(message)  # a task for a worker, not from nsqd
                continue
            sub = message._responder
            assert isinstance(sub, Subscription)
            by_sub.setdefault(sub, []).append(message)
        if tasks:
            self._workers.put_many(tasks)
        return sum(sub.hand_back(messages) for sub, messages in by_sub.items())

    def maybe_hand_back_queued(self) -> None:
        """Do so if a stop hands back by now."""
        if self.hands_back:
            self.hand_back_queued()

    def _run(self, deadline: Deadline) -> None:
        subs: list[Subscription] = []
        report = self._report
        try:
            # Whatever goes wrong with the work, the rest must end.
            try:
                report = self._end_work(deadline, subs)
            except Exception:
                self._log.exception("stop: a step failed")
            self._report = dataclasses.replace(report, threads=self._end_all(subs))
            self._log.stopped(report.finished, report.handed_back, report.abandoned)
        except Exception:
            self._log.exception("stop failed")
        finally:
            self._over.release()

    def _end_work(self, deadline: Deadline, subs: list[Subscription]) -> StopReport:
        """Steps 1 to 4; ``subs`` gets the connections to end."""
        before = self.ledger.total(self._membership.subscriptions())
        self._log.debug("stop: no more dials, no more RDY")
        subs += self._membership.stop()
        self._flow.stop()
        self._send_cls(subs)
        self.hands_back = True
        self.hand_back_queued()
        self._await_close_wait(deadline)
        self._log.debug("stop: waiting for %s", counted(len(self._handling.running), "handler"))
        self.before_workers_end()
        self._workers.stop(deadline)
        self.after_workers_end()
        self._handling.wait_for_turns(deadline)
        self.hand_back_queued()
        for sub in subs:
            sub.post_finished()
        self._await_answers(subs, deadline)
        after = self.ledger.total(self._membership.subscriptions())
        return StopReport(
            finished=after.finished - before.finished,
            handed_back=after.handed_back - before.handed_back,
            abandoned=self._count_open(subs),
        )

    def _end_all(self, subs: list[Subscription]) -> tuple[str, ...]:
        """Step 5; return the threads that did not end. Takes a second at most, in any case."""
        self._log.debug("stop: closing %s", counted(len(subs), "connection"))
        rest = Deadline(_GRACE)
        for sub in subs:
            sub.conn.drain(rest.at_most(_GRACE))
            sub.conn.close()
        # Readers end at once. A chore may hang in a lookup or a dial: it is not waited for long.
        rest = Deadline(_GRACE)
        stuck = [f"nsq-reader-{sub.address}" for sub in subs if not sub.conn.join(rest)]
        if not self._timer.stop(rest):
            stuck.append("nsq-timer")
        self._chores.take_all()
        stuck += self._membership.join_dials(rest)
        stuck += self._chores.stop(rest) + self._workers.stop(rest)
        if stuck:
            self._log.warning(
                "stop: these threads did not end in time: %s (a handler or a lookup that takes"
                " long; they are daemons and end with the process)", ", ".join(stuck),
            )
        return tuple(stuck)

    def _send_cls(self, subs: list[Subscription]) -> None:
        for sub in subs:
            with self._changed.lock:
                self._draining.add(sub)
            try:
                if not sub.conn.post(lambda core: core.send_cls()):
                    self._chores.put(sub.flush_rest)
            except NSQError as exc:  # not open yet, or lost: nothing to drain
                self._log.debug("%s: CLS not sent: %s", sub.address, exc)
                sub.conn.close()
                self.on_drained(sub)

    def _await_close_wait(self, deadline: Deadline) -> None:
        """Wait until no more messages can come; a nsqd that does not answer costs a second."""
        self._changed.wait_for(lambda: not self._draining, deadline.at_most(1.0))
        # A message may have been queued between the last look and CLOSE_WAIT.
        self.hand_back_queued()

    def on_answered(self) -> None:
        """A message was answered, perhaps the last one that is waited for."""
        with self._changed.lock:
            self._changed.notify_all()

    def _await_answers(self, subs: list[Subscription], deadline: Deadline) -> None:
        """Wait for the answers that handlers left to others (``enable_async()``)."""
        while self._count_open(subs) and not deadline.expired():
            # A message may also expire, which no notification follows.
            self._changed.wait_for(lambda: not self._count_open(subs), deadline.at_most(0.5))

    def _count_open(self, subs: list[Subscription]) -> int:
        """How many messages are being handled, or wait for an answer from elsewhere."""
        now = time.monotonic()
        messages = set(self._handling.running)
        return len(messages.union(*(sub.in_flight.unanswered(now) for sub in subs)))
