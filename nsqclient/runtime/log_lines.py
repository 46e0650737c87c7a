"""Prefixes, limits and a filter for the library's log records.

A log handler may publish, and holds its lock meanwhile. A record that the library creates in that
publish must not go back to the handler. A thread of the library must not wait for the lock, because
the publish may wait for that thread.
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
    _Adapter = logging.LoggerAdapter  # takes no brackets before Python 3.11

#: The loggers of library threads, and those that a publish may use.
LOGGERS = (
    "batch", "connection", "consumer", "deadletter", "dialing", "discovery", "http", "producer",
    "timer", "trace", "workers",
)
#: Seconds that a thread of the library waits for a log handler.
_PATIENCE = 0.1

#: Records that a handler has missed since its last one.
_missed: weakref.WeakKeyDictionary[logging.Handler, int] = weakref.WeakKeyDictionary()


def install() -> None:
    """Add the filter ``dispatch`` to the ``LOGGERS``. Idempotent."""
    for name in LOGGERS:
        logging.getLogger(f"nsqclient.{name}").addFilter(dispatch)


def dispatch(record: logging.LogRecord) -> bool:
    """Pass a record to the handlers if logging itself must not, and return False then."""
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
    """Keeps the level of ``lines`` log lines in 10 s; the others are at DEBUG. Threads: any."""

    def __init__(self, lines: int = 10) -> None:
        self.lines = lines
        # Without a lock: of two lines at the same instant one may not be counted.
        self._counted = float("-inf"), 0  # the start of these 10 s, and the lines since

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
