"""How long segments are kept that Spark has committed, and their deletion.

After a power failure Spark's sink and checkpoint may lack rows of the log, so committed
segments can be read again for a while. What counts is the time since the commit: before it a
segment is needed anyway, and it is Spark's files that are the younger ones. A start begins that
time again, because the machine may have been off for longer.
"""

from __future__ import annotations

from collections import deque

from nsqclient.spark.shards.listing import delete_older, list_segments, newest_note
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.storage.store import Store

#: A commit is joined with the one before, within this part of the time: it expires a little later.
_PART = 1000


class Retention:
    """The times of commits, until they expire. Not thread-safe: the caller holds a lock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._commits: deque[tuple[int, float]] = deque()  # the last segment, and when
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


def delete_committed(
    store: Store, keys: ShardKeys, committed: int, expired: int, most_bytes: int | None = None,
) -> tuple[int, int]:
    """Delete committed segments that are expired and that a note covers.

    Args:
        committed: the last segment that is noted as committed.
        expired: the last of these whose retention is over.
        most_bytes: of committed segments that are kept; the oldest go first. None: no limit.
    """
    clean_to = newest_note(store, keys).clean_to
    listed = list_segments(store, keys)
    if not listed:
        return 0, 0
    kept = 0  # bytes of committed segments, from the newest on
    for segment in reversed(listed):
        if segment.number <= committed and most_bytes is not None:
            kept += segment.size
            if kept > most_bytes:
                expired = max(expired, segment.number)
                break
    # Of segments behind the note a new writer needs the ids; the newest one has the next number.
    floor = max(0, min(committed, expired, clean_to, listed[-1].number - 1))
    gone = [segment for segment in listed if segment.number <= floor]
    if gone:
        # First the floor, which a writer looks at after a create, then the segments under it.
        store.create(keys.floor(floor), b"")
        store.delete(keys.segment(one.number, one.before) for one in gone)
        delete_older(store, keys.of("floors"), floor)
    return floor, sum(segment.size for segment in gone)
