"""How long to wait before the next try."""

import random

import pytest

from nsqclient.runtime.delays import (
    RateLimiter, exponential, full_jitter, jittered, lookup_delay, reconnect_delay, requeue_delay,
)


class _Fixed(random.Random):
    """A random source that always says the same."""

    def __init__(self, value):
        super().__init__()
        self._value = value

    def random(self):
        return self._value


LEAST, MOST = _Fixed(0.0), _Fixed(1.0)


@pytest.mark.parametrize("attempt, unit, seconds", [(0, 1.0, 1.0), (6, 1.0, 64.0), (3, 0.5, 4.0)])
def test_exponential_delays_double(attempt, unit, seconds):
    assert exponential(attempt, unit, LEAST) == seconds


@pytest.mark.parametrize("attempt", [61, 1024, 10**9])
def test_many_attempts_do_not_overflow(attempt):
    assert exponential(attempt, 1.0, MOST) == 2.0 ** 60
    assert full_jitter(attempt, 1.0, MOST) == 2.0 ** 60
    assert reconnect_delay(attempt, 60.0, LEAST) == 60.0


def test_full_jitter_is_between_zero_and_the_exponential_delay():
    assert full_jitter(3, 2.0, LEAST) == 0.0
    assert full_jitter(3, 2.0, _Fixed(0.25)) == 4.0
    assert full_jitter(3, 2.0, MOST) == 16.0


@pytest.mark.parametrize("attempts, seconds", [
    (0, 0.0), (1, 90.0), (2, 180.0), (10, 900.0), (11, 900.0), (65535, 900.0),
])
def test_the_requeue_delay_grows_up_to_its_limit(attempts, seconds):
    assert requeue_delay(attempts, 90.0, 900.0) == seconds


@pytest.mark.parametrize("failures, seconds", [
    (-1, 0.0), (0, 0.0), (1, 0.5), (2, 1.0), (3, 2.0), (7, 32.0), (8, 60.0), (9, 60.0),
])
def test_the_reconnect_delay_grows_up_to_its_limit(failures, seconds):
    """At once after a loss, then twice as long each time, up to a quarter less by chance."""
    assert reconnect_delay(failures, 60.0, LEAST) == seconds
    assert reconnect_delay(failures, 60.0, MOST) == seconds * 0.75


@pytest.mark.parametrize("rng, seconds", [(LEAST, 60.0), (_Fixed(0.5), 69.0), (MOST, 78.0)])
def test_a_jittered_interval_stays_near_its_length(rng, seconds):
    assert jittered(60.0, 0.3, rng) == pytest.approx(seconds)


@pytest.mark.parametrize("rounds, interval, seconds", [
    (1, 60.0, 1.0), (2, 60.0, 2.0), (3, 60.0, 4.0), (6, 60.0, 32.0), (7, 60.0, 60.0),
    (65535, 60.0, 60.0), (1, 0.2, 0.2), (0, 60.0, 60.0),
])
def test_lookups_come_soon_until_a_listed_nsqd_is_connected(rounds, interval, seconds):
    """1, 2, 4 ... s, up to the interval, each with jitter on top; 0 rounds: one is connected."""
    assert lookup_delay(rounds, interval, 0.3, LEAST) == seconds
    assert lookup_delay(rounds, interval, 0.3, MOST) == pytest.approx(1.3 * seconds)


def test_the_rate_limiter_saves_up_one_second_at_most():
    pace = RateLimiter(10, 0.0)
    assert pace.take(5, 0.0) == 1 and pace.take(5, 0.0) == 0
    assert pace.wait() == pytest.approx(0.1)
    assert pace.take(5, 0.3) == 3
    assert pace.take(50, 100.0) == 10
    slow = RateLimiter(0.5, 0.0)
    assert slow.take(1, 0.0) == 1 and slow.wait() == pytest.approx(2)
    assert slow.take(1, 1.9) == 0 and slow.take(5, 60.0) == 1
    assert RateLimiter(0, 0.0).take(5, 0.0) == 5 and RateLimiter(0, 0.0).wait() == 0
