"""Ready-made middleware: ``TimeLimit``, ``RateLimit`` and ``LogContext``.

::

    @nsqclient.handler("orders", "billing", workers=8,
                       middleware=[RateLimit(100), TimeLimit(30)])
    def bill(message): ...
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from nsqclient.consumer.middleware import Handling
from nsqclient.errors import ConfigError
from nsqclient.log_records import log_fields
from nsqclient.message import Requeue
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.forking import register_for_fork
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.delays import RateLimiter
from nsqclient.runtime.threads import LibraryThread, keep_running

logger: logging.Logger = logging.getLogger("nsqclient.worker")

#: Seconds beyond the time limit after which a handler that still runs is logged.
_HANG_REPORT = 5.0
#: Longest sleep of the thread of a TimeLimit, in seconds.
_LONGEST_SLEEP = 1.0
#: Seconds between two checks whether the consumer stops.
_STOP_CHECK = 0.2


class TimeLimitExceeded(BaseException):
    """Raised in a handler that has run for longer than its :class:`TimeLimit`.

    Not an ``Exception``, so that ``except Exception`` in a handler does not catch it.
    """

    def __str__(self) -> str:
        return "the handler ran for longer than its time limit"


class TimeLimit:
    """A middleware that raises :class:`TimeLimitExceeded` in a handler that runs for too long.

    The message is requeued, as after any exception. CPython only, which raises the exception before
    the next bytecode instruction: code in C that waits or computes is not interrupted. A handler
    that still runs 5 s after the limit is logged with its stack, and again at growing intervals.

    Args:
        time_limit: seconds (float or timedelta), less than ``msg_timeout``.

    Raises:
        ConfigError: ``time_limit`` is not above 0.

    Lifecycle: usable for any number of consumers. Threads: any.
    """

    def __init__(self, time_limit: Duration) -> None:
        self._seconds = to_seconds(time_limit, "time_limit")
        if not self._seconds:
            raise ConfigError("time_limit must be above 0 s")
        self._reset_after_fork()
        register_for_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = Lock()
        # By id. Weak, because an exception may come before the with statement. Guarded by _lock.
        self._running: dict[int, weakref.ref[_TimedCall]] = {}
        self._is_watching = False  # guarded by _lock

    def __call__(self, handling: Handling) -> AbstractContextManager[None]:
        return _TimedCall(self, handling)

    def _begin(self, call: _TimedCall) -> None:
        with self._lock:
            call.due = call.began + self._seconds
            self._running[id(call)] = weakref.ref(call)
            is_watching, self._is_watching = self._is_watching, True
        if not is_watching:
            try:
                LibraryThread(
                    lambda: keep_running(self._watch, _log_failure), "nsq-time-limit").launch()
            except RuntimeError:  # no thread can be started
                with self._lock:
                    self._is_watching = False
                raise

    def _end(self, call: _TimedCall) -> None:
        with self._lock:
            call.has_ended = True
            self._running.pop(id(call), None)

    def _watch(self) -> None:
        while True:
            hanging = []
            with self._lock:
                now = time.monotonic()
                # A handler that begins meanwhile is not due earlier.
                wake = now + min(self._seconds, _LONGEST_SLEEP)
                for key, found in list(self._running.items()):
                    call = found()
                    if call is None:
                        del self._running[key]
                    elif call.due <= now:
                        # Under the lock: after the end of the call it would interrupt other code.
                        if call.is_raised:
                            hanging.append(call)
                            call.due = 2 * now - call.began
                        else:
                            call.is_raised = True
                            call.due = now + _HANG_REPORT
                            _raise_in(call.thread, TimeLimitExceeded)
                    else:
                        wake = min(wake, call.due)
                if not self._running:
                    self._is_watching = False
                    return
            while hanging:
                self._report(hanging.pop())
            call = None
            time.sleep(max(0.0, wake - now))

    def _report(self, call: _TimedCall) -> None:
        frame = sys._current_frames().get(call.thread)
        if not call.has_ended:
            message = call.handling.messages[0]
            logger.error(
                "%s/%s: the handler of %r still runs after %.0f s, its time limit is %g s; its"
                " thread: %s", call.handling.topic, call.handling.channel, message,
                time.monotonic() - call.began, self._seconds,
                "\n" + "".join(traceback.format_stack(frame)).rstrip(),
                extra=log_fields(message=message))


class _TimedCall:
    def __init__(self, limit: TimeLimit, handling: Handling) -> None:
        self._limit = limit
        self.handling = handling
        self.thread = threading.get_ident()
        self.began = self.due = time.monotonic()  # due: time of the next check
        self.is_raised = self.has_ended = False  # guarded by the lock of the TimeLimit

    def __enter__(self) -> None:
        self._limit._begin(self)

    def __exit__(self, *exc_info: object) -> None:
        # No exception is raised after the call. One raised just before is dropped here, because the
        # handler has ended.
        try:
            self._limit._end(self)
            _let_arrive()
        except TimeLimitExceeded:
            self._limit._end(self)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in another thread, before its next bytecode instruction."""
    import ctypes  # here, since it is rarely needed

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _let_arrive() -> None:
    """Let the interpreter raise a pending exception: at the start of a function and a jump back."""
    for _ in range(2):
        pass


def _log_failure(error: BaseException) -> None:
    logger.error("time limits: task failed; the thread continues", exc_info=error)


class RateLimit:
    """A middleware that limits how many messages per second each consumer begins to handle.

    A worker thread waits until the rate permits its message, or all messages of its batch. After a
    pause at most a tenth of a second's messages, and at least one, begin at once. A message that
    expires meanwhile is not handled; when the consumer stops, a waiting message is requeued.

    Args:
        limit: number of messages per ``window``, for each consumer of this process.
        window: seconds (float or timedelta).

    Raises:
        ConfigError: an argument is not above 0.

    Lifecycle: usable for any number of consumers. Threads: any.
    """

    def __init__(self, limit: float, window: Duration = 1.0) -> None:
        seconds = to_seconds(window, "window")
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
            raise ConfigError(f"limit must be a number above 0, not {limit!r}")
        if not seconds or not 0 < limit / seconds < math.inf:
            raise ConfigError(f"window of {seconds:g} s must be above 0 s")
        self._rate = limit / seconds
        self._reset_after_fork()
        register_for_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = Lock()
        self._limiters: dict[tuple[str, str], RateLimiter] = {}

    def __call__(self, handling: Handling) -> AbstractContextManager[None]:
        left = len(handling.messages)
        while True:
            with self._lock:
                key, now = (handling.topic, handling.channel), time.monotonic()
                limiter = self._limiters.get(key)
                if limiter is None:
                    limiter = self._limiters[key] = RateLimiter(self._rate, now, self._rate / 10)
                left -= limiter.take(left, now)
                wait = limiter.wait()
            if not left:
                break
            time.sleep(min(wait, _STOP_CHECK))
            if handling.is_stopping():
                raise Requeue(delay=0, backoff=False)
        expired = [message for message in handling.messages if message.time_left <= 0]
        for message in expired:
            message.responder.drop_expired(message)
        if expired:
            raise Requeue(delay=0, backoff=False)  # the other messages of the batch
        return nullcontext()


_current: ContextVar[dict[str, object] | None] = ContextVar("nsqclient_message", default=None)
_NOTHING: dict[str, object] = {
    "topic": "", "channel": "", "nsqd": "", "message_id": "", "attempts": 0,
}


class LogContext:
    """A middleware that adds the fields of the current message to log records.

    ``LogContext.filter`` sets the attributes ``topic``, ``channel``, ``nsqd``, ``message_id`` and
    ``attempts``; for a batch, of its first message. Threads that a handler starts have no fields,
    unless they run in a copy of its context (``contextvars.copy_context``).
    """

    @contextmanager
    def __call__(self, handling: Handling) -> Iterator[None]:
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
        """True while this thread handles a message with this middleware."""
        return _current.get() is not None

    @staticmethod
    def filter(record: logging.LogRecord) -> bool:
        """Add the fields that a record lacks, as a filter of ``logging``; returns True."""
        for name, value in (_current.get() or _NOTHING).items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
