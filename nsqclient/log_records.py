"""The fields of the library's log records, and formatters for text lines and JSON.

The fields ``topic``, ``channel``, ``nsqd`` (``host:port``), ``message_id`` and ``attempts``, if
known, are attributes of a record.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from nsqclient.display import printable

if TYPE_CHECKING:
    from nsqclient.message import Message

#: Go's name of a level -> Python's number.
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
#: Attributes of every record, some of them set during formatting.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def log_fields(
    *, topic: str = "", channel: str = "", nsqd: str = "", message: Message | None = None
) -> dict[str, object]:
    """Return the non-empty fields of a record, for ``extra``."""
    fields: dict[str, object] = {"topic": topic, "channel": channel, "nsqd": nsqd}
    if message is not None:
        fields |= {
            "topic": topic or message.topic, "channel": channel or message.channel,
            "nsqd": message.nsqd_address, "message_id": str(message.id),
            "attempts": message.attempts,
        }
    return {name: value for name, value in fields.items() if value}


class LineFormatter(logging.Formatter):
    """Formats records as lines without control characters.

    The lines of a traceback are indented, so that none looks like a record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join("  " + printable(line) for line in lines)


class JsonFormatter(logging.Formatter):
    """Formats records as JSON objects of one line, with every ``extra``.

    An ``extra`` with the name of another field gets a ``_`` appended.

    Args:
        process: the value of the field ``process``; empty: no such field.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname, "logger": record.name, "message": record.getMessage(),
            "process": self._process, "pid": record.process, "thread": record.threadName,
            "exception": self.formatException(record.exc_info) if record.exc_info else "",
            "stack": record.stack_info,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                values[f"{name}_" if name in values else name] = value
        shown = {name: value for name, value in values.items()
                 if value is not None and not (isinstance(value, str) and not value)}
        try:
            return _as_json(shown)
        except (TypeError, ValueError, RecursionError):  # a key, a cycle, a huge number, NaN
            return _as_json({name: _plain(value) for name, value in shown.items()})


def _as_json(value: object) -> str:
    return json.dumps(value, default=_as_text, allow_nan=False)


def _plain(value: object) -> object:
    try:
        _as_json(value)
        return value
    except (TypeError, ValueError, RecursionError):
        return _as_text(value)


def _as_text(value: object) -> str:
    try:
        return str(value)
    except Exception as exc:  # raised by a user's __str__, or for a huge int
        return f"<{type(value).__name__}: {type(exc).__name__} in its text>"
