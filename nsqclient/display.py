"""Text and numbers as logs, tables and pages show them: no control characters, no passwords.

Also tables, and colors on a terminal. It imports nothing of the package. Text of a peer passes
:func:`printable` where it becomes part of a value or an error, so whatever is built from these is
safe to show. The bodies of messages are data and never pass here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from typing import TextIO

#: Colors of a terminal.
GREEN, YELLOW, RED = "32", "33", "31;1"
#: Longest text of a peer that a value keeps, in characters: names and versions are far shorter.
LONGEST_TEXT = 1000

#: How a URL begins.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def printable(text: str, limit: int = 0) -> str:
    """Return text with every character escaped that a terminal or a log would not show as it is.

    These are the ones that ``str.isprintable`` excludes: C0 and C1 controls, DEL, separators of
    lines and paragraphs, bidirectional and other invisible formatting, lone surrogates. They
    become what ``repr`` writes for them, such as ``\\n`` and ``\\x1b``. Backslashes stay, so that
    escaping a text twice is the same as escaping it once.

    Args:
        limit: characters of the text that are kept at most; 0: all of it.
    """
    if limit and len(text) > limit:
        text = text[:limit] + "..."
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def without_password(text: str) -> str:
    """Return an address, or a text with URLs, as errors and logs may show it.

    An address without a scheme is recognised at the beginning of the text alone.
    """
    return re.sub(r"\S+", _word_without_password, text)


def _word_without_password(word: re.Match[str]) -> str:
    text = word[0]
    scheme = _SCHEME.search(text)
    if scheme is not None:
        return text[:scheme.start()] + masked_address(text[scheme.start():])
    return masked_address(text) if word.start() == 0 and "@" in text else text


def masked_address(address: str) -> str:
    """Return what was given as one address, whatever it holds, as errors may show it.

    What stands before the last ``@`` may be a password with characters that should have been
    quoted, so of that only a plain user name before a colon is kept. A user without a password may
    be a token. So may anything in a query.
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
    """Return ``1 failure``, ``2 failures``; ``plural`` where it is not the noun and an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def show_size(count: float) -> str:
    """Write a number of bytes: ``999 B``, ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def has_colors(stream: TextIO) -> bool:
    """Return whether words on this stream may have a color.

    Not where it is no terminal, ``TERM`` is ``dumb``, or ``NO_COLOR`` is set to anything
    (https://no-color.org).
    """
    return (stream.isatty() and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb")


def paint(text: str, color: str) -> str:
    """Return text in a color, one of those above."""
    return f"\x1b[{color}m{text}\x1b[0m"


def paint_result(line: str, stream: TextIO) -> str:
    """Return a line of a check; its first word, OK, WRONG or NOTE, has a color where it may."""
    word = line.partition(" ")[0]
    color = {"OK": GREEN, "WRONG": RED, "NOTE": YELLOW}.get(word)
    if color is None or not has_colors(stream):
        return line
    return paint(word, color) + line[len(word):]


def table(rows: Sequence[Sequence[str]], left: Container[str]) -> list[str]:
    """Return the lines of a table.

    Args:
        rows: the first is the heading.
        left: columns of text, by their headings; the others are numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(cell.ljust(width) if name in left else cell.rjust(width)
                  for name, cell, width in zip(rows[0], row, widths)).rstrip()
        for row in rows]
