"""``PoolTimer``: the thread ``nsq-timer`` of a producer, for work that no publish waits for."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread, keep_running

logger: logging.Logger = logging.getLogger("nsqclient.producer")


class PoolTimer:
    """Calls each of ``checks`` when one is due: idle connections, dials, lookups, queues.

    Args:
        check: the first one; each gets the time, and returns when to call it next.

    Lifecycle: ``start()``, idempotent; ``stop()``. Threads: any.
    """

    def __init__(self, check: Callable[[float], float]) -> None:
        self.checks: list[Callable[[float], float]] = [check]
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._is_stopped = False
        self._thread = LibraryThread(self._run, "nsq-timer")
        #: When the thread looks next if nobody wakes it, on time.monotonic().
        self.due: float = math.inf

    def start(self) -> None:
        self._thread.launch()

    def wake(self) -> None:
        """Look now. May be called by any code at any moment."""
        self._wakeups.put(None)

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def ended(self) -> list[str]:
        """Return the name of the thread if it has ended and should not."""
        is_dead = self.is_started and not self._thread.is_alive() and not self._is_stopped
        return [self._thread.name] * is_dead

    def is_current(self) -> bool:
        """True if the calling thread is this one: a finalizer may run there."""
        return threading.current_thread() is self._thread

    def stop(self, deadline: Deadline) -> bool:
        self._is_stopped = True
        self.wake()
        if self.is_current():
            return True
        self._thread.join(deadline.remaining())
        return not self._thread.is_alive()

    def _run(self) -> None:
        keep_running(self._check_all, lambda error: logger.error(
            "the timer was interrupted; it continues", exc_info=error))

    def _check_all(self) -> None:
        while not self._is_stopped:
            self.due = time.monotonic() + 1.0  # if a check fails
            try:
                self.due = min([check(time.monotonic()) for check in self.checks])
            except Exception:
                logger.exception("looking after connections failed; the timer continues")
            try:
                self._wakeups.get(timeout=max(0.0, self.due - time.monotonic()))
            except Empty:
                pass
