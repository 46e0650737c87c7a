"""Log records of the library, where a log handler publishes.

Such a handler has its lock while it publishes. What the library logs meanwhile must not come back
to it in the same thread: it would publish that as well, without end. And a thread of the library,
on whose work the publish depends, must not wait for its lock as long as the publish takes.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Iterator

from nsqclient.runtime.forking import run_after_fork
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread, is_library_thread, keep_running

#: The loggers that a publish may use.
LOGGERS = ("connection", "dialing", "discovery", "http", "producer", "timer", "trace", "workers")
#: Seconds in which any other log handler writes a record. A handler that has its lock for longer is
#: publishing, or waits as if it were.
_PATIENCE = 0.1
#: Records that wait for a log handler at most; the oldest ones are dropped.
_MOST_WAITING = 1000


class _LateRecords:
    """Hands records to log handlers that were busy, in a thread that may wait for them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[logging.Handler, logging.LogRecord]] = deque(
            maxlen=_MOST_WAITING)  # guarded by _lock, as below
        self._thread: LibraryThread | None = None  # there is one while records wait

    def __bool__(self) -> bool:
        return self._thread is not None

    def put(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        """Hand it over as soon as the handler is free. Does not block."""
        with self._lock:
            self._waiting.append((handler, record))
            if self._thread is None:
                self._thread = LibraryThread(self._run, "nsq-log")
                try:
                    self._thread.launch()
                except RuntimeError:  # there is no thread: the next record tries again
                    self._thread = None

    def _run(self) -> None:
        keep_running(self._hand_over, _print)

    def _hand_over(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                handler, record = self._waiting.popleft()
            handler.handle(record)


def _print(error: BaseException) -> None:
    """Show what a log handler raised; logging does so with what goes wrong in one."""
    if logging.raiseExceptions:
        traceback.print_exception(type(error), error, error.__traceback__)


_late = _LateRecords()


def _after_fork_in_child() -> None:
    global _late
    _late = _LateRecords()


run_after_fork(_after_fork_in_child)


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


def dispatch(record: logging.LogRecord) -> bool:
    """Hand a record over where logging itself may not; False when that is done.

    A filter of the loggers.
    """
    handlers = list(_handlers_of(record.name))
    is_ours = is_library_thread()
    if not handlers or not (is_ours or any(map(_is_entered, handlers))):
        return True
    for handler in handlers:
        if record.levelno < handler.level or _is_entered(handler):
            continue
        lock = handler.lock
        if lock is None or not is_ours:
            handler.handle(record)
        elif not _late and lock.acquire(timeout=_PATIENCE):
            try:
                handler.handle(record)
            finally:
                lock.release()
        else:
            _late.put(handler, record)
    return False


def install() -> None:
    """Have the records of ``LOGGERS`` pass ``dispatch``. Idempotent."""
    for name in LOGGERS:
        logging.getLogger(f"nsqclient.{name}").addFilter(dispatch)
