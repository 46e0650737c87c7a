"""What a terminal shows: words in colors, and a line with the progress of a tool.

Colors are left out where the output is no terminal, ``TERM`` is ``dumb``, or ``NO_COLOR`` is set to
anything (https://no-color.org).
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from typing import TextIO

from nsqclient.display import counted, show_size

#: Seconds between two updates of the line: readable, and cheap.
_PAUSE = 0.2
GREEN, YELLOW, RED = "32", "33", "31;1"


def has_colors(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether words on this stream may have a color."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def paint(text: str, color: str) -> str:
    """Return text in a color, one of those above."""
    return f"\x1b[{color}m{text}\x1b[0m"


def paint_result(line: str) -> str:
    """Return a line of a check with its first word, OK, WRONG or NOTE, in a color."""
    word = line.partition(" ")[0]
    color = {"OK": GREEN, "WRONG": RED, "NOTE": YELLOW}.get(word)
    return line if color is None else paint(word, color) + line[len(word):]


def table(rows: Sequence[Sequence[str]], left: Container[str]) -> list[str]:
    """Return the lines of a table. Pure.

    Args:
        rows: the first is the heading.
        left: columns of text, by their headings; the others are numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(cell.ljust(width) if name in left else cell.rjust(width)
                  for name, cell, width in zip(rows[0], row, widths)).rstrip()
        for row in rows]


def render(records: int, size: int, total: int | None, seconds: float) -> str:
    """The line: what was done, how fast, and what is left where the end is known."""
    rate = records / seconds if seconds > 0 else 0.0
    counts = f"{records:,} {counted(records, 'message').partition(' ')[2]}, {show_size(size)}"
    counts += f", {rate:,.0f}/s"
    if not total or not size:
        return counts
    minutes, rest = divmod(int(max(0.0, (total - size) * seconds / size)), 60)
    return f"{min(1.0, size / total):4.0%} {counts}, {minutes}:{rest:02d} left"


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
