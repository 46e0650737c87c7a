"""``LogContext``: log records of handlers, and of what they call, have the fields of the message.

::

    logging.basicConfig(format="%(levelname)s %(topic)s/%(channel)s %(message_id)s %(message)s")
    logging.getLogger().handlers[0].addFilter(LogContext.filter)
    Consumer("orders", "billing", bill, middleware=[LogContext()], ...)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nsqclient.consumer.middleware import Handling

_current: ContextVar[dict[str, object] | None] = ContextVar("nsqclient_message", default=None)
#: What records have that are logged outside of a handler.
_NOTHING: dict[str, object] = {
    "topic": "", "channel": "", "nsqd": "", "message_id": "", "attempts": 0,
}


class LogContext:
    """A middleware that adds the fields of the current message to log records.

    With ``LogContext.filter`` each record has the attributes ``topic``, ``channel``, ``nsqd``,
    ``message_id`` and ``attempts``; for a batch, those of its first message. Threads: any. Threads
    that a handler starts have no fields, unless they run in a copy of its context
    (``contextvars.copy_context``).
    """

    @contextmanager
    def __call__(self, handling: Handling) -> Iterator[None]:
        """For the consumer: stand around one handling."""
        first = handling.messages[0]
        token = _current.set({
            "topic": handling.topic, "channel": handling.channel, "nsqd": first.nsqd_address,
            "message_id": str(first.id), "attempts": first.attempts,
        })
        try:
            yield
        finally:
            _current.reset(token)

    @staticmethod
    def is_set() -> bool:
        """Return whether this thread handles a message, with this middleware."""
        return _current.get() is not None

    @staticmethod
    def filter(record: logging.LogRecord) -> bool:
        """Add the fields to a record, as a filter of a handler of ``logging`` (``addFilter``).

        Fields that a record already has are not changed.

        Returns: True, so that every record is logged.
        """
        for name, value in (_current.get() or _NOTHING).items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
