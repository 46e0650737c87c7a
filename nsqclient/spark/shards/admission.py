"""Offsets of Spark, and plans of batches. Pure.

The offset ``{"v": 2, "log": "topic/channel", "shards": {"host:4150": 812}}`` means that everything
up to segment 812 of that shard has been read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from nsqclient.errors import ConfigError
from nsqclient.spark.errors import LogMismatchError
from nsqclient.spark.shards.names import Segment
from nsqclient.spark.segment import ROW_BYTES

VERSION = 2


def make_offset(topic: str, channel: str, shards: Mapping[str, int]) -> dict[str, Any]:
    """Build an offset. Spark compares offsets as text, so the shards are sorted."""
    return {"v": VERSION, "log": f"{topic}/{channel}", "shards": dict(sorted(shards.items()))}


def read_offset(topic: str, channel: str, offset: Mapping[str, Any]) -> dict[str, int]:
    if offset.get("v") != VERSION:
        raise ConfigError(
            f"the checkpoint has offsets of version {offset.get('v')!r}, this version of nsqclient"
            f" reads {VERSION}")
    if offset.get("log") != f"{topic}/{channel}":
        raise LogMismatchError(
            f"{topic}/{channel}", f"the checkpoint belongs to {offset.get('log')}: use a new"
            " checkpoint folder for each topic and channel")
    return {nsqd: int(number) for nsqd, number in offset["shards"].items()}


_NUMBER, _BEFORE = attrgetter("number"), attrgetter("before")


class ShardSegments:
    """The segments of one shard that a query has not committed. Not thread-safe.

    The key of the next segment tells the rows of a segment. The rows of the newest segment are
    estimated from its size: rows are as large as in the segment before, or else empty.
    """

    def __init__(self, number: int) -> None:
        self._committed = number
        self._segments: list[Segment] = []  # in order; lost segments are missing
        self._bytes = [0]  # total size before each segment, and before the next one

    @property
    def first(self) -> int:
        return self._committed + 1

    @property
    def last(self) -> int:
        return self._segments[-1].number if self._segments else self._committed

    def add(self, segment: Segment) -> None:
        assert segment.number > self.last
        self._segments.append(segment)
        self._bytes.append(self._bytes[-1] + segment.size)

    def forget(self, number: int) -> None:
        count = self._index(number)
        self._committed = max(self._committed, min(number, self.last))
        del self._segments[:count], self._bytes[:count]

    def total(self, start: int, end: int) -> tuple[int, int]:
        low = self._index(start)
        high = max(low, self._index(end))
        return self._rows(high) - self._rows(low), self._bytes[high] - self._bytes[low]

    @property
    def largest(self) -> int:
        """The maximum rows of a segment, without the newest, whose rows are unknown."""
        return max((later.before - one.before
                    for one, later in zip(self._segments, self._segments[1:])), default=0)

    def between(self, start: int, end: int) -> list[Segment]:
        return self._segments[self._index(start):self._index(end)]

    def last_within(self, start: int, rows: float, size: float) -> int:
        """The last segment after ``start`` within this number of rows and bytes."""
        low, count = self._index(start), len(self._segments)
        end = bisect_right(self._bytes, self._bytes[low] + size, low + 1) - 1
        # The rows up to the end of a segment are those before the next one.
        limit = self._rows(low) + rows
        if self._rows(count) > limit:
            end = min(end, bisect_right(self._segments, limit, low + 1, key=_BEFORE) - 1)
        return self._segments[end - 1].number if end > low else start

    def _index(self, number: int) -> int:
        """The number of segments up to ``number``."""
        return bisect_right(self._segments, number, key=_NUMBER)

    def _rows(self, index: int) -> int:
        segments = self._segments
        if index < len(segments):
            return segments[index].before
        return segments[-1].before + self._estimate() if segments else 0

    def _estimate(self) -> int:
        size = self._segments[-1].size
        if len(self._segments) > 1:
            earlier = self._segments[-2]
            rows = self._segments[-1].before - earlier.before
            if rows and earlier.size:
                return max(1, round(size * rows / earlier.size))
        return max(1, size // ROW_BYTES)


def plan_batch(
    shards: Mapping[str, ShardSegments], start: Mapping[str, int], max_rows: int | None,
    max_bytes: int | None, limit: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Choose the end of a batch in each shard.

    Each shard gets one segment, so that large shards do not starve small ones. The rest of the
    batch is divided in proportion to the uncommitted bytes. If the limits are too small for one
    segment of each shard, successive batches begin with different shards. A batch has at least one
    segment, if any exists.

    Args:
        limit: the last segment of each shard that the batch may have; None: no limit.
    """
    lasts = {nsqd: max(start[nsqd], shards[nsqd].last if limit is None else
                       min(shards[nsqd].last, limit.get(nsqd, 0))) for nsqd in start}
    rows_left = float("inf") if max_rows is None else float(max_rows)
    bytes_left = float("inf") if max_bytes is None else float(max_bytes)
    sums = [shards[nsqd].total(start[nsqd], lasts[nsqd]) for nsqd in start]
    if sum(rows for rows, _ in sums) <= rows_left and sum(size for _, size in sums) <= bytes_left:
        return lasts
    names = sorted(nsqd for nsqd in start if lasts[nsqd] > start[nsqd])
    first = sum(start.values()) % len(names)
    names = names[first:] + names[:first]
    ends = dict(start)

    def give(nsqd: str, last: int, part: float = 1.0) -> None:
        nonlocal rows_left, bytes_left
        end = shards[nsqd].last_within(ends[nsqd], rows_left * part, bytes_left * part)
        end = max(ends[nsqd], min(last, end))
        rows, size = shards[nsqd].total(ends[nsqd], end)
        rows_left, bytes_left = rows_left - rows, bytes_left - size
        ends[nsqd] = end

    for nsqd in names:
        give(nsqd, start[nsqd] + 1)
    waiting = {nsqd: shards[nsqd].total(ends[nsqd], lasts[nsqd])[1] for nsqd in names}
    total = sum(waiting.values())
    for nsqd in sorted(names, key=waiting.__getitem__):  # the largest gets the rounding errors
        if waiting[nsqd]:
            give(nsqd, lasts[nsqd], waiting[nsqd] / total)
            total -= waiting[nsqd]
    for nsqd in names:
        give(nsqd, lasts[nsqd])
    if ends == dict(start):
        ends[names[0]] += 1
    return ends
