"""How long to wait before the next try: attempt in, seconds out. All delays are computed here."""

from __future__ import annotations

import random

# 2 ** 60 units is longer than any cap; larger exponents would overflow a float.
_MAX_EXPONENT = 60


def growing_delay(
    tries: int, base: float, factor: float, maximum: float, jitter: float, rng: random.Random
) -> float:
    """``base`` after the first try, ``factor`` times as long after each further one.

    Args:
        tries: how many have failed; below 1 counts as 1.
        maximum: seconds at most.
        jitter: the part of the delay, 0 to 1, that is left out by chance, so that what failed
            together does not come again together. 1: any time up to the delay.
    """
    try:
        delay = min(base * factor ** max(tries - 1, 0), maximum)
    except OverflowError:
        delay = maximum if base else 0.0
    return delay * (1 - jitter * rng.random())


def exponential(attempt: int, unit: float, rng: random.Random) -> float:
    """``unit`` times 2 to the power of ``attempt``, as go-nsq's ExponentialStrategy."""
    return unit * float(2 ** min(attempt, _MAX_EXPONENT))


def full_jitter(attempt: int, unit: float, rng: random.Random) -> float:
    """A random share of the exponential delay, as go-nsq's FullJitterStrategy."""
    return rng.random() * exponential(attempt, unit, rng)


def requeue_delay(attempts: int, default: float, maximum: float) -> float:
    """Delay of an automatic requeue: ``default`` for each delivery so far, at most ``maximum``."""
    return min(default * attempts, maximum)


def reconnect_delay(failures: int, maximum: float, rng: random.Random) -> float:
    """Pause before dialing an address again: none after the first loss, then 0.5 s, 1 s, 2 s...

    Spread by up to a quarter, so that many clients of a restarted nsqd do not come at once.
    """
    return growing_delay(failures, 0.5, 2.0, maximum, 0.25, rng) if failures > 0 else 0.0


def lookup_delay(
    unconnected_rounds: int, interval: float, jitter: float, rng: random.Random
) -> float:
    """Pause before nsqlookupds are asked again: 1 s, 2 s, 4 s ... up to the interval, jittered.

    ``unconnected_rounds`` is how many rounds began before any listed nsqd had been connected; 0:
    one is, or has been.
    """
    if unconnected_rounds > 0:
        interval = growing_delay(unconnected_rounds, 1.0, 2.0, interval, 0.0, rng)
    return jittered(interval, jitter, rng)


def jittered(interval: float, jitter: float, rng: random.Random) -> float:
    """An interval with a random part of up to ``jitter`` times itself added."""
    return interval * (1 + jitter * rng.random())


class RateLimiter:
    """A token bucket. Pure: ``now`` is an argument. It has one token at the start.

    Args:
        rate: tokens per second; 0: no limit.
        burst: tokens that it saves up at most, 1 or more; None: those of one second.
    """

    def __init__(self, rate: float, now: float, burst: float | None = None) -> None:
        self._rate = rate
        self._burst = max(1.0, rate if burst is None else burst)
        self._tokens = 1.0
        self._at = now

    def take(self, wanted: int, now: float) -> int:
        """Take up to ``wanted`` tokens; return how many there were."""
        if not self._rate:
            return wanted
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        taken = min(wanted, int(self._tokens + 1e-6))  # sums of times are not exact
        self._tokens -= taken
        return taken

    def wait(self) -> float:
        """Seconds until there is a token again, counted from the last ``take``."""
        return max(0.0, (1.0 - self._tokens) / self._rate) if self._rate else 0.0
