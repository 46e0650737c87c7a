"""``copy_deque``: a copy of a deque that other threads change."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

T = TypeVar("T")


def copy_deque(items: deque[T]) -> list[T]:
    """Return the items. Threads: any.

    Without the interpreter lock, even the ``copy()`` of a deque raises RuntimeError if another
    thread changes it meanwhile.
    """
    while True:
        try:
            return list(items)
        except RuntimeError:
            pass
