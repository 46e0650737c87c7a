"""``Monitor``: a lock, and the threads that wait until what it guards has changed.

``threading.Condition``, and with it ``Event``, ``Semaphore`` and ``queue.Queue``, waits in Python
code that releases its lock and acquires it again. After an exception from a signal handler in
between, the lock is not as the ``with`` statement around it expects. A Monitor sleeps without its
lock.

What may interrupt a thread of the user's at any call may also interrupt a notification. So a
notifier notifies first and changes the state afterwards, both under the lock: the threads that it
woke wait for the lock, and where the change does not come they sleep again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from nsqclient.runtime.lock import Lock

T = TypeVar("T")


class Waiter:
    """One thread that waits for a change; made by ``Monitor.waiter()``.

    Use: under the monitor's lock look at the state, and ``arm()`` when it is not as wanted; then,
    without the lock, ``sleep()``, and look again. ``close()`` at the end, in a ``finally``.
    """

    __slots__ = ("arm", "close", "_baton")

    #: From now on a notification ends the next ``sleep()``. Needs the monitor's lock.
    arm: Callable[[], None]
    #: Wait no more.
    close: Callable[[], None]

    def __init__(self, armed: set[threading.Lock]) -> None:
        self._baton = threading.Lock()
        self._baton.acquire()
        # No methods: at the beginning of a Python function an exception could come before it.
        self.arm = partial(armed.add, self._baton)
        self.close = partial(armed.discard, self._baton)

    def sleep(self, timeout: float | None) -> None:
        """Wait for a notification; it may also end for no reason, so look at the state again.

        Blocks: at most ``timeout`` seconds; None: without limit.
        """
        if timeout is None:
            self._baton.acquire()
        else:
            self._baton.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))


class Monitor:
    """A lock with waiting; for what threads of the user's share with ours.

    ``with monitor.lock:`` guards the state. Threads: any.
    """

    __slots__ = ("lock", "_armed")

    def __init__(self) -> None:
        self.lock: Lock = Lock()
        self._armed: set[threading.Lock] = set()  # changed by single calls

    @property
    def is_awaited(self) -> bool:
        """Return whether some thread waits."""
        return bool(self._armed)

    def notify_all(self) -> None:
        """Wake every thread that waits. Needs the lock; call it before you change the state."""
        if self._armed:
            for baton in self._armed.copy():
                if baton.locked():  # nobody but a notifier releases it, and that has the lock
                    baton.release()

    def waiter(self) -> Waiter:
        """Return what the calling thread waits with."""
        return Waiter(self._armed)

    def wait_for(self, condition: Callable[[], T], timeout: float | None) -> T:
        """Wait until ``condition()``, called under the lock, is true; return its last result.

        Blocks: at most ``timeout`` seconds; None: without limit.
        """
        with self.lock:
            result = condition()
        if result:
            return result
        until = None if timeout is None else time.monotonic() + timeout
        waiter = self.waiter()
        try:
            while True:
                with self.lock:
                    result = condition()
                    left = None if until is None else until - time.monotonic()
                    if result or (left is not None and left <= 0):
                        return result
                    waiter.arm()
                waiter.sleep(left)
        finally:
            waiter.close()
