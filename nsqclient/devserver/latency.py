"""End-to-end latencies of a channel: from publish to FIN, as the percentiles of a sliding window.

Pure: the clock is an argument.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

#: Latencies are counted in buckets, each 1 % wider than the one before; so is the error.
_STEP = math.log(1.01)


class LatencyWindow:
    """The latencies of the last half to whole ``seconds``, as nsqd keeps them.

    Args:
        percentiles: between 0 and 1, 1 included.
        seconds: length of the window, above 0.
        clock: returns the time in ns since the epoch.
    """

    def __init__(
        self, percentiles: Sequence[float], seconds: float, clock: Callable[[], int]
    ) -> None:
        self.percentiles = percentiles
        self._clock = clock
        self._half = round(seconds * 1e9 / 2)
        self._moved_at = clock()
        self._current: Counter[int] = Counter()
        self._previous: Counter[int] = Counter()

    def insert(self, timestamp: int) -> None:
        """Count a message that was published at ``timestamp`` (ns) and is finished now."""
        elapsed = self._move() - timestamp
        # A clock that was set back gives a negative one.
        self._current[math.ceil(math.log(elapsed) / _STEP) if elapsed > 0 else 0] += 1

    def buckets(self) -> Counter[int]:
        """Return how many messages of the window are in each bucket."""
        self._move()
        return self._current + self._previous

    def _move(self) -> int:
        """Forget values that have left the window; return the time."""
        now = self._clock()
        halves = (now - self._moved_at) // self._half
        if halves > 0:
            self._previous = self._current if halves == 1 else Counter()
            self._current = Counter()
            self._moved_at += halves * self._half
        return now


def summary(windows: Iterable[LatencyWindow | None]) -> dict[str, Any]:
    """Return ``e2e_processing_latency`` of /stats, of one channel or of all channels of a topic.

    Values in ns. ``percentiles`` is None if they are not kept.
    """
    kept = [window for window in windows if window is not None]
    if not kept:
        return {"count": 0, "percentiles": None}
    buckets: Counter[int] = Counter()
    for window in kept:
        buckets += window.buckets()
    count = sum(buckets.values())
    return {
        "count": count,
        "percentiles": [
            {"quantile": percentile, "value": _value_at(buckets, percentile * count)}
            for percentile in kept[0].percentiles
        ],
    }


def _value_at(buckets: Counter[int], rank: float) -> int:
    passed = 0
    for bucket in sorted(buckets):
        passed += buckets[bucket]
        if passed >= rank:
            return round(math.exp((bucket - 0.5) * _STEP)) if bucket else 0
    return 0
