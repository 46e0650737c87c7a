"""``DialScheduler``: dials addresses in the background, with an equal share for each source.

A *source* names addresses. It is an nsqlookupd or the user. A source that names thousands of
addresses that do not answer delays only its own dials.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.threads import LibraryThread, keep_running

logger: logging.Logger = logging.getLogger("nsqclient.dialing")

K = TypeVar("K", bound=Hashable)

#: The source of the addresses that the user gave. No nsqlookupd has this name.
DIRECT = ""
#: Concurrent dials of one consumer or producer.
MAX_DIALS = 16
#: Seconds to wait after the system has refused to start a thread.
_NO_THREAD_PAUSE = 1.0


@dataclass(eq=False)
class _Queued:
    sources: Collection[str]
    rank: int  # within a source, the lowest is dialed first
    retry_at: float  # on time.monotonic()


class DialScheduler(Generic[K]):
    """Dials addresses in at most ``limit`` threads, which end if no address is due.

    Within a source, addresses that worked come first, then new addresses, then addresses whose last
    dial failed.

    Args:
        dial: dials an address and handles the result. Called on a dialing thread, without a lock.
        schedule: runs a function after a delay in seconds. Without it, the caller has to call
            ``dispatch()`` now and then.

    Lifecycle: usable immediately; ``close()``, then ``join()``. Threads: any. ``put`` and
    ``discard`` may be called with a lock held; call ``dispatch()`` afterwards without one.
    """

    def __init__(
        self,
        sources: Iterable[str],
        dial: Callable[[K], None],
        schedule: Callable[[float, Callable[[], None]], Any] = lambda delay, action: None,
        *,
        limit: int = MAX_DIALS,
        make_thread: Callable[[Callable[[], None], str], LibraryThread] = LibraryThread,
    ) -> None:
        self._dial = dial
        self._schedule = schedule
        self._make_thread = make_thread
        self._limit = limit
        self._lock = Lock()
        self._is_closed = False
        # Guarded by _lock, as all below.
        self._sources = deque(sources)  # the next one to dial comes first
        self._share = max(1, limit // max(1, len(self._sources)))
        self._queue: dict[K, _Queued] = {}
        self._under_way: dict[K, str] = {}  # the value is the source whose share the dial uses
        self._threads: list[LibraryThread] = []  # each dials, or is about to look for an address
        self._ending: list[LibraryThread] = []  # found no address; may still be alive
        self._thread_errors = LineLimit(1)
        self._will_retry = False

    def __contains__(self, key: K) -> bool:
        with self._lock:
            return key in self._queue or key in self._under_way

    def put(
        self, key: K, sources: Collection[str], *, has_worked: bool = False, failures: int = 0,
        retry_at: float = 0.0,
    ) -> None:
        """Queue an address. If it is queued already, only its sources change.

        Args:
            failures: dials in a row that failed.
            retry_at: on time.monotonic().
        """
        with self._lock:
            queued = self._queue.get(key)
            if queued is not None:
                queued.sources = sources
                return
            delay = retry_at - time.monotonic()
            if delay > 0:
                self._schedule(delay, self.dispatch)
            rank = 2 if failures else 0 if has_worked else 1
            self._queue[key] = _Queued(sources, rank, retry_at)

    def discard(self, key: K) -> None:
        with self._lock:
            self._queue.pop(key, None)

    def _next(self) -> tuple[K, str] | None:
        """Return an address to dial now and the source whose share it uses. Needs _lock."""
        if self._is_closed or len(self._under_way) >= self._limit:
            return None
        now = time.monotonic()
        for source in self._sources:
            if list(self._under_way.values()).count(source) >= self._share:
                continue
            due = [key for key, queued in self._queue.items()
                   if source in queued.sources and queued.retry_at <= now
                   and key not in self._under_way]
            if due:
                return min(due, key=lambda key: self._queue[key].rank), source
        return None

    def dispatch(self) -> None:
        """Start a thread if an address is due and no thread is free. Does not block.

        Each thread starts the next one. If the system refuses a thread, this is tried again later.
        """
        thread: LibraryThread | None = None
        try:
            with self._lock:
                if len(self._threads) > len(self._under_way) or self._next() is None:
                    return
                thread = self._make_thread(lambda: self._run(thread), "nsq-dialer-")
                self._threads.append(thread)
            thread.launch()
        except BaseException as exc:
            with self._lock:
                self._threads = [other for other in self._threads if other is not thread]
                if not self._will_retry:
                    self._schedule(_NO_THREAD_PAUSE, self._retry)
                    self._will_retry = True
            if not isinstance(exc, RuntimeError):  # raised by a signal handler
                raise
            logger.log(self._thread_errors.level(logging.ERROR),
                       "cannot start a thread to dial, trying again: %s", exc)

    def _retry(self) -> None:
        self._will_retry = False
        self.dispatch()

    def _run(self, thread: LibraryThread | None) -> None:
        assert thread is not None
        with self._lock:
            if thread not in self._threads:  # launch() was interrupted
                self._threads.append(thread)
        keep_running(lambda: self._dial_all(thread), lambda error: logger.error(
            "%s: unexpected error while dialing", thread.name, exc_info=error))

    def _dial_all(self, thread: LibraryThread) -> None:
        while True:
            with self._lock:
                found = self._next()
                if found is None:
                    self._ending = [other for other in self._ending if other.is_alive()]
                    self._ending.append(thread)
                    self._threads.remove(thread)
                    return
                key, source = found
                self._sources.remove(source)
                self._sources.append(source)
                del self._queue[key]
                self._under_way[key] = source
            try:
                self.dispatch()
                thread.name = f"nsq-dialer-{key}"
                self._dial(key)
            finally:
                with self._lock:
                    del self._under_way[key]

    def is_dialer(self) -> bool:
        return threading.current_thread() in self._threads

    def close(self) -> None:
        """Dial no further address. Dials that are under way continue. Idempotent.

        Does not take the lock, because a search through thousands of addresses holds it for long.
        """
        self._is_closed = True

    def join(self, deadline: Deadline) -> list[str]:
        """Wait for the dials under way, except the calling thread's. Call ``close()`` first.

        Returns: the names of threads that did not end in time.
        """
        with self._lock:
            threads = [*self._threads, *self._ending]
        stuck = []
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(deadline.remaining())
                if thread.is_alive():
                    stuck.append(thread.name)
        return stuck
