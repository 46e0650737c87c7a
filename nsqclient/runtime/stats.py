"""``Health`` and ``Histogram``: the state of an object in figures."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from nsqclient.runtime.lock import Lock

#: Upper bounds in seconds for the time of a publish or a handler: 0.1 ms to 5 min.
LATENCY_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 300.0,
)


@dataclass(frozen=True)
class Health:
    """Whether a consumer can receive, or a producer can publish, and why."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class HistogramSnapshot:
    bounds: tuple[float, ...]  #: ascending upper bounds; the last bucket is unbounded
    counts: tuple[int, ...]  #: number of values in each bucket
    sum: float  #: sum of all values

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Return for each bucket how many values are at most its bound."""
        return list(accumulate(self.counts))


class Histogram:
    """Counts values in buckets with ascending upper bounds. Threads: any."""

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS) -> None:
        self._bounds = tuple(bounds)
        self._lock = Lock()
        self._counts = [0] * (len(self._bounds) + 1)  # guarded by _lock, as _sum
        self._sum = 0.0

    def observe(self, *values: float) -> None:
        """Count values. About a microsecond."""
        indexes = [bisect_left(self._bounds, value) for value in values]
        with self._lock:
            for index in indexes:
                self._counts[index] += 1
            self._sum += sum(values)

    def snapshot(self) -> HistogramSnapshot:
        with self._lock:
            return HistogramSnapshot(self._bounds, tuple(self._counts), self._sum)
