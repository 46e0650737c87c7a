"""Which segments of a spool count, and how a batch is cut into tasks. Pure.

Every start takes an epoch and records the first number that it may use. A writer of an earlier
epoch that is still alive (its lock was lost with a network file system) may link segments from
that number on; readers of the new epoch know other rows under these numbers. Such a segment is a
*stray*: its messages are finished at nsqd, so they must be appended again, under new numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from nsqclient.spark.spool.names import SegmentName

_T = TypeVar("_T")


class ClassifiedSegments(NamedTuple):
    """Segments that count, by number, and strays."""

    valid: list[SegmentName]
    strays: list[SegmentName]


def classify_segments(
    segments: Iterable[SegmentName], epochs: Mapping[int, int]
) -> ClassifiedSegments:
    """Separate segments that count from strays.

    Args:
        epochs: epoch -> the first number it may use.
    """
    valid: list[SegmentName] = []
    strays: list[SegmentName] = []
    fences: dict[int, int | None] = {}  # epoch -> the first number that is a later one's
    for segment in sorted(segments):
        if segment.epoch not in fences:
            later = (first for epoch, first in epochs.items() if epoch > segment.epoch)
            fences[segment.epoch] = min(later, default=None)
        fence = fences[segment.epoch]
        (valid if fence is None or segment.number < fence else strays).append(segment)
    return ClassifiedSegments(valid, strays)


def next_number(
    segments: Iterable[SegmentName], epochs: Mapping[int, int], committed: int, at_least: int = 0
) -> int:
    """The first number that was never used, nor promised to Spark.

    Args:
        committed: what Spark has committed, as far as the spool knows.
        at_least: the highest number in Spark's own checkpoint.
    """
    used = [segment.number for segment in classify_segments(segments, epochs).valid]
    # A start that wrote nothing may all the same have had a number of its own in an offset.
    begun = [first - 1 for first in epochs.values()]
    return max([*used, *begun, committed, at_least]) + 1


def missing_numbers(have: Iterable[int], start: int, end: int) -> list[int]:
    """Numbers in ``(start, end]`` that are not there."""
    return sorted(set(range(start + 1, end + 1)).difference(have))


def ranges(numbers: Iterable[int]) -> str:
    """Write sorted numbers as a reader would: ``3..5, 9``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}..{b}" for a, b in parts)


def spread(
    parts: Iterable[tuple[_T, int]], count: int, most_bytes: int | None = None
) -> list[list[_T]]:
    """Cut a batch into runs of about the same number of bytes; none is empty.

    Args:
        parts: what is spread, in order, each with its bytes.
        count: how many runs, where there are so many parts.
        most_bytes: of a run, for which there may be more runs; a larger part is alone in one.
    """
    parts = list(parts)
    total = sum(size for _, size in parts)
    runs: list[list[_T]] = []
    before = in_run = 0
    for part, size in parts:
        # Where the middle of the part lies decides.
        is_share = len(runs) < count and (before + size / 2) * count >= total * len(runs)
        if is_share or (most_bytes is not None and in_run + size > most_bytes):
            runs.append([])
            in_run = 0
        runs[-1].append(part)
        in_run += size
        before += size
    return runs
