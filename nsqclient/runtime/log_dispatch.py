"""Log records of the library, if a log handler publishes.

The handler holds its lock while it publishes. A record that the library makes meanwhile must not
come back to it in the same thread, and a thread of the library, on whose work the publish depends,
must not wait for the lock.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterator

from nsqclient.runtime.threads import is_library_thread

#: The loggers that a publish may use.
LOGGERS = ("connection", "dialing", "discovery", "http", "producer", "timer", "trace", "workers")
#: Seconds that a thread of the library waits for a log handler, at most once in ``_PAUSE``.
_PATIENCE = 0.1
_PAUSE = 10.0

#: When a handler was last found busy, on time.monotonic(), and how many records it has missed.
_busy: weakref.WeakKeyDictionary[logging.Handler, tuple[float, int]] = weakref.WeakKeyDictionary()


def _handlers_of(name: str) -> Iterator[logging.Handler]:
    """Yield the handlers that a record of this logger goes to."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _is_entered(handler: logging.Handler) -> bool:
    """Return whether the calling thread is in the middle of this handler's work."""
    is_owned = getattr(handler.lock, "_is_owned", None)
    return is_owned is not None and bool(is_owned())


def _handle_within(
    handler: logging.Handler, lock: threading.RLock, record: logging.LogRecord
) -> None:
    """Pass a record to a handler, or count it if the handler stays busy for ``_PATIENCE``."""
    busy_at, missed = _busy.get(handler, (float("-inf"), 0))
    was_busy = time.monotonic() - busy_at < _PAUSE
    if not lock.acquire(timeout=0 if was_busy else _PATIENCE):
        _busy[handler] = time.monotonic(), missed + 1
        return
    try:
        handler.handle(record)
        if missed:
            _busy[handler] = busy_at, 0
            handler.handle(logging.LogRecord(
                record.name, logging.WARNING, __file__, 0,
                "%d log records of nsqclient were dropped: a log handler was busy", (missed,),
                None))
    finally:
        lock.release()


def dispatch(record: logging.LogRecord) -> bool:
    """Pass a record to the handlers if logging itself may not; returns False after that.

    A filter of the loggers. A record for a busy handler is dropped, and counted in a later one.
    """
    handlers = list(_handlers_of(record.name))
    is_ours = is_library_thread()
    if not handlers or not (is_ours or any(map(_is_entered, handlers))):
        return True
    for handler in handlers:
        if record.levelno < handler.level or _is_entered(handler):
            continue
        if handler.lock is None or not is_ours:
            handler.handle(record)
        else:
            _handle_within(handler, handler.lock, record)
    return False


def install() -> None:
    """Have the records of ``LOGGERS`` pass ``dispatch``. Idempotent."""
    for name in LOGGERS:
        logging.getLogger(f"nsqclient.{name}").addFilter(dispatch)
