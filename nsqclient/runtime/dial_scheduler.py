"""``DialScheduler``: a few threads that dial what a ``DialQueue`` says, started on demand."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dial_queue import DialQueue, K, Standing
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread, keep_running

logger: logging.Logger = logging.getLogger("nsqclient.dialing")

#: Dials under way at once for one consumer or producer.
MAX_DIALS = 16
#: Seconds until it is tried again to start a thread, where the system had none left.
_NO_THREAD_PAUSE = 1.0


class DialScheduler(Generic[K]):
    """Dials addresses in threads of its own, ``limit`` of them at most.

    A thread is started when there is something to dial, and ends when nothing is left. Those that
    wait for their time to be dialed again need none.

    Args:
        sources: the names of all sources; see :class:`DialQueue`.
        dial: dials an address; what that led to is its business. May block; on a dialing thread,
            without a lock.
        schedule: runs a function so many seconds later, for addresses that wait; None where the
            caller looks after these itself with ``dispatch()``.

    Life: usable at once; ``close()``, then ``join()``. Threads: every method, any thread.
    ``put``, ``set_sources`` and ``discard`` only note what is wanted, so the caller may hold a
    lock; call ``dispatch()`` afterwards, without any.
    """

    def __init__(
        self,
        sources: Iterable[str],
        dial: Callable[[K], None],
        schedule: Callable[[float, Callable[[], None]], Any] | None = None,
        *,
        limit: int = MAX_DIALS,
        make_thread: Callable[[Callable[[], None], str], LibraryThread] = LibraryThread,
    ) -> None:
        self._dial = dial
        self._schedule = schedule
        self._make_thread = make_thread
        self._lock = Lock()
        self._queue: DialQueue[K] = DialQueue(limit, sources)  # by _lock, as below
        self._threads: list[LibraryThread] = []  # that run, or are being started
        self._ending: list[LibraryThread] = []  # that take nothing more, and may still run
        self._wakes_at: float | None = None  # when dispatch() comes by itself
        self._has_no_thread = False  # the last one could not be started
        self._is_closed = False

    def __contains__(self, key: K) -> bool:
        """Return whether it is to be dialed, or is being dialed."""
        with self._lock:
            return key in self._queue

    def put(
        self, key: K, sources: Collection[str], standing: Standing, retry_at: float = 0.0
    ) -> None:
        """Have it dialed, not before ``retry_at`` on time.monotonic()."""
        with self._lock:
            if not self._is_closed:
                self._queue.put(key, sources, standing, retry_at)

    def set_sources(self, key: K, sources: Collection[str]) -> None:
        """Note that these sources name it now."""
        with self._lock:
            self._queue.set_sources(key, sources)

    def discard(self, key: K) -> None:
        """Dial it no more; a dial that is under way goes on."""
        with self._lock:
            self._queue.discard(key)

    def dispatch(self) -> None:
        """Start the threads that are needed for what is due. Does not block.

        Where there is none to be had, this is logged, and tried again later.
        """
        while self._start_thread():
            pass
        with self._lock:
            due = self._queue.next_due()
            if self._has_no_thread:
                due = time.monotonic() + _NO_THREAD_PAUSE
            if self._schedule is None or due is None or self._is_closed:
                return
            if self._wakes_at is not None and self._wakes_at <= due:
                return
            self._wakes_at = due
            self._schedule(max(0.0, due - time.monotonic()), lambda: self._on_due(due))

    def _on_due(self, due: float) -> None:
        with self._lock:
            if self._wakes_at == due:
                self._wakes_at = None
        self.dispatch()

    def _start_thread(self) -> bool:
        """Start one more thread if there is something for it to do; return whether it did."""
        thread: LibraryThread | None = None
        try:
            with self._lock:
                # Those that dial nothing at this moment are about to take something.
                idle = len(self._threads) - self._queue.under_way
                if self._is_closed or self._queue.count_ready(time.monotonic()) <= idle:
                    return False
                thread = self._make_thread(lambda: self._run(thread), "nsq-dialer-")
                self._threads.append(thread)
            thread.launch()
        except RuntimeError as exc:
            self._on_no_thread(thread, exc)
            return False
        except BaseException:  # of a signal handler; where the thread starts, it notes itself
            with self._lock:
                self._forget(thread)
            raise
        self._has_no_thread = False
        return True

    def _forget(self, thread: LibraryThread | None) -> None:
        """Needs _lock."""
        self._threads = [other for other in self._threads if other is not thread]

    def _on_no_thread(self, thread: LibraryThread | None, error: RuntimeError) -> None:
        with self._lock:
            self._forget(thread)
            is_news, self._has_no_thread = not self._has_no_thread, True
        if is_news:
            logger.error("no thread to dial, trying again: %s", str(error))  # not its frames

    def _run(self, thread: LibraryThread | None) -> None:
        assert thread is not None  # it was made before it could run
        with self._lock:
            if thread not in self._threads:  # another one looked before it was launched
                self._threads.append(thread)
        keep_running(lambda: self._dial_all(thread), lambda error: logger.error(
            "%s: unexpected error while dialing", thread.name, exc_info=error))

    def _dial_all(self, thread: LibraryThread) -> None:
        """Dial one address after the other, until none is due."""
        while True:
            with self._lock:
                key = None if self._is_closed else self._queue.take(time.monotonic())
                if key is None:
                    self._ending = list(other for other in self._ending if other.is_alive())
                    self._ending.append(thread)
                    self._forget(thread)
                    return
            try:
                thread.name = f"nsq-dialer-{key}"
                self._dial(key)
            finally:
                with self._lock:
                    self._queue.finish(key)
            self.dispatch()

    def is_dialer(self) -> bool:
        """Return whether the calling thread dials."""
        return threading.current_thread() in self._threads

    def close(self) -> None:
        """Dial nothing more; what is being dialed goes on. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._queue.clear()

    def join(self, deadline: Deadline) -> list[str]:
        """Wait for the dials under way; return the names of threads that did not end in time.

        Call ``close()`` first. A thread of ours that calls it is not joined and not named.
        """
        with self._lock:
            threads = [*self._threads, *self._ending]
        stuck = []
        for thread in threads:
            if thread is threading.current_thread():
                continue
            thread.join(deadline.remaining())
            if thread.is_alive():
                stuck.append(thread.name)
        return stuck
