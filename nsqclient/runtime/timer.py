"""The timer thread: a heap of due times, and tasks that only hand work over.

A task must return at once: what may block belongs on a background thread. A task that raises is
logged, and the thread lives on.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread, keep_running

logger: logging.Logger = logging.getLogger("nsqclient.timer")


class TimerTask:
    """A scheduled call; ``cancel()`` may come at any time, from any thread."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Make sure that the task does not start from now on. Idempotent."""
        self._action = None

    def run(self) -> None:
        """Run the task unless it was cancelled. Only the timer calls this."""
        action, self._action = self._action, None
        if action is not None:
            action()


class Timer:
    """One daemon thread that runs short tasks when they are due.

    Life: created (no thread yet), runs from the first ``start()``, ends with ``stop()``.
    Threads: every method may be called from any thread.
    """

    def __init__(self, name: str = "nsq-timer") -> None:
        self._lock = Lock()
        self._heap: list[tuple[float, int, TimerTask]] = []  # guarded by _lock
        self._order = itertools.count()  # equal times run in the order they were given
        self._stopping = False  # guarded by _lock
        self._wakeups: SimpleQueue[None] = SimpleQueue()  # each has the thread look again
        self._thread = LibraryThread(self._run, name)

    def start(self) -> None:
        """Start the thread. Idempotent, also after a failure; does nothing after ``stop()``.

        Raises:
            RuntimeError: no thread can be started.
        """
        with self._lock:
            if not self._stopping:
                self._thread.launch()

    def schedule(self, delay: float, action: Callable[[], None]) -> TimerTask:
        """Run ``action`` once, ``delay`` seconds from now; after ``stop()`` it never runs."""
        task = TimerTask(action)
        due = time.monotonic() + max(0.0, delay)
        with self._lock:
            if not self._stopping:
                if not self._heap or due < self._heap[0][0]:
                    # First: a signal handler may raise in between. The thread waits for the lock.
                    self._wakeups.put(None)
                heapq.heappush(self._heap, (due, next(self._order), task))
        return task

    def stop(self, deadline: Deadline | None = None) -> bool:
        """Drop all tasks and join the thread; True when it has ended.

        Idempotent. Called from the timer thread itself it does not join.
        """
        with self._lock:
            self._wakeups.put(None)
            self._stopping = True
            self._heap.clear()
        thread = self._thread
        if thread is threading.current_thread():
            return True
        thread.join(None if deadline is None else deadline.remaining())
        return not thread.is_alive()

    def is_timer(self) -> bool:
        """True if the calling thread is the timer's."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        keep_running(self._run_tasks, lambda error: logger.error(
            "timer task failed; the timer continues", exc_info=error))

    def _run_tasks(self) -> None:
        """Run due tasks until the end. If a task raises, the others stay."""
        while True:
            task: TimerTask | None = None
            wait: float | None = None
            with self._lock:
                if self._stopping:
                    return
                if self._heap:
                    wait = self._heap[0][0] - time.monotonic()
                    if wait <= 0:
                        task = heapq.heappop(self._heap)[2]
            if task is not None:
                task.run()
            else:
                with contextlib.suppress(Empty):
                    self._wakeups.get(timeout=None if wait is None else min(wait, TIMEOUT_MAX))
