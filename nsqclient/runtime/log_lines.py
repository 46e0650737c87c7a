"""Prefixes, limits and a filter for the library's log records.

A log handler may publish messages while it holds its lock. Records that the library logs during
this publish must not go back to the handler. The library's threads must not wait for the lock,
because the publish may be waiting for them.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from nsqclient.runtime.threads import is_library_thread

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter  # not subscriptable before Python 3.11

#: The loggers that the library's threads or a publish may use.
LOGGERS = (
    "batch", "connection", "consumer", "deadletter", "dialing", "discovery", "http", "producer",
    "timer", "trace", "workers",
)
#: Seconds that a thread of the library waits for a log handler.
_PATIENCE = 0.1

#: Handler -> number of records dropped since the last record that it handled.
_missed: weakref.WeakKeyDictionary[logging.Handler, int] = weakref.WeakKeyDictionary()


def install() -> None:
    """Add the filter ``dispatch`` to the ``LOGGERS``. Idempotent."""
    for name in LOGGERS:
        logging.getLogger(f"nsqclient.{name}").addFilter(dispatch)


def dispatch(record: logging.LogRecord) -> bool:
    """Return True if the logging module may handle the record.

    Otherwise pass the record to the handlers that can take it now, and return False.
    """
    handlers = list(_handlers_of(record.name))
    is_ours = is_library_thread()
    if not handlers or not (is_ours or any(map(_is_entered, handlers))):
        return True
    for handler in handlers:
        if record.levelno < handler.level or _is_entered(handler):
            continue
        lock = handler.lock if is_ours else None
        if lock is not None and not lock.acquire(timeout=_PATIENCE):
            _missed[handler] = _missed.get(handler, 0) + 1
            continue
        try:
            missed = _missed.pop(handler, 0)
            if missed:
                handler.handle(logging.LogRecord(
                    record.name, logging.WARNING, __file__, 0,
                    "%d log records of nsqclient were dropped: a log handler was busy", (missed,),
                    None))
            handler.handle(record)
        finally:
            if lock is not None:
                lock.release()
    return False


def _handlers_of(name: str) -> Iterator[logging.Handler]:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _is_entered(handler: logging.Handler) -> bool:
    """True if the calling thread is inside the handler."""
    is_owned = getattr(handler.lock, "_is_owned", None)
    return is_owned is not None and bool(is_owned())


class LineLimit:
    """Lowers the level of all but the first ``lines`` log lines in 10 s to DEBUG. Threads: any."""

    def __init__(self, lines: int = 10) -> None:
        self.lines = lines
        # Not locked: two simultaneous lines may be counted as one.
        self._counted = float("-inf"), 0  # start of the current 10 s, lines since then

    def level(self, level: int) -> int:
        now = time.monotonic()
        start, lines = self._counted
        if now - start >= 10.0:
            start, lines = now, 0
        self._counted = start, lines + 1
        return level if lines < self.lines else logging.DEBUG


class PrefixedLogger(_Adapter):
    """Puts a prefix in front of every line, and fields into every record. Threads: any."""

    def __init__(
        self, logger: logging.Logger, prefix: str, fields: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(logger, {})
        self._fields = dict(fields or {})
        self._prefix = prefix.replace("%", "%%")

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**self._fields, **(kwargs.get("extra") or {})}
        return f"{self._prefix}{msg}", kwargs
