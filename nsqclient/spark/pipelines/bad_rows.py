"""Finds the rows that a transform fails on, by halving. Pure: the caller does the trying."""

from __future__ import annotations

from collections.abc import Callable

from nsqclient.errors import NSQError


class TooManyBadRowsError(NSQError):
    """More rows fail than are plausible: the transform is at fault. ``error`` is one of theirs."""

    def __init__(self, limit: int, error: str) -> None:
        super().__init__(
            f"the transform fails on more than {limit} rows of one batch, so it is not the rows"
            f" that are at fault: {error}")
        self.limit = limit
        self.error = error

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return type(self), (self.limit, self.error)


def find_bad_rows(
    count: int, fails: Callable[[int, int], str | None], limit: int
) -> dict[int, str]:
    """Find the rows that fail alone.

    Args:
        count: rows there are, numbered from 0.
        fails: tries the rows ``low <= row < high`` and returns the error, or None.
        limit: bad rows at most.

    Returns: {row: error}, in order. Empty when no row fails alone.

    Raises:
        TooManyBadRowsError: there are more than ``limit``.
    """
    bad: dict[int, str] = {}
    parts = [(0, count)]
    while parts:
        low, high = parts.pop()
        error = fails(low, high) if high > low else None
        if error is None:
            continue
        if high - low > 1:
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]  # the first half is tried next
            continue
        bad[low] = error
        if len(bad) > limit:
            raise TooManyBadRowsError(limit, error)
    return bad
