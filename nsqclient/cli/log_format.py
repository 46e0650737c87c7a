"""``LineFormatter``: what the tools log is one line for each record, whatever is in it."""

from __future__ import annotations

import logging
from typing import Any

from nsqclient.display import printable


class LineFormatter(logging.Formatter):
    """A formatter that escapes control characters, as a second line of defence.

    The library escapes what peers send where it comes in; this covers what a handler, a hook or
    another library puts into a record. A traceback keeps its lines, each indented, so that none of
    them can be taken for a record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line of a record, without its traceback."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """The lines of a traceback."""
        lines = super().formatException(ei).split("\n")
        return "\n".join("  " + printable(line) for line in lines)
