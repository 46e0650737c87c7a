"""Seconds to wait before the next attempt. All delays are computed here."""

from __future__ import annotations

import random

# 2 ** 60 units is longer than any limit; larger exponents would overflow a float.
_MAX_EXPONENT = 60


def growing_delay(
    tries: int, base: float, factor: float, maximum: float, jitter: float, rng: random.Random
) -> float:
    """``base`` seconds after the first try, ``factor`` times as long after each further one.

    Args:
        jitter: the largest part of the delay, 0 to 1, that is subtracted at random, so that clients
            that failed together do not retry together.
    """
    try:
        delay = min(base * factor ** max(tries - 1, 0), maximum)
    except OverflowError:
        delay = maximum if base else 0.0
    return delay * (1 - jitter * rng.random())


def exponential(attempt: int, unit: float, rng: random.Random) -> float:
    """``unit`` times 2 to the power of ``attempt``, like go-nsq's ExponentialStrategy."""
    return unit * float(2 ** min(attempt, _MAX_EXPONENT))


def full_jitter(attempt: int, unit: float, rng: random.Random) -> float:
    """A random share of the exponential delay, like go-nsq's FullJitterStrategy."""
    return rng.random() * exponential(attempt, unit, rng)


def requeue_delay(attempts: int, default: float, maximum: float) -> float:
    return min(default * attempts, maximum)


def reconnect_delay(failures: int, maximum: float, rng: random.Random) -> float:
    """Pause before dialing an address again: 0 after the first loss, then 0.5 s, 1 s, 2 s...

    A random part, up to a quarter, is subtracted.
    """
    return growing_delay(failures, 0.5, 2.0, maximum, 0.25, rng) if failures > 0 else 0.0


def lookup_delay(
    unconnected_rounds: int, interval: float, jitter: float, rng: random.Random
) -> float:
    """Pause before the next round of lookups.

    Args:
        unconnected_rounds: rounds that began before any listed nsqd had been connected. They pause
            1 s, 2 s, 4 s... up to the interval.
    """
    if unconnected_rounds > 0:
        interval = growing_delay(unconnected_rounds, 1.0, 2.0, interval, 0.0, rng)
    return jittered(interval, jitter, rng)


def jittered(interval: float, jitter: float, rng: random.Random) -> float:
    return interval * (1 + jitter * rng.random())


class RateLimiter:
    """A token bucket that starts with one token.

    Args:
        rate: tokens per second; 0: no limit.
        burst: maximum number of saved tokens; None: the tokens of one second.
    """

    def __init__(self, rate: float, now: float, burst: float | None = None) -> None:
        self._rate = rate
        self._burst = max(1.0, rate if burst is None else burst)
        self._tokens = 1.0
        self._at = now

    def take(self, wanted: int, now: float) -> int:
        if not self._rate:
            return wanted
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        taken = min(wanted, int(self._tokens + 1e-6))  # floating-point sums are not exact
        self._tokens -= taken
        return taken

    def wait(self) -> float:
        """Seconds from the last ``take`` until the next token."""
        return max(0.0, (1.0 - self._tokens) / self._rate) if self._rate else 0.0
