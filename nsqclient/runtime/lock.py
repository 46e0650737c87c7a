"""``Lock`` and ``Monitor``: locks for state that users' threads share with the library.

A signal handler or a time limit may raise an exception between any two calls of a user's thread.
Up to Python 3.14, if that happens just after ``__enter__`` of a lock of the standard library has
acquired the lock, ``with`` does not release it (cpython issue 148874). There is no such gap after a
Python function, such as ``Lock.__enter__``. ``__exit__`` stays a C function, because a Python
function could be interrupted before it releases the lock.

A signal handler or a finalizer may also call the library while the interrupted call holds a lock.
The lock knows its owner, and raises ``ReentrantCallError`` instead of a deadlock.

``threading.Condition``, ``Event``, ``Semaphore`` and ``queue.Queue`` wait in Python code, and such
an exception may leave their lock in the wrong state. A thread that waits for a Monitor does not
hold its lock. It waits for a queue of its own.
"""

from __future__ import annotations

import _thread
import contextlib
import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from nsqclient.errors import ReentrantCallError

T = TypeVar("T")


class Lock(_thread.RLock):  # type: ignore[misc] # it is final only in typeshed
    """A lock for ``with`` statements. Only its owner may release it."""

    __slots__ = ()

    _is_owned: Callable[[], bool]  # not in typeshed; threading.Condition uses it
    _acquire = _thread.RLock.acquire

    def __enter__(self) -> bool:  # type: ignore[override] # takes no arguments: quicker
        """Raises ReentrantCallError if the calling thread has the lock."""
        if self._is_owned():
            raise ReentrantCallError()
        try:
            return self._acquire()
        except BaseException:
            if self._is_owned():
                self.release()
            raise


class Monitor:
    """A lock with waiting. ``with monitor.lock:`` guards the state. Threads: any."""

    __slots__ = ("lock", "_waiting")

    def __init__(self) -> None:
        self.lock: Lock = Lock()
        self._waiting: set[SimpleQueue[None]] = set()  # changed by atomic calls

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiting)

    def notify_all(self) -> None:
        """Wake every waiting thread, so that it checks its condition again. Needs no lock."""
        for wakeups in self._waiting.copy():
            wakeups.put(None)

    def wait_for(self, condition: Callable[[], T], timeout: float | None) -> T:
        """Wait until ``condition()``, called under the lock, is true; return its last result.

        Blocks: at most ``timeout`` seconds, or without limit if it is None.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        wakeups: SimpleQueue[None] = SimpleQueue()
        try:
            while True:
                self._waiting.add(wakeups)  # before the check: a later change wakes us
                with self.lock:
                    result = condition()
                left = until - time.monotonic()
                if result or left <= 0:
                    return result
                with contextlib.suppress(Empty):
                    wakeups.get(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            self._waiting.discard(wakeups)
