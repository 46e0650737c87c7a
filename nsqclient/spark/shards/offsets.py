"""Where in the log of a shard reading begins and ends: by a word, a number or a time. Pure.

An offset is the number of a segment, and means everything up to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from nsqclient.spark.options import Offset, ReadOptions


class Bound(NamedTuple):
    """A place in a log."""

    kind: str  #: "committed", "earliest", "latest", "seq" or "time"
    value: float = 0  #: the number of a segment, or seconds since 1970


COMMITTED, EARLIEST, LATEST = Bound("committed"), Bound("earliest"), Bound("latest")


def after_seq(number: int) -> Bound:
    """The place after a segment."""
    return Bound("seq", number)


def at_time(seconds: float) -> Bound:
    """The place before the first segment that was stored at that time, or later."""
    return Bound("time", seconds)


def start_of(options: ReadOptions, default: Bound, nsqd: str) -> Bound:
    """Where reading of a shard begins, as the options say.

    Args:
        default: where they do not.
    """
    return _bound(options.starting_offsets, options.starting_timestamp, default, nsqd)


def end_of(options: ReadOptions, nsqd: str) -> Bound:
    """Where reading ends, as the options say; of a shard that an offset does not name at 0."""
    default = after_seq(0) if isinstance(options.ending_offsets, Mapping) else LATEST
    return _bound(options.ending_offsets, options.ending_timestamp, default, nsqd)


def _bound(offset: Offset | None, timestamp: float | None, default: Bound, nsqd: str) -> Bound:
    if timestamp is not None:
        return at_time(timestamp)
    if isinstance(offset, Mapping):
        return after_seq(offset[nsqd]) if nsqd in offset else default
    return default if offset is None else Bound(offset)


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


class Found(NamedTuple):
    """Where reading begins, or ends."""

    seq: int
    lost: str  #: why it is not where it was to be; empty: it is


def find_start(
    start: Bound, numbers: Sequence[int], last: int, committed: int,
    stored_at: Callable[[int], float],
) -> Found:
    """Find the segment after which reading begins.

    Args:
        numbers: of the segments that are there, in order.
        last: the last number that was given.
        committed: what Spark has committed.
        stored_at: when a segment was stored, in seconds since 1970.
    """
    first = numbers[0] if numbers else last + 1
    if start.kind == "committed":
        return Found(committed, "")
    if start.kind == "earliest":
        return Found(first - 1, "")
    if start.kind == "latest":
        return Found(last, "")
    if start.kind == "time":
        later = (number - 1 for number in numbers if stored_at(number) >= start.value)
        return Found(next(later, last), "")
    number = int(start.value)
    if number > last:
        return Found(last, f"ends at number {last}; reading was to begin after {number}")
    if number < first - 1:
        missing = range(number + 1, first)
        return Found(first - 1, (
            f"has segments from {first} on; reading was to begin after {number}, so"
            f" {ranges(missing)} {'is' if len(missing) == 1 else 'are'} not there (any more)"))
    return Found(number, "")


def find_end(
    end: Bound, numbers: Sequence[int], last: int, stored_at: Callable[[int], float]
) -> Found:
    """Find the segment with which reading ends.

    Args: as for ``find_start``.
    """
    if end.kind == "latest":
        return Found(last, "")
    if end.kind == "time":
        earlier = [number for number in numbers if stored_at(number) < end.value]
        first = numbers[0] if numbers else last + 1
        return Found(max(earlier, default=first - 1), "")
    number = int(end.value)
    if number > last:
        return Found(last, f"ends at number {last}; reading was to end with {number}")
    return Found(number, "")
