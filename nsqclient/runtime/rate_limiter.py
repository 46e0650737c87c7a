"""``RateLimiter``: how many operations may begin now: a token bucket. Pure."""

from __future__ import annotations


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
