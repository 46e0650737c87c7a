"""``SegmentIndex``: the segments of a spool by number, with running totals. Pure.

A spool may hold tens of thousands of segments, and Spark asks about its newest ones several times
a second. So no method looks at more segments than it returns or removes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple

#: Rows and bytes of committed segments that are held because their FINs are not proven yet. Beyond
#: that the ids are saved in a list, and the segments are released.
MOST_KEPT_ROWS, MOST_KEPT_BYTES = 50_000, 1024 * 1024 * 1024


class Entry(NamedTuple):
    """A segment as the decisions see it."""

    number: int
    rows: int
    size: int  #: bytes of the file


class SegmentIndex:
    """Segments in the order of their numbers. Not thread-safe: the caller holds a lock."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        # Of the same segments: the number, and rows and bytes up to its end.
        self._numbers: list[int] = []
        self._rows: list[int] = []
        self._bytes: list[int] = []
        self._removed = (0, 0)  # rows and bytes of what was removed

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Add a segment; its number is higher than all that are there."""
        rows, size = self._before(len(self._entries))
        self._entries.append(entry)
        self._numbers.append(entry.number)
        self._rows.append(rows + entry.rows)
        self._bytes.append(size + entry.size)

    @property
    def numbers(self) -> list[int]:
        """The numbers of all segments that are there."""
        return list(self._numbers)

    def after(self, number: int) -> tuple[int, int]:
        """Rows and bytes of the segments after a number."""
        rows, size = self._before(bisect_right(self._numbers, number))
        all_rows, all_bytes = self._before(len(self._entries))
        return all_rows - rows, all_bytes - size

    def between(self, start: int, end: int) -> list[Entry]:
        """The segments in ``(start, end]``."""
        return self._entries[bisect_right(self._numbers, start):bisect_right(self._numbers, end)]

    def end_of_batch(self, start: int, max_rows: int | None, max_bytes: int | None) -> int:
        """The last segment of the batch after ``start``: at least one, if there is one.

        Args:
            max_rows, max_bytes: limits of a batch; None: none.
        """
        first = bisect_right(self._numbers, start)
        end = len(self._entries)
        if first == end:
            return start
        rows, size = self._before(first)
        if max_rows is not None:
            end = min(end, bisect_right(self._rows, rows + max_rows, first))
        if max_bytes is not None:
            end = min(end, bisect_right(self._bytes, size + max_bytes, first))
        return self._numbers[max(first, end - 1)]

    def to_release(
        self,
        released: int,
        committed: int,
        is_held: Callable[[int], bool],
        most_rows: int = MOST_KEPT_ROWS,
        most_bytes: int = MOST_KEPT_BYTES,
    ) -> int:
        """The last segment that is of no more use: the oldest are, up to the first held one.

        Args:
            released: this and those before were found so already.
            committed: up to here Spark asks for nothing any more.
            is_held: whether FINs of this segment are not proven yet.
        """
        end = bisect_right(self._numbers, committed)
        all_rows, all_bytes = self._before(end)
        for index in range(bisect_right(self._numbers, released), end):
            rows, size = self._before(index)
            is_kept = all_rows - rows <= most_rows and all_bytes - size <= most_bytes
            if is_kept and is_held(self._numbers[index]):
                break
            released = self._numbers[index]
        return released

    def last_beyond(self, end: int, most_bytes: int) -> int:
        """The last of the segments up to ``end`` that are more than its newest so many bytes.

        Returns: its number; 0 when all of them have no more bytes.
        """
        limit = self._before(bisect_right(self._numbers, end))[1] - most_bytes
        if limit <= self._removed[1]:
            return 0
        return self._numbers[bisect_left(self._bytes, limit)]

    def take_oldest(self, end: int, most: int | None = None) -> list[int]:
        """Remove segments up to ``end``, the oldest ones; return their numbers.

        Args:
            most: so many at most; None: all.
        """
        count = bisect_right(self._numbers, end)
        if most is not None:
            count = min(count, most)
        numbers = self._numbers[:count]
        self._removed = self._before(count)
        for values in (self._entries, self._numbers, self._rows, self._bytes):
            del values[:count]
        return numbers

    def _before(self, index: int) -> tuple[int, int]:
        """Rows and bytes of everything before a position, what was removed included."""
        return (self._rows[index - 1], self._bytes[index - 1]) if index else self._removed
