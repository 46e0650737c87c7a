"""``Retention``: how long segments are kept that Spark has committed. Pure.

After a power failure Spark's sink and checkpoint may lack what the log has, so committed
segments can be read again for a while. What counts is the time since the commit: before it a
segment is needed anyway, and it is Spark's files that are the younger ones. A start begins that
time anew, since the machine may have been off for longer.
"""

from __future__ import annotations

from collections import deque

#: A commit is joined with the one before, within this part of the time: it expires a little later.
_PART = 1000


class Retention:
    """The times of commits, until they expire. Not thread-safe: the caller holds a lock.

    Args:
        seconds: how long; 0: not at all.
        most_bytes: of committed segments that are kept.
    """

    def __init__(self, seconds: float = 0.0, most_bytes: int = 0) -> None:
        self.most_bytes = most_bytes
        self._seconds = seconds
        self._commits: deque[tuple[int, float]] = deque()  # the last segment, and when
        self._expired = 0

    def __len__(self) -> int:
        """How many times are remembered."""
        return len(self._commits)

    def restart(self, number: int, now: float) -> None:
        """A run begins; what was committed before, up to ``number``, counts from now on."""
        self._commits = deque([(number, now)])
        self._expired = 0

    def committed(self, number: int, now: float) -> None:
        """Spark has committed everything up to ``number``. ``now`` is any rising clock."""
        commits = self._commits
        if len(commits) > 1 and now - commits[-2][1] < self._seconds / _PART:
            commits.pop()
        commits.append((number, now))

    def expired(self, now: float) -> int:
        """The last segment that was committed so long ago; 0: none."""
        while self._commits and now - self._commits[0][1] >= self._seconds:
            self._expired = self._commits.popleft()[0]
        return self._expired
