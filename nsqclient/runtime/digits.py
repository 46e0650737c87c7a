"""``read_digits``: reads a whole number that somebody else has written. Knows nothing of NSQ."""

from __future__ import annotations


def read_digits(text: str, most: int) -> int | None:
    """Return the number; None for anything but ASCII digits, and for more than ``most`` of them.

    The length is looked at first: int() refuses thousands of digits with a ValueError.
    """
    return int(text) if len(text) <= most and text.isascii() and text.isdigit() else None
