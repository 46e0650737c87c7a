"""``LibraryThread``: every thread that the library starts.

``Thread.start()`` waits for the new thread with an ``Event``. An exception from a signal handler in
that wait may leave the lock of the event acquired, and then the new thread hangs when it sets the
event. So another thread calls ``start()``, and the caller waits for a ``SimpleQueue``.
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
    """Raise RuntimeError if the interpreter is shutting down: no other thread runs any more.

    Up to Python 3.11 a thread that is started then never runs, and its starter waits for it.
    """
    if sys.is_finalizing():
        raise RuntimeError("cannot start a thread: the interpreter is shutting down")


class LibraryThread(threading.Thread):
    """A daemon thread of the library's.

    Life: created, ``launch()``, ``join()`` as any thread. Threads: any.
    """

    def __init__(
        self, target: Callable[..., object], name: str, args: tuple[Any, ...] = (),
        owner: object = None,
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self.owner = owner  #: whose work it does, where somebody asks for that
        self._starting = Lock()  # the owner starts it

    def launch(self) -> None:
        """Start the thread unless it was started; return when it runs.

        An exception from a signal handler may end the wait. The thread may start nevertheless.

        Raises:
            RuntimeError: no thread can be started.
        """
        if self.ident is not None:
            return
        need_threads()
        outcome: SimpleQueue[BaseException | None] = SimpleQueue()
        _thread.start_new_thread(self._start, (outcome,))
        failure = outcome.get()
        if failure is not None:
            raise failure

    def _start(self, outcome: SimpleQueue[BaseException | None]) -> None:
        try:
            with self._starting:
                if self.ident is None:
                    self.start()
            outcome.put(None)
        except BaseException as exc:
            outcome.put(exc)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, as ``Thread.join``.

        Returns at once if it was never started, or if the interpreter is ending: threads do not
        run any more.
        """
        if self.ident is not None and not sys.is_finalizing():
            with self._starting:  # until its start is over, Thread.join raises RuntimeError
                pass
            super().join(timeout)


#: Seconds until a loop goes on after an exception, which may come again at once.
_PAUSE = 0.01


def keep_running(loop: Callable[[], None], on_failure: Callable[[BaseException], object]) -> None:
    """Call ``loop`` until it returns; if it raises, call ``on_failure``, and go on.

    For the loop of a thread that must not end. A user's time limit raises an exception in another
    thread at any moment, also after the function that it is meant for, and a MemoryError may come
    anywhere. An exception in ``on_failure`` is handled in the same way.
    """
    # Twice: the second one catches an exception between two calls of the first one's loop.
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
    """Return whose work the calling thread does; None for a thread of the user's."""
    thread = threading.current_thread()
    return thread.owner if isinstance(thread, LibraryThread) else None


def is_for_caller(error: BaseException) -> bool:
    """True if an exception of a user's function is meant for the calling thread.

    KeyboardInterrupt, SystemExit and the like are, on a thread of the user's, where signal handlers
    raise them. An ``Exception`` is taken for the function's own: which of the two raised it cannot
    be distinguished.
    """
    return not isinstance(error, Exception) and not is_library_thread()


def is_library_thread() -> bool:
    """True if the calling thread is one of the library's."""
    return isinstance(threading.current_thread(), LibraryThread)


#: Seconds that a procedure may take after its deadline for its last steps.
_GRACE = 1.0


def run_in_thread(procedure: Callable[[], T], deadline: Deadline, name: str) -> T | None:
    """Run ``procedure`` in a thread of its own; return its result, or None if it is late.

    For what may be called in a signal handler: the interrupted thread may hold a lock that the
    procedure needs. Then only the new thread waits, and the caller never waits past the deadline.
    A thread of the library, which the procedure may want to join, runs it itself.

    Blocks: until it is done, and at most a second after the deadline.

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
