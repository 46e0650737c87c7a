"""``DialQueue``: which address is dialed next. It decides, and dials nothing.

Addresses come from *sources*: each nsqlookupd is one, and the addresses that the user gave are
another. Every source may use an equal share of the dials that are under way at once, and nothing
of the others' shares: so a source that names thousands of silent addresses delays only its own.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: The source of the addresses that the user gave; no nsqlookupd has this name.
DIRECT = ""


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


@dataclass
class _Wanted:
    """An address that is to be dialed."""

    sources: Collection[str]
    standing: Standing
    retry_at: float
    number: int  # the order of arrival
    is_due: bool = False  # it is in the lists of its sources


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
    """Addresses to be dialed, and those that are being dialed.

    Args:
        limit: dials under way at once.
        sources: the names of all sources, each of which gets the same part of ``limit``, one at
            least. Sources take turns; what several of them name counts for one.

    ``now`` and ``retry_at`` are times of one clock. Not thread-safe: the caller holds a lock.
    """

    def __init__(self, limit: int, sources: Iterable[str]) -> None:
        self._sources: dict[str, _Source[K]] = {source: _Source() for source in sources}
        self._turns = deque(self._sources)
        self._limit = limit
        self._share = max(1, limit // max(1, len(self._sources)))
        self._wanted: dict[K, _Wanted] = {}
        self._waiting: list[tuple[float, int, K]] = []  # a heap of what waits for its retry_at
        self._order = itertools.count()
        self._under_way: dict[K, str] = {}  # and the source for which it counts

    def __contains__(self, key: K) -> bool:
        """Return whether it is queued or under way."""
        return key in self._wanted or key in self._under_way

    @property
    def under_way(self) -> int:
        """How many are being dialed."""
        return len(self._under_way)

    def put(
        self, key: K, sources: Collection[str], standing: Standing, retry_at: float = 0.0
    ) -> None:
        """Have it dialed, not before ``retry_at``; of two calls for one address the last counts.

        An address that is being dialed is queued when that dial has ended.
        """
        self._remove(key)
        number = next(self._order)
        # Noted last: when a signal handler raises before that, the next call repairs it.
        if key not in self._under_way:
            heapq.heappush(self._waiting, (retry_at, number, key))
        self._wanted[key] = _Wanted(sources, standing, retry_at, number)

    def set_sources(self, key: K, sources: Collection[str]) -> None:
        """Note that these sources name it now; it keeps its place in the order."""
        wanted = self._wanted.get(key)
        if wanted is None:
            return
        before, wanted.sources = wanted.sources, sources
        if wanted.is_due:
            for source in set(before).difference(sources):
                self._sources[source].remove(key)
            for source in set(sources).difference(before):
                self._sources[source].add(key, wanted.standing)

    def discard(self, key: K) -> None:
        """Dial it no more; a dial that is under way goes on."""
        self._remove(key)

    def clear(self) -> None:
        """Dial nothing more."""
        for key in list(self._wanted):
            self._remove(key)
        self._waiting.clear()

    def take(self, now: float) -> K | None:
        """Return the address to dial now; None when there is none. Call ``finish`` afterwards."""
        if len(self._under_way) >= self._limit:
            return None
        self._move_due(now)
        for _ in range(len(self._turns)):
            name = self._turns[0]
            self._turns.rotate(-1)
            source = self._sources[name]
            if source.under_way >= self._share:
                continue
            key = source.first()
            if key is not None:
                self._remove(key)
                self._under_way[key] = name
                source.under_way += 1
                return key
        return None

    def finish(self, key: K) -> None:
        """Its dial has ended, well or not."""
        self._sources[self._under_way.pop(key)].under_way -= 1
        wanted = self._wanted.get(key)
        if wanted is not None:
            heapq.heappush(self._waiting, (wanted.retry_at, wanted.number, key))

    def count_ready(self, now: float) -> int:
        """How many could be taken now; an address of several sources may count for each."""
        self._move_due(now)
        ready = sum(
            min(self._share - source.under_way, len(source)) for source in self._sources.values()
        )
        return min(ready, self._limit - len(self._under_way))

    def next_due(self) -> float | None:
        """When the next address that waits for its ``retry_at`` may be dialed; None: none waits."""
        while self._waiting:
            retry_at, number, key = self._waiting[0]
            wanted = self._wanted.get(key)
            if wanted is not None and wanted.number == number:
                return retry_at
            heapq.heappop(self._waiting)  # dropped meanwhile, or put anew
        return None

    def _move_due(self, now: float) -> None:
        """Hand those whose time has come to their sources."""
        due = self.next_due()
        while due is not None and due <= now:
            key = self._waiting[0][2]
            wanted = self._wanted[key]
            for source in wanted.sources:
                self._sources[source].add(key, wanted.standing)
            wanted.is_due = True
            # Last: after an exception from a signal handler all this is done once more.
            heapq.heappop(self._waiting)
            due = self.next_due()

    def _remove(self, key: K) -> None:
        wanted = self._wanted.pop(key, None)
        if wanted is not None:
            for source in wanted.sources:
                self._sources[source].remove(key)
