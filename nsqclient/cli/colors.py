"""Colors of words on a terminal.

They are left out where the output is no terminal, ``TERM`` is ``dumb``, or ``NO_COLOR`` is set to
anything (https://no-color.org).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

GREEN, YELLOW, RED = "32", "33", "31;1"


class Output(Protocol):
    """What a stream needs to have."""

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        ...


def has_colors(stream: Output, environ: Mapping[str, str]) -> bool:
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
