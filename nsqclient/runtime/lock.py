"""``Lock``: the lock of everything that threads of the user's share with the library.

A signal handler may raise an exception between any two calls of a thread of the user's, and a time
limit may raise one in any thread. ``with`` on a lock of the standard library has a gap: up to
Python 3.14 (cpython's issue 148874), such an exception can come when ``__enter__`` has acquired the
lock and the ``with`` statement does not release it yet. If ``__enter__`` is a Python function,
there is no such moment behind it, and within it this class releases the lock. ``__exit__`` is
a function of C: a Python function could be interrupted before it releases.

A signal handler, and a finalizer that the garbage collector runs, may also call the library while
the interrupted call holds a lock. The thread would then wait for itself, so the lock knows
its owner and raises ``ReentrantCallError``: the error-checking mutex of POSIX.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable

from nsqclient.errors import ReentrantCallError


class Lock(_thread.RLock):  # type: ignore[misc] # it is final only in typeshed
    """A lock for ``with`` statements alone, whose owner gets an error if it enters it again.

    Only its owner may release it: a lock that another thread releases is a ``threading.Lock``.
    """

    __slots__ = ()

    _is_owned: Callable[[], bool]  # not in typeshed; threading.Condition uses it
    _acquire = _thread.RLock.acquire

    def __enter__(self) -> bool:  # type: ignore[override] # takes no arguments: quicker
        """Acquire it; wait for another thread to release it.

        Raises:
            ReentrantCallError: the calling thread has it.
        """
        # Only the calling thread can change the answer, so it holds until the lock is acquired.
        if self._is_owned():
            raise ReentrantCallError()
        try:
            return self._acquire()
        except BaseException:
            if self._is_owned():
                self.release()
            raise
