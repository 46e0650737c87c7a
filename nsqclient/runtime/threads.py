"""``LibraryThread``: every thread that the library starts.

``Thread.start()`` waits for the new thread with an ``Event``. Where an exception from a signal
handler interrupts that wait, the lock of the event may stay taken, and the new thread, which is to
set it, hangs for ever. So another thread calls ``start()``; the caller waits with a plain lock.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock

T = TypeVar("T")


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
        """Start it, unless it was started before; return when it runs.

        An exception from a signal handler may end the wait; the thread may start nevertheless.

        Raises:
            RuntimeError: the system has no thread left, or the interpreter ends.
        """
        if self.ident is not None:
            return
        if sys.is_finalizing():  # up to Python 3.11 the thread would never run
            raise RuntimeError("cannot start a thread: the interpreter is shutting down")
        failures: list[BaseException] = []
        is_done = threading.Lock()
        is_done.acquire()

        def start() -> None:
            try:
                with self._starting:
                    if self.ident is None:
                        self.start()
            except BaseException as exc:
                failures.append(exc)
            finally:
                is_done.release()

        _thread.start_new_thread(start, ())
        is_done.acquire()
        if failures:
            raise failures[0]

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, as ``Thread.join``; return at once where it was never started."""
        if self.ident is not None:
            with self._starting:  # until its start is over, Thread.join raises RuntimeError
                pass
            super().join(timeout)


#: Seconds until a loop goes on that an exception has ended: it may end at once again.
_PAUSE = 0.01


def keep_running(loop: Callable[[], None], on_failure: Callable[[BaseException], object]) -> None:
    """Call ``loop`` until it returns; where it raises, call ``on_failure``, and go on.

    For the loop of a thread that must not end. A time limit of the user's raises an exception in a
    worker's thread at any moment, also behind the end of the handler that it was meant for, and a
    MemoryError may come anywhere. An exception in ``on_failure`` is handled in the same way.
    """
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
    """Return whether what a function of the user's raised is meant for the calling thread.

    KeyboardInterrupt, SystemExit and the like are, on a thread of the user's, where signal handlers
    raise them. An ``Exception`` is taken for the function's own: which of the two raised it cannot
    be distinguished.
    """
    return not isinstance(error, Exception) and not is_library_thread()


def is_library_thread() -> bool:
    """Return whether the calling thread is one of the library's."""
    return isinstance(threading.current_thread(), LibraryThread)


#: Seconds that a procedure may take after its deadline for its last steps.
_GRACE = 1.0


def run_in_thread(procedure: Callable[[], T], deadline: Deadline, name: str) -> T | None:
    """Run ``procedure`` in a thread of its own and return what it returns; None when it is late.

    For what may be called in a signal handler: the interrupted thread may hold a lock that the
    procedure needs, and then only that thread waits, and never past the deadline. Called from
    a thread of ours, which the procedure may want to join, it runs in place.

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
