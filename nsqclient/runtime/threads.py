"""``LibraryThread``: every thread that the library starts.

``Thread.start()`` waits for an ``Event``. An exception from a signal handler in that wait may leave
the lock of the event acquired, and then the new thread hangs. So a helper thread calls ``start()``,
and the caller waits for a ``SimpleQueue``.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock

T = TypeVar("T")


def need_threads() -> None:
    """Raise RuntimeError if the interpreter is shutting down.

    Up to Python 3.11, a thread started during shutdown never runs, and start() waits forever.
    """
    if sys.is_finalizing():
        raise RuntimeError("cannot start a thread: the interpreter is shutting down")


class LibraryThread(threading.Thread):
    """A daemon thread. ``owner``: the object whose work it does, for ``owner_of_thread()``.

    Lifecycle: created, ``launch()``, ``join()``. Threads: any.
    """

    def __init__(
        self, target: Callable[..., object], name: str, args: tuple[Any, ...] = (),
        owner: object = None,
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self.owner = owner
        self._starting = Lock()  # held while a helper thread starts it

    def launch(self) -> None:
        """Start the thread unless it was started. Raises RuntimeError if that is impossible."""
        if self.ident is None:
            need_threads()
            outcome: SimpleQueue[BaseException | None] = SimpleQueue()
            _thread.start_new_thread(self._start, (outcome.put,))
            failure = outcome.get()
            if failure is not None:
                raise failure

    def _start(self, report: Callable[[BaseException | None], None]) -> None:
        failure = None
        try:
            with self._starting:
                if self.ident is None:
                    self.start()
        except BaseException as exc:
            failure = exc
        report(failure)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, unless it was never started.

        Does not wait if the interpreter is shutting down, because threads do not run then.
        """
        if self.ident is not None and not sys.is_finalizing():
            with self._starting:  # Thread.join raises RuntimeError until start() is over
                pass
            super().join(timeout)


#: Seconds to wait after an exception, which may recur at once.
_PAUSE = 0.01


def keep_running(loop: Callable[[], None], on_failure: Callable[[BaseException], object]) -> None:
    """Call ``loop`` until it returns; if it raises, call ``on_failure``, and continue.

    A user's time limit may raise an exception in any thread, even after the limited function has
    returned, and a MemoryError may occur anywhere, also in ``on_failure``.
    """
    # Twice: the outer call catches an exception between two calls of the inner loop.
    _repeat(lambda: _repeat(loop, on_failure), on_failure)


def _repeat(loop: Callable[[], None], on_failure: Callable[[BaseException], object]) -> None:
    failures: list[BaseException] = []
    while True:
        try:
            if failures:
                time.sleep(_PAUSE)
                on_failure(failures.pop())
            loop()
            return
        except BaseException as exc:
            failures[:] = (exc,)


def owner_of_thread() -> object:
    """Return the owner of the calling thread, or None in a user's thread."""
    thread = threading.current_thread()
    return thread.owner if isinstance(thread, LibraryThread) else None


def is_for_caller(error: BaseException) -> bool:
    """True if an exception from a user's function is meant for the calling thread.

    On a user's thread, KeyboardInterrupt, SystemExit and the like come from a signal handler.
    """
    return not isinstance(error, Exception) and not is_library_thread()


def is_library_thread() -> bool:
    return isinstance(threading.current_thread(), LibraryThread)


#: Seconds that a procedure may take beyond its deadline.
_GRACE = 1.0


def run_in_thread(procedure: Callable[[], T], deadline: Deadline, name: str) -> T | None:
    """Run ``procedure`` in a new thread; return its result, or None if it is late.

    For calls that a signal handler may make: the interrupted thread may hold a lock that the
    procedure needs. A thread of the library runs the procedure itself, because the procedure may
    join that thread.

    Blocks: until the procedure returns, at most a second beyond the deadline.

    Raises:
        RuntimeError: no thread can be started.
    """
    if is_library_thread():
        return procedure()
    done: list[T] = []
    failures: list[BaseException] = []
    is_over = threading.Lock()
    is_over.acquire()

    def run() -> None:
        try:
            done.append(procedure())
        except BaseException as exc:
            failures.append(exc)
        finally:
            is_over.release()

    thread = LibraryThread(run, name)
    thread.launch()
    left = deadline.remaining()
    if is_over.acquire(timeout=-1 if left is None else min(left + _GRACE, threading.TIMEOUT_MAX)):
        thread.join(_GRACE)
    if failures:
        raise failures[0]
    return done[0] if done else None
