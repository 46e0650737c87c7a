"""Which of several destinations gets a message (``--mode``), and how long they take.

Each strategy gives an order in which to try all destinations (URLs, or addresses of nsqds).
Strategies are pure: time and randomness are arguments.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Iterable, Sequence

from nsqclient.runtime.deadline import format_duration

logger: logging.Logger = logging.getLogger("nsqclient.cli")

ALL = "all"
_AGGREGATE = "aggregate"


class RoundRobin:
    """One after the other, whether they work or not. Strategies are not thread-safe."""

    def __init__(self, destinations: Sequence[str], rng: random.Random) -> None:
        self._all = list(destinations)
        self._next = 0

    def order(self, now: float) -> list[str]:
        first = self._next % len(self._all)
        self._next = first + 1
        return self._all[first:] + self._all[:first]

    def report(self, destination: str, ok: bool, seconds: float, now: float) -> None:
        ...


class HostPool(RoundRobin):
    """Round robin over healthy destinations; a failed one pauses for a time that doubles."""

    #: Seconds that a destination pauses after its first failure, and at most.
    FIRST_PAUSE = 30.0
    LONGEST_PAUSE = 900.0

    def __init__(self, destinations: Sequence[str], rng: random.Random) -> None:
        super().__init__(destinations, rng)
        self._paused: dict[str, tuple[float, float]] = {}  # until when, how long

    def order(self, now: float) -> list[str]:
        turn = super().order(now)
        paused = {one for one, (until, _) in self._paused.items() if now < until}
        if len(paused) == len(turn):
            self._paused.clear()  # all have failed: start over
            paused = set()
        return [one for one in turn if one not in paused] + [
            one for one in turn if one in paused]

    def report(self, destination: str, ok: bool, seconds: float, now: float) -> None:
        if ok:
            self._paused.pop(destination, None)
            return
        until, pause = self._paused.get(destination, (0.0, 0.0))
        if now < until:
            return  # a request that was sent before the pause
        pause = min(max(self.FIRST_PAUSE, pause * 2), self.LONGEST_PAUSE)
        self._paused[destination] = (now + pause, pause)


class EpsilonGreedy(HostPool):
    """Mostly destinations that answer fast; sometimes any, to measure the others."""

    FIRST_EPSILON, LAST_EPSILON, DECAY = 0.3, 0.01, 0.9
    MEMORY = 100

    def __init__(self, destinations: Sequence[str], rng: random.Random) -> None:
        super().__init__(destinations, rng)
        self._rng = rng
        self._epsilon = self.FIRST_EPSILON
        self._mean: dict[str, tuple[int, float]] = {}  # answers, mean seconds

    def order(self, now: float) -> list[str]:
        turn = super().order(now)
        if self._rng.random() < self._epsilon:
            self._epsilon = max(self.LAST_EPSILON, self._epsilon * self.DECAY)
            return turn
        alive = [one for one in turn if now >= self._paused.get(one, (0.0, 0.0))[0]]
        known = [one for one in alive if one in self._mean]
        if not known:
            return turn
        weights = [1 / max(self._mean[one][1], 1e-6) for one in known]
        chosen = self._rng.choices(known, weights)[0]
        return [chosen, *(one for one in turn if one != chosen)]

    def report(self, destination: str, ok: bool, seconds: float, now: float) -> None:
        super().report(destination, ok, seconds, now)
        if ok:
            count, mean = self._mean.get(destination, (0, 0.0))
            count = min(count + 1, self.MEMORY)
            self._mean[destination] = (count, mean + (seconds - mean) / count)


STRATEGIES: dict[str, type[RoundRobin]] = {
    "hostpool": HostPool, "round-robin": RoundRobin, "epsilon-greedy": EpsilonGreedy,
}


class RequestTimes:
    """Collects durations, and logs percentiles after every ``every`` of a name, and of all names.

    ``every`` 0: never. With a single name only the aggregate is logged. Threads: any.
    """

    def __init__(self, names: Iterable[str], every: int) -> None:
        names = list(names)
        self._every = every
        self._lock = threading.Lock()
        self._seconds: dict[str, list[float]] = {_AGGREGATE: []}  # guarded by _lock
        if len(names) > 1:
            self._seconds.update({name: [] for name in names})
        if 0 < every < 100:
            logger.warning("use more than 100 status values for accurate percentiles"
                           " (configured with %d)", every)

    def add(self, name: str, seconds: float) -> None:
        if not self._every:
            return
        full = []
        with self._lock:
            for key in (_AGGREGATE, name):
                if key in self._seconds:
                    self._seconds[key].append(seconds)
                    if len(self._seconds[key]) >= self._every:
                        full.append((key, self._seconds[key]))
                        self._seconds[key] = []
        for key, values in full:
            logger.info("%s", describe(key, values))


def describe(name: str, values: list[float]) -> str:
    ordered = sorted(values)

    def percentile(part: float) -> str:
        return _short(ordered[max(0, math.ceil(part * len(ordered)) - 1)])

    return (f"[{name}]: finished {len(ordered)} - 99th: {percentile(0.99)} - 95th:"
            f" {percentile(0.95)} - avg: {_short(sum(ordered) / len(ordered))}")


def _short(seconds: float) -> str:
    return format_duration(round(seconds, 5))
