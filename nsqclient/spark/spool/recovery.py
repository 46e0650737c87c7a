"""What a listing of a spool folder means: which segments count, and which were written too late.

Every start takes an epoch and notes the first number that it may use. A writer of an earlier
epoch that is still alive (its lock was lost with a network file system) may link segments from
that number on; readers of the new epoch know other rows under these numbers. Such a segment is a
*stray*: its messages are finished at nsqd, so they must be appended again, under new numbers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nsqclient.spark.spool.names import SegmentName


class Sorted(NamedTuple):
    """Segments that count, by number, and strays."""

    valid: list[SegmentName]
    strays: list[SegmentName]


def sort_out(segments: Iterable[SegmentName], epochs: Mapping[int, int]) -> Sorted:
    """Tell segments that count from strays.

    Args:
        epochs: epoch -> the first number it may use.
    """
    valid: list[SegmentName] = []
    strays: list[SegmentName] = []
    for segment in sorted(segments):
        fenced = any(
            epoch > segment.epoch and first <= segment.number for epoch, first in epochs.items()
        )
        (strays if fenced else valid).append(segment)
    return Sorted(valid, strays)


def next_number(
    segments: Iterable[SegmentName], epochs: Mapping[int, int], committed: int, at_least: int = 0
) -> int:
    """The first number that nobody has used, or could have promised to Spark.

    Args:
        committed: what Spark has committed, as far as the spool knows.
        at_least: the highest number in Spark's own checkpoint.
    """
    used = [segment.number for segment in sort_out(segments, epochs).valid]
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
