"""Numbers as texts show them. Pure, and imports nothing of the package."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return ``1 failure``, ``2 failures``; ``plural`` where it is not the noun and an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def show_size(count: float) -> str:
    """Write a number of bytes: ``999 B``, ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
