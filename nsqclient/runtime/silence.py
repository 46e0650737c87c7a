"""``Silence``: how long nothing has happened, as far as that was watched. Pure."""

from __future__ import annotations


class Silence:
    """For how long nothing has happened, such as that a message came, as far as it was watched.

    A process that was suspended, or had no processor for a while, saw nothing of that time.

    Args:
        longest: the most seconds between two calls that count.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._since = self._seen = 0.0
        self._length = 0.0

    def watch(self, since: float, now: float) -> float:
        """Return the seconds of silence; ``since``: when something happened last."""
        if since != self._since:
            self._since = self._seen = since
            self._length = 0.0
        self._length += min(now - self._seen, self._longest)
        self._seen = now
        return self._length
