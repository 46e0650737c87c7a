"""Runs a procedure apart from the calling thread, which waits for it up to a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread, ThreadStartError, is_library_thread

T = TypeVar("T")

#: Seconds that a procedure may take after its deadline for its last steps.
_GRACE = 1.0


def run_apart(procedure: Callable[[], T], deadline: Deadline, name: str) -> T | None:
    """Run ``procedure`` in a thread of its own and return what it returns; None when it is late.

    For what may be called in a signal handler: the interrupted thread may hold a lock that the
    procedure needs, and then only that thread waits, and never past the deadline. Called from
    a thread of ours, which the procedure may want to join, it runs in place.

    Blocks: until it is done, and at most a second after the deadline.
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
    try:
        thread.launch()
    except ThreadStartError:
        return procedure()
    left = deadline.remaining()
    if is_over.acquire(timeout=-1 if left is None else min(left + _GRACE, threading.TIMEOUT_MAX)):
        thread.join(_GRACE)
    if failures:
        raise failures[0]
    return done[0] if done else None
