"""A line on a terminal with the progress of a tool."""

from __future__ import annotations

import time
from typing import TextIO

from nsqclient.display import show_size

#: Seconds between two updates of the line: readable, and cheap.
_PAUSE = 0.2
_WIDTH = 24


def render(records: int, size: int, total: int | None, seconds: float) -> str:
    """The line: a bar where the end is known, what was done, and how fast."""
    rate = records / seconds if seconds > 0 else 0.0
    noun = "message" if records == 1 else "messages"
    counts = f"{records:,} {noun}, {show_size(size)}, {rate:,.0f}/s"
    if not total:
        return counts
    part = min(1.0, size / total)
    filled = int(part * _WIDTH)
    bar = "#" * filled + "-" * (_WIDTH - filled)
    left = (total - size) / (size / seconds) if size and seconds > 0 else 0.0
    minutes, rest = divmod(int(max(0.0, left)), 60)
    return f"[{bar}] {part:4.0%} {counts}, {minutes}:{rest:02d} left"


class Progress:
    """Keeps the line up to date.

    Args:
        stream: a terminal; None: nothing is shown.
        total: bytes of the whole input, where they are known.
    """

    def __init__(self, stream: TextIO | None, total: int | None) -> None:
        self._stream = stream
        self._total = total
        self._began = time.monotonic()
        self._shown_at = 0.0

    def update(self, records: int, size: int, last: bool = False) -> None:
        """Show the counts so far; ``last`` ends the line."""
        now = time.monotonic()
        if self._stream is None or (now - self._shown_at < _PAUSE and not last):
            return
        self._shown_at = now
        line = render(records, size, self._total, now - self._began)
        # To the start of the line, and away with what is left of a longer one.
        self._stream.write(f"\r{line}\x1b[K" + ("\n" if last else ""))
        self._stream.flush()
