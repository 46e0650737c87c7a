"""``RateLimiter``: how many messages a tool may publish now. Pure."""

from __future__ import annotations


class RateLimiter:
    """A token bucket for a rate of messages per second; 0: no limit. Pure: ``now`` is an argument.

    It holds one second's messages, and one at the start, as in the original.
    """

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._tokens = 1.0
        self._at = now

    def take(self, wanted: int, now: float) -> int:
        """Take up to ``wanted`` tokens; return how many there were."""
        if not self._rate:
            return wanted
        self._tokens = min(self._rate, self._tokens + (now - self._at) * self._rate)
        self._at = now
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

    def wait(self) -> float:
        """Seconds until there is a token again, counted from the last ``take``."""
        return max(0.0, (1.0 - self._tokens) / self._rate) if self._rate else 0.0
