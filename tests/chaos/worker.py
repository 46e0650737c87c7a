"""Chaos for ``nsqclient worker``: two processes and three topics, faults, kills, and no orphan."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.chaos import schedule
from tests.chaos.cluster import Cluster
from tests.chaos.program import END_TIMEOUT, MSG_TIMEOUT, WORKER_TOPICS
from tests.chaos.schedule import Event
from tests.support.processes import CHECKOUT
from tests.support.waiting import wait_until
from tests.worker.conftest import children, lives

PROCESSES = 2
#: Seconds that children have after the end of their supervisor: a stop, and its grace.
ORPHAN_TIMEOUT = END_TIMEOUT + 5.0 + 10.0
#: The fault of a worker that replaces a consumer's.
_FAULTS = {"kill": ("kill_child", "kill_supervisor"), "freeze": ("freeze_child",),
           "roll": ("hangup", "restart_worker")}
_OPTIONS = {
    "msg_timeout": f"{MSG_TIMEOUT:g}s", "heartbeat_interval": "1s", "max_attempts": "0",
    "lookupd_poll_interval": "5s", "lookupd_poll_timeout": "5s", "default_requeue_delay": "200ms",
    "max_backoff_duration": "1s", "backoff_multiplier": "100ms",
}


def build(seed: int, seconds: float) -> list[Event]:
    """Return the events of a run; the three kinds of end of a process are in every run. Pure."""
    rng = random.Random(f"worker {seed}")
    events = [
        event._replace(target="worker", number=0, action=rng.choice(_FAULTS[event.action]))
        if event.target == "consumer" else event
        for event in schedule.build(seed, seconds)
    ]
    first, last = schedule.CALM_START, seconds - schedule.CALM_END
    for part, action in enumerate(("kill_child", "kill_supervisor", "hangup"), 1):
        events.append(Event(first + (last - first) * part / 4, action, "worker", 0, 0.5))
    return sorted(events)


class WorkerCluster(Cluster):
    topics = WORKER_TOPICS

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._worker: subprocess.Popen[bytes] | None = None
        self._children: set[int] = set()  # of all workers
        self._starts = 0

    def _roles(self) -> list[tuple[str, int]]:
        return [("producer", schedule.PRODUCERS)]

    def start(self) -> None:
        super().start()
        self._start_worker()

    def _start_worker(self) -> None:
        self._starts += 1
        words = [f"--lookupd-http-address={lookupd.http_address}" for lookupd in self.lookupds]
        words += [f"--consumer-opt={name},{value}" for name, value in _OPTIONS.items()]
        with (self.folder / f"worker{self._starts}.log").open("wb") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "nsqclient", "worker", "tests.chaos.worker_handlers",
                 f"--processes={PROCESSES}", f"--stop-timeout={END_TIMEOUT:g}s", *words],
                cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "CHAOS_LEDGERS": str(self.folder)},
            )
        worker, log_path = self._worker, self.folder / f"worker{self._starts}.log"
        wait_until(lambda: len(self._alive()) == PROCESSES or worker.poll() is not None, 60,
                   "the processes of the worker")
        assert worker.poll() is None, log_path.read_text()

    def _alive(self) -> list[int]:
        assert self._worker is not None
        found = children(self._worker.pid)
        self._children |= set(found)
        return [pid for pid in found if lives(pid)]

    def _child(self) -> int:
        return random.choice(wait_until(self._alive, 60, "a process of the worker"))

    def _kill_child(self, event: Event) -> None:
        os.kill(self._child(), signal.SIGKILL)
        wait_until(lambda: len(self._alive()) == PROCESSES, 60, "a new process")

    def _freeze_child(self, event: Event) -> None:
        pid = self._child()
        os.kill(pid, signal.SIGSTOP)
        try:
            self.is_over.wait(event.seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _hangup(self, event: Event) -> None:
        assert self._worker is not None
        before = set(self._alive())
        self._worker.send_signal(signal.SIGHUP)

        def is_replaced() -> bool:
            now = set(self._alive())
            return len(now) == PROCESSES and not now & before

        wait_until(is_replaced, 120, "all processes are replaced after SIGHUP")

    def _kill_supervisor(self, event: Event) -> None:
        assert self._worker is not None
        self._alive()
        self._worker.kill()
        self._worker.wait()
        self._expect_no_orphan()
        self.is_over.wait(event.seconds)
        self._start_worker()

    def _restart_worker(self, event: Event) -> None:
        self.end_consumers()
        self._start_worker()

    def end_consumers(self) -> None:
        assert self._worker is not None
        self._alive()
        self._worker.terminate()
        try:
            status = self._worker.wait(ORPHAN_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.errors.append("the worker did not end after SIGTERM")
            self._worker.kill()
            self._worker.wait()
        else:
            # 1: a handler that is late on purpose was abandoned.
            if status not in (0, 1):
                self.errors.append(f"the worker ended with status {status}: see its log")
        self._expect_no_orphan()

    def _expect_no_orphan(self) -> None:
        try:
            wait_until(lambda: not any(map(lives, self._children)), ORPHAN_TIMEOUT)
        except AssertionError:
            left = [pid for pid in self._children if lives(pid)]
            self.errors.append(f"orphans: {left}")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        self._children.clear()

    def close(self) -> None:
        if self._worker is not None and self._worker.poll() is None:
            self._alive()
            self._worker.kill()
            self._worker.wait()
            self._expect_no_orphan()
        super().close()
