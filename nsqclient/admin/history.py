"""``Histories``: rates and their course over the last minutes, from counters. Pure.

A counter of nsqd starts again at 0 with nsqd; a rate is what was counted in between, per second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import NamedTuple

#: Points of a sparkline: three minutes at a round every two seconds.
POINTS = 90


class Sample(NamedTuple):
    """One counter at one moment; ``counts`` holds one for each nsqd."""

    counts: Mapping[str, int]
    depth: int


class _Track:
    __slots__ = ("counts", "rate", "rates", "depths")

    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {}
        self.rate: float | None = None
        self.rates: deque[float] = deque(maxlen=POINTS)
        self.depths: deque[int] = deque(maxlen=POINTS)


class Histories:
    """The history of many counters that are read in rounds.

    Threads: one at a time.
    """

    def __init__(self) -> None:
        self._tracks: dict[Hashable, _Track] = {}
        self._times: dict[str, float] = {}  # when each nsqd answered last

    def add_round(self, samples: Mapping[Hashable, Sample], times: Mapping[str, float]) -> None:
        """Take a round in; what is not in it any more is forgotten.

        Args:
            times: when each nsqd answered, in seconds on any clock that only goes forward.
        """
        elapsed = {
            node: at - self._times[node] for node, at in times.items() if node in self._times
        }
        self._tracks = {key: self._tracks.get(key) or _Track() for key in samples}
        for key, sample in samples.items():
            track = self._tracks[key]
            track.rate = _rate(track, sample.counts, elapsed)
            track.rates.append(track.rate or 0.0)
            track.depths.append(sample.depth)
            # An nsqd that is silent for a round keeps its count: its next rate is the average.
            track.counts = {**track.counts, **sample.counts}
        self._times = {**self._times, **times}

    def rate(self, key: Hashable) -> float | None:
        """Per second, over the last round; None while there was only one."""
        track = self._tracks.get(key)
        return None if track is None else track.rate

    def rates(self, key: Hashable) -> list[float]:
        """The last rates, oldest first."""
        track = self._tracks.get(key)
        return [] if track is None else [round(rate, 1) for rate in track.rates]

    def depths(self, key: Hashable) -> list[int]:
        """The last depths, oldest first."""
        track = self._tracks.get(key)
        return [] if track is None else list(track.depths)


def _rate(
    track: _Track, counts: Mapping[str, int], elapsed: Mapping[str, float]
) -> float | None:
    total, known = 0.0, False
    for node, count in counts.items():
        seconds = elapsed.get(node, 0.0)
        if seconds <= 0:
            continue
        # A topic that is new on an nsqd we know began at 0; so did one after a restart.
        before = track.counts.get(node, 0 if track.counts else count)
        known = True
        total += (count - before if count >= before else count) / seconds
    return round(total, 2) if known else None
