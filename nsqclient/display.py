"""Text and numbers for logs, tables and pages: without control characters and passwords.

Text of a peer passes :func:`printable` when it becomes part of a value or an error. Bodies of
messages are data, and are not changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from typing import TextIO

#: Colors of a terminal.
GREEN, YELLOW, RED = "32", "33", "31;1"
#: Longest text of a peer that a value keeps, in characters.
LONGEST_TEXT = 1000

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def printable(text: str, limit: int = 0) -> str:
    """Escape the characters that ``str.isprintable`` excludes, as ``repr`` does.

    Backslashes are not escaped, so escaping twice is the same as escaping once.

    Args:
        limit: maximum number of characters that are kept; 0: no limit.
    """
    if limit and len(text) > limit:
        text = text[:limit] + "..."
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def without_password(text: str) -> str:
    """Mask the passwords in an address, or in a text with URLs.

    An address without a scheme is recognised only at the beginning of the text.
    """
    return re.sub(r"\S+", _word_without_password, text)


def _word_without_password(word: re.Match[str]) -> str:
    text = word[0]
    scheme = _SCHEME.search(text)
    if scheme is not None:
        return text[:scheme.start()] + masked_address(text[scheme.start():])
    return masked_address(text) if word.start() == 0 and "@" in text else text


def masked_address(address: str) -> str:
    """Mask the password and the query in one address, which may be malformed.

    Before the last ``@`` only a plain user name is kept: the password may contain characters that
    should have been quoted, and a user without a password may be a token.
    """
    scheme = _SCHEME.match(address)
    start = scheme.end() if scheme is not None else 0
    userinfo, at, rest = address[start:].rpartition("@")
    rest = re.sub(r"([?#]).+", r"\1***", rest, count=1, flags=re.DOTALL)
    if at:
        user, colon, _ = userinfo.partition(":")
        is_plain = bool(colon) and re.fullmatch(r"[^/?#@,\s]*", user) is not None
        rest = f"{user}:***@{rest}" if is_plain else f"***@{rest}"
    return address[:start] + rest


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return ``1 failure``, ``2 failures``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def show_size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def has_colors(stream: TextIO) -> bool:
    """True for a terminal without ``NO_COLOR``. Source: https://no-color.org."""
    return (stream.isatty() and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb")


def paint(text: str, color: str) -> str:
    return f"\x1b[{color}m{text}\x1b[0m"


def paint_result(line: str, stream: TextIO) -> str:
    """Color the first word of a check's line (OK, WRONG or NOTE) if the stream has colors."""
    word = line.partition(" ")[0]
    color = {"OK": GREEN, "WRONG": RED, "NOTE": YELLOW}.get(word)
    if color is None or not has_colors(stream):
        return line
    return paint(word, color) + line[len(word):]


def table(rows: Sequence[Sequence[str]], left: Container[str]) -> list[str]:
    """Return the lines of a table.

    Args:
        rows: the cells; the first row is the heading.
        left: the headings of left-aligned columns.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(cell.ljust(width) if name in left else cell.rjust(width)
                  for name, cell, width in zip(rows[0], row, widths)).rstrip()
        for row in rows]
