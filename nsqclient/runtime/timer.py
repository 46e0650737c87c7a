"""``Timer``: a thread that runs short tasks when they are due. Blocking work belongs elsewhere."""

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
    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do not start the task. Idempotent."""
        self._action = None

    def run(self) -> None:
        """Run the task unless it was cancelled."""
        action, self._action = self._action, None
        if action is not None:
            action()


class Timer:
    """One daemon thread that runs short tasks. It logs their exceptions.

    Lifecycle: created, ``start()``, ``stop()``. Threads: any.
    """

    def __init__(self, name: str = "nsq-timer") -> None:
        self._lock = Lock()
        self._heap: list[tuple[float, int, TimerTask]] = []  # guarded by _lock
        self._order = itertools.count()  # tasks due at the same time run in order
        self._stopping = False  # guarded by _lock
        self._wakeups: SimpleQueue[None] = SimpleQueue()  # each wakes the thread
        self._thread = LibraryThread(self._run, name)

    def start(self) -> None:
        """Start the thread, unless ``stop()`` was called. Idempotent. Raises RuntimeError."""
        with self._lock:
            if not self._stopping:
                self._thread.launch()

    def schedule(self, delay: float, action: Callable[[], None]) -> TimerTask:
        """Run ``action`` once in ``delay`` seconds, unless ``stop()`` is called first."""
        task = TimerTask(action)
        due = time.monotonic() + max(0.0, delay)
        with self._lock:
            if not self._stopping:
                if not self._heap or due < self._heap[0][0]:
                    # Before the push, because a signal handler may raise between the two.
                    self._wakeups.put(None)
                heapq.heappush(self._heap, (due, next(self._order), task))
        return task

    def stop(self, deadline: Deadline | None = None) -> bool:
        """Drop all tasks and join the thread; return True if it has ended. Idempotent.

        The timer thread itself is not joined.
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
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        keep_running(self._run_tasks, lambda error: logger.error(
            "timer task failed; the timer continues", exc_info=error))

    def _run_tasks(self) -> None:
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
