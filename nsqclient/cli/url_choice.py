"""Which of several URLs gets a message: the ``--mode`` of nsq_to_http.

Pure: the time and the random source are arguments. A destination is a URL; each strategy gives an
order in which to try all of them, so that a message finds one that lives.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


class Strategy(Protocol):
    """A way to choose. Not thread-safe: the caller holds a lock."""

    def order(self, now: float) -> list[str]:
        """All destinations, the one to try first in front."""
        ...

    def report(self, destination: str, ok: bool, seconds: float, now: float) -> None:
        """Tell how a try ended and how long it took."""
        ...


class RoundRobin:
    """One after the other, whatever becomes of them."""

    def __init__(self, destinations: Sequence[str], rng: random.Random) -> None:
        self._all = list(destinations)
        self._next = 0

    def order(self, now: float) -> list[str]:
        """Begin with the next one."""
        first = self._next % len(self._all)
        self._next = first + 1
        return self._all[first:] + self._all[:first]

    def report(self, destination: str, ok: bool, seconds: float, now: float) -> None:
        """Learn nothing."""


class HostPool(RoundRobin):
    """Round robin over those that live; a dead one rests for a time that doubles."""

    #: Seconds that a destination rests after its first failure, and at most.
    FIRST_REST = 30.0
    LONGEST_REST = 900.0

    def __init__(self, destinations: Sequence[str], rng: random.Random) -> None:
        super().__init__(destinations, rng)
        self._rests: dict[str, tuple[float, float]] = {}  # until when, how long

    def order(self, now: float) -> list[str]:
        """Those that live in turn, then the dead ones: the last hope of a message."""
        turn = super().order(now)
        resting = {one for one, (until, _) in self._rests.items() if now < until}
        if len(resting) == len(turn):
            self._rests.clear()  # all are dead: begin afresh
            resting = set()
        return [one for one in turn if one not in resting] + [
            one for one in turn if one in resting]

    def report(self, destination: str, ok: bool, seconds: float, now: float) -> None:
        """A success revives, a failure lets it rest."""
        if ok:
            self._rests.pop(destination, None)
            return
        until, rest = self._rests.get(destination, (0.0, 0.0))
        if now < until:
            return  # others that were on their way when it failed
        rest = min(max(self.FIRST_REST, rest * 2), self.LONGEST_REST)
        self._rests[destination] = (now + rest, rest)


class EpsilonGreedy(HostPool):
    """Mostly those that answer fast; now and then any, to learn how fast the others are."""

    FIRST_EPSILON, LAST_EPSILON, DECAY = 0.3, 0.01, 0.9
    #: The mean forgets what lies further back than so many answers.
    MEMORY = 100

    def __init__(self, destinations: Sequence[str], rng: random.Random) -> None:
        super().__init__(destinations, rng)
        self._rng = rng
        self._epsilon = self.FIRST_EPSILON
        self._mean: dict[str, tuple[int, float]] = {}  # answers, mean seconds

    def order(self, now: float) -> list[str]:
        """Put the chosen one in front of the living."""
        turn = super().order(now)
        if self._rng.random() < self._epsilon:
            self._epsilon = max(self.LAST_EPSILON, self._epsilon * self.DECAY)
            return turn
        alive = [one for one in turn if now >= self._rests.get(one, (0.0, 0.0))[0]]
        known = [one for one in alive if one in self._mean]
        if not known:
            return turn
        weights = [1 / max(self._mean[one][1], 1e-6) for one in known]
        chosen = self._rng.choices(known, weights)[0]
        return [chosen, *(one for one in turn if one != chosen)]

    def report(self, destination: str, ok: bool, seconds: float, now: float) -> None:
        """Learn how fast it is."""
        super().report(destination, ok, seconds, now)
        if ok:
            count, mean = self._mean.get(destination, (0, 0.0))
            count = min(count + 1, self.MEMORY)
            self._mean[destination] = (count, mean + (seconds - mean) / count)


#: Name of a mode -> strategy.
STRATEGIES: dict[str, type[RoundRobin]] = {
    "hostpool": HostPool, "round-robin": RoundRobin, "epsilon-greedy": EpsilonGreedy,
}
