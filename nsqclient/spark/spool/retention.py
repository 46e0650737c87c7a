"""Which segments make a batch, and which may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Entry(NamedTuple):
    """A segment as the decisions see it."""

    number: int
    rows: int
    size: int  #: bytes of the file


#: Rows of committed segments that are kept because their FINs are not proven yet. Beyond that
#: the ids go to a list of their own, and the segments go.
MOST_KEPT_ROWS = 50_000


def end_of_batch(
    entries: Iterable[Entry], start: int, max_rows: int | None, max_bytes: int | None
) -> int:
    """The last segment of the batch after ``start``: at least one, if there is one.

    Args:
        entries: in the order of their numbers.
        max_rows, max_bytes: limits of a batch; None: none.
    """
    end, rows, size = start, 0, 0
    for entry in entries:
        if entry.number <= start:
            continue
        rows += entry.rows
        size += entry.size
        over = (max_rows is not None and rows > max_rows) or (
            max_bytes is not None and size > max_bytes
        )
        if over and end > start:
            break
        end = entry.number
    return end


def to_delete(
    entries: Iterable[Entry],
    committed: int,
    is_held: Callable[[int], bool],
    most_rows: int = MOST_KEPT_ROWS,
) -> list[int]:
    """Numbers of the segments that are of no more use, oldest first.

    Args:
        entries: in the order of their numbers.
        committed: up to here Spark asks for nothing any more.
        is_held: whether FINs of this segment are not proven yet.
    """
    done = [entry for entry in entries if entry.number <= committed]
    kept = sum(entry.rows for entry in done if is_held(entry.number))
    numbers = []
    for entry in done:
        if not is_held(entry.number):
            numbers.append(entry.number)
        elif kept > most_rows:
            kept -= entry.rows
            numbers.append(entry.number)
    return numbers


def spread(entries: list[Entry], parts: int) -> list[list[Entry]]:
    """Cut segments into at most ``parts`` runs of about the same number of rows; none is empty."""
    total = sum(entry.rows for entry in entries)
    runs: list[list[Entry]] = []
    before = 0
    for entry in entries:
        # Where the middle of the segment lies decides.
        part = min(parts - 1, int((before + entry.rows / 2) * parts / max(1, total)))
        if not runs or (part > 0 and len(runs) <= part and before * parts >= total * len(runs)):
            runs.append([])
        runs[-1].append(entry)
        before += entry.rows
    return runs
