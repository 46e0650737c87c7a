"""``Monitor``: a lock, and the threads that wait for a change of the guarded state.

``threading.Condition``, and with it ``Event``, ``Semaphore`` and ``queue.Queue``, waits in Python
code that an exception from a signal handler may leave with the wrong state of the lock. A Monitor
waits without its lock, each thread for a queue of its own.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from nsqclient.runtime.lock import Lock

T = TypeVar("T")


class Monitor:
    """A lock with waiting. ``with monitor.lock:`` guards the state. Threads: any."""

    __slots__ = ("lock", "_waiting")

    def __init__(self) -> None:
        self.lock: Lock = Lock()
        self._waiting: set[SimpleQueue[None]] = set()  # changed by single calls

    @property
    def is_awaited(self) -> bool:
        """True if a thread waits."""
        return bool(self._waiting)

    def notify_all(self) -> None:
        """Wake every waiting thread, which looks at the state again. Needs no lock."""
        for wakeups in self._waiting.copy():
            wakeups.put(None)

    def wait_for(self, condition: Callable[[], T], timeout: float | None) -> T:
        """Wait until ``condition()``, called under the lock, is true; return its last result.

        Blocks: at most ``timeout`` seconds; None: without limit.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        wakeups: SimpleQueue[None] = SimpleQueue()
        try:
            while True:
                self._waiting.add(wakeups)  # before the look: what changes afterwards wakes it
                with self.lock:
                    result = condition()
                left = until - time.monotonic()
                if result or left <= 0:
                    return result
                with contextlib.suppress(Empty):
                    wakeups.get(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            self._waiting.discard(wakeups)
