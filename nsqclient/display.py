"""Text as logs, tables and pages may show it: without control characters, without passwords.

Pure, and imports nothing of the package. Text of a peer passes :func:`printable` where it becomes
part of a value or an error, so whatever is built from these is safe to show. The bodies of messages
are data and never pass here.
"""

from __future__ import annotations

import re

#: Longest text of a peer that a value keeps, in characters: names and versions are far shorter.
LONGEST_TEXT = 1000


def printable(text: str, limit: int = 0) -> str:
    """Return text with every character escaped that a terminal or a log would not show as it is.

    These are the ones that ``str.isprintable`` excludes: C0 and C1 controls, DEL, separators of
    lines and paragraphs, bidirectional and other invisible formatting, lone surrogates. They
    become what ``repr`` writes for them, such as ``\\n`` and ``\\x1b``. Backslashes stay, so that a
    text that passes twice is the same as one that passes once.

    Args:
        limit: characters of the text that are kept at most; 0: all of it.
    """
    if limit and len(text) > limit:
        text = text[:limit] + "..."
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def without_password(url: str) -> str:
    """Return an address, or a text with a URL, as errors and logs may show it."""
    return re.sub(r"(^|://)([^/?#@:\s]*):[^/?#]*@", r"\1\2:***@", url)
