"""Dials in the background: ``DialQueue`` decides which address comes next, ``DialScheduler`` dials.

Addresses come from *sources*: each nsqlookupd is one, and the addresses that the user gave are
another. Every source may use an equal share of the dials that are under way at once, and nothing
of the others' shares: so a source that names thousands of silent addresses delays only its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread, keep_running

logger: logging.Logger = logging.getLogger("nsqclient.dialing")

K = TypeVar("K", bound=Hashable)

#: The source of the addresses that the user gave; no nsqlookupd has this name.
DIRECT = ""
#: Dials under way at once for one consumer or producer.
MAX_DIALS = 16
#: Seconds until it is tried again to start a thread, where the system had none left.
_NO_THREAD_PAUSE = 1.0


class Standing(IntEnum):
    """What is known of an address, in the order of dialing."""

    LOST = 0  #: it worked, and has not failed since
    FAILING = 1  #: it worked once, and its last dial failed
    UNTRIED = 2
    FAILED = 3  #: it never worked


def standing_of(has_worked: bool, failures: int) -> Standing:
    """Classify an address by what its dials led to; ``failures`` is how many failed in a row."""
    if has_worked:
        return Standing.FAILING if failures else Standing.LOST
    return Standing.FAILED if failures else Standing.UNTRIED


@dataclass(eq=False)
class _Wanted:
    """That an address is to be dialed."""

    sources: Collection[str]
    standing: Standing


class _Source(Generic[K]):
    """The addresses of one source that may be dialed now, by standing, each first come first."""

    def __init__(self) -> None:
        self.under_way = 0  # dials that count as its own
        self._due: tuple[OrderedDict[K, None], ...] = tuple(OrderedDict() for _ in Standing)
        self._last_was_failing = False

    def __len__(self) -> int:
        return sum(map(len, self._due))

    def add(self, key: K, standing: Standing) -> None:
        self._due[standing][key] = None

    def remove(self, key: K) -> None:
        for due in self._due:
            due.pop(key, None)

    def first(self) -> K | None:
        """Return what comes next; None when nothing is due.

        An address that worked comes first. Where it goes on failing it takes every second dial, so
        that many of these leave dials to the others.
        """
        lost, failing, untried, failed = self._due
        takes_turn = bool(failing) and not (self._last_was_failing and (untried or failed))
        for due in (lost, failing if takes_turn else untried, untried, failed):
            if due:
                self._last_was_failing = due is failing
                return next(iter(due))
        return None


class DialQueue(Generic[K]):
    """Addresses to be dialed, and those that are being dialed. It decides, and dials nothing.

    Args:
        limit: dials under way at once.
        sources: the names of all sources, each of which gets the same part of ``limit``, one at
            least. Sources take turns; what several of them name counts for one.

    Not thread-safe: the caller holds a lock.
    """

    def __init__(self, limit: int, sources: Iterable[str]) -> None:
        self._sources: dict[str, _Source[K]] = {source: _Source() for source in sources}
        self._turns = deque(self._sources)
        self._limit = limit
        self._share = max(1, limit // max(1, len(self._sources)))
        self._wanted: dict[K, _Wanted] = {}
        self._under_way: dict[K, str] = {}  # and the source for which it counts

    def __contains__(self, key: K) -> bool:
        """Return whether it is queued or under way."""
        return key in self._wanted or key in self._under_way

    @property
    def under_way(self) -> int:
        """How many are being dialed."""
        return len(self._under_way)

    def put(self, key: K, sources: Collection[str], standing: Standing) -> None:
        """Have it dialed; of two calls for one address the last counts.

        An address that is being dialed is queued when that dial has ended.
        """
        self.discard(key)
        wanted = _Wanted(sources, standing)
        if key not in self._under_way:
            self._add(key, wanted)
        # Noted last: when a signal handler raises before that, the next call repairs it.
        self._wanted[key] = wanted

    def _add(self, key: K, wanted: _Wanted) -> None:
        for source in wanted.sources:
            self._sources[source].add(key, wanted.standing)

    def set_sources(self, key: K, sources: Collection[str]) -> None:
        """Note that these sources name it now; it keeps its place in the order."""
        wanted = self._wanted.get(key)
        if wanted is None:
            return
        before, wanted.sources = wanted.sources, sources
        if key not in self._under_way:
            for source in set(before).difference(sources):
                self._sources[source].remove(key)
            for source in set(sources).difference(before):
                self._sources[source].add(key, wanted.standing)

    def discard(self, key: K) -> None:
        """Dial it no more; a dial that is under way goes on."""
        self._wanted.pop(key, None)
        for source in self._sources.values():
            source.remove(key)

    def take(self) -> K | None:
        """Return the address to dial now; None when there is none. Call ``finish`` afterwards."""
        if len(self._under_way) >= self._limit:
            return None
        for _ in range(len(self._turns)):
            name = self._turns[0]
            self._turns.rotate(-1)
            source = self._sources[name]
            if source.under_way >= self._share:
                continue
            key = source.first()
            if key is not None:
                self.discard(key)
                self._under_way[key] = name
                source.under_way += 1
                return key
        return None

    def finish(self, key: K) -> None:
        """Its dial has ended, well or not."""
        self._sources[self._under_way.pop(key)].under_way -= 1
        if key in self._wanted:
            self._add(key, self._wanted[key])

    def count_ready(self) -> int:
        """How many could be taken now; an address of several sources may count for each."""
        ready = sum(
            min(self._share - source.under_way, len(source)) for source in self._sources.values()
        )
        return min(ready, self._limit - len(self._under_way))


class DialScheduler(Generic[K]):
    """Dials addresses in threads of its own, ``limit`` of them at most.

    A thread is started when there is something to dial, and ends when nothing is left. Addresses
    that rest need none.

    Args:
        sources: the names of all sources; see :class:`DialQueue`.
        dial: dials an address; what that led to is its business. May block; on a dialing thread,
            without a lock.
        schedule: runs a function so many seconds later; None where no address rests, and the
            caller calls ``dispatch()`` now and then.

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
        self._resting: dict[K, _Wanted] = {}  # each is put into the queue by the timer
        self._has_no_thread = False  # the last one could not be started
        self._comes_again = False  # dispatch() comes by itself
        self._is_closed = False

    def __contains__(self, key: K) -> bool:
        """Return whether it is to be dialed, or is being dialed."""
        with self._lock:
            return key in self._queue or key in self._resting

    def put(
        self, key: K, sources: Collection[str], standing: Standing, retry_at: float = 0.0
    ) -> None:
        """Have it dialed, not before ``retry_at`` on time.monotonic().

        Of two calls for one address the last counts.
        """
        with self._lock:
            if self._is_closed:
                return
            self._resting.pop(key, None)
            delay = retry_at - time.monotonic()
            if delay <= 0:
                self._queue.put(key, sources, standing)
                return
            self._queue.discard(key)
            assert self._schedule is not None
            wanted = _Wanted(sources, standing)
            self._schedule(delay, lambda: self._on_rested(key, wanted))
            self._resting[key] = wanted

    def _on_rested(self, key: K, wanted: _Wanted) -> None:
        with self._lock:
            if self._resting.get(key) is not wanted or self._is_closed:
                return  # dropped meanwhile, or put anew
            del self._resting[key]
            self._queue.put(key, wanted.sources, wanted.standing)
        self.dispatch()

    def set_sources(self, key: K, sources: Collection[str]) -> None:
        """Note that these sources name it now."""
        with self._lock:
            self._queue.set_sources(key, sources)
            if key in self._resting:
                self._resting[key].sources = sources

    def discard(self, key: K) -> None:
        """Dial it no more; a dial that is under way goes on."""
        with self._lock:
            self._queue.discard(key)
            self._resting.pop(key, None)

    def dispatch(self) -> None:
        """Start the threads that are needed for what is due. Does not block.

        Where there is none to be had, this is logged, and tried again later.
        """
        while self._start_thread():
            pass
        with self._lock:
            if self._has_no_thread and self._schedule is not None and not self._comes_again:
                self._schedule(_NO_THREAD_PAUSE, self._dispatch_again)
                self._comes_again = True

    def _dispatch_again(self) -> None:
        self._comes_again = False
        self.dispatch()

    def _start_thread(self) -> bool:
        """Start one more thread if there is something for it to do; return whether it did."""
        thread: LibraryThread | None = None
        try:
            with self._lock:
                # Those that dial nothing at this moment are about to take something.
                idle = len(self._threads) - self._queue.under_way
                if self._is_closed or self._queue.count_ready() <= idle:
                    return False
                thread = self._make_thread(lambda: self._run(thread), "nsq-dialer-")
                self._threads.append(thread)
            thread.launch()
        except BaseException as exc:
            with self._lock:
                self._forget(thread)
                is_known, self._has_no_thread = self._has_no_thread, isinstance(exc, RuntimeError)
            if not self._has_no_thread:  # of a signal handler; where the thread starts, it notes it
                raise
            if not is_known:
                logger.error("no thread to dial, trying again: %s", str(exc))  # not its frames
            return False
        self._has_no_thread = False
        return True

    def _forget(self, thread: LibraryThread | None) -> None:
        """Needs _lock."""
        self._threads = [other for other in self._threads if other is not thread]

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
                key = None if self._is_closed else self._queue.take()
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
