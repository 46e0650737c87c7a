"""How long to wait before the next try: attempt in, seconds out."""

from __future__ import annotations

import random

# 2 ** 60 units is longer than any cap; larger exponents would overflow a float.
_MAX_EXPONENT = 60


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
    if failures <= 0:
        return 0.0
    delay: float = min(0.25 * 2 ** min(failures, _MAX_EXPONENT), maximum)
    return delay * (1 - 0.25 * rng.random())


def lookup_delay(
    unconnected_rounds: int, interval: float, jitter: float, rng: random.Random
) -> float:
    """Pause before nsqlookupds are asked again: 1 s, 2 s, 4 s ... up to the interval, jittered.

    ``unconnected_rounds`` is how many rounds began before any listed nsqd had been connected; 0:
    one is, or has been.
    """
    if 0 < unconnected_rounds <= _MAX_EXPONENT:
        interval = min(float(2 ** (unconnected_rounds - 1)), interval)
    return jittered(interval, jitter, rng)


def jittered(interval: float, jitter: float, rng: random.Random) -> float:
    """An interval with a random part of up to ``jitter`` times itself added."""
    return interval * (1 + jitter * rng.random())
