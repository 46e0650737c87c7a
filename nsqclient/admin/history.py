"""``Histories``: rates and their course over the last minutes, from counters. Pure.

A counter of nsqd starts again at 0 with nsqd; a rate is what was counted in between, per second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import NamedTuple

#: Points of a sparkline: three minutes at a round every two seconds.
POINTS = 90
#: Seconds for which the counters of an nsqd that is silent are kept.
_KEEP = 600.0


class Sample(NamedTuple):
    """One counter at one moment; ``counts`` holds one for each nsqd."""

    counts: Mapping[str, int]
    depth: int


class _Track:
    __slots__ = ("rate", "rates", "depths")

    def __init__(self) -> None:
        self.rate: float | None = None
        self.rates: deque[float] = deque(maxlen=POINTS)
        self.depths: deque[int] = deque(maxlen=POINTS)


class _Answer(NamedTuple):
    """The counters of one nsqd, and when it gave them."""

    at: float
    counts: dict[Hashable, int]


class Histories:
    """The history of many counters that are read in rounds.

    A rate is between two answers of the same nsqd, over the time between these two: another one's
    answer may have come seconds earlier or later.

    Threads: one at a time.
    """

    def __init__(self) -> None:
        self._tracks: dict[Hashable, _Track] = {}
        self._answers: dict[str, _Answer] = {}  # the last one of each nsqd

    def add_round(self, samples: Mapping[Hashable, Sample], times: Mapping[str, float]) -> None:
        """Take a round in; a counter that is not in it any more is forgotten.

        Args:
            times: when each nsqd answered, in seconds on any clock that only goes forward.
        """
        answers = {node: _Answer(at, {}) for node, at in times.items()}
        self._tracks = {key: self._tracks.get(key) or _Track() for key in samples}
        for key, sample in samples.items():
            track = self._tracks[key]
            track.rate = self._rate(key, sample.counts, times)
            track.rates.append(track.rate or 0.0)
            track.depths.append(sample.depth)
            for node, count in sample.counts.items():
                if node in answers:
                    answers[node].counts[key] = count
        # An nsqd that is silent for a round keeps its answer: its next rate is the average.
        self._answers |= answers
        newest = max(times.values(), default=0.0)
        self._answers = {
            node: answer for node, answer in self._answers.items()
            if newest - answer.at <= _KEEP
        }

    def _rate(
        self, key: Hashable, counts: Mapping[str, int], times: Mapping[str, float]
    ) -> float | None:
        total, known = 0.0, False
        for node, count in counts.items():
            last = self._answers.get(node)
            if last is None or node not in times or times[node] <= last.at:
                continue
            known = True
            # What is new on an nsqd that we know began at 0; so did everything after a restart.
            before = last.counts.get(key, 0)
            came = count - before if count >= before else count
            total += came / (times[node] - last.at)
        return round(total, 2) if known else None

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
