"""The token bucket, by value."""

from __future__ import annotations

import pytest

from nsqclient.runtime.rate_limiter import RateLimiter


def test_the_rate_limiter_saves_up_one_second_at_most():
    """One at once, then the rate; a pause saves up one second's messages at most."""
    pace = RateLimiter(10, 0.0)
    assert pace.take(5, 0.0) == 1 and pace.take(5, 0.0) == 0
    assert pace.wait() == pytest.approx(0.1)
    assert pace.take(5, 0.3) == 3
    assert pace.take(50, 100.0) == 10
    slow = RateLimiter(0.5, 0.0)
    assert slow.take(1, 0.0) == 1 and slow.wait() == pytest.approx(2)
    assert slow.take(1, 1.9) == 0 and slow.take(5, 60.0) == 1
    assert RateLimiter(0, 0.0).take(5, 0.0) == 5 and RateLimiter(0, 0.0).wait() == 0
