"""Numbers with their noun, for log lines and errors."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return ``1 failure``, ``2 failures``; ``plural`` where it is not the noun and an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
