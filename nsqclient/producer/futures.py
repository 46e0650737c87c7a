"""``PublishFuture``: a message of ``publish_async()`` and its outcome.

The ``Condition`` of a ``concurrent.futures.Future`` costs more than everything else in an
asynchronous publish, and an exception in ``result()`` may leave it acquired. Here a waiting thread
adds a callback, and the outcome is set under a lock that is held for a few instructions.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, TimeoutError
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

from nsqclient.display import counted
from nsqclient.errors import ClosedError
from nsqclient.runtime.forking import run_after_fork
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import is_for_caller

logger: logging.Logger = logging.getLogger("nsqclient.producer")

# concurrent.futures spells its states as strings.
PENDING, RUNNING, FINISHED = "PENDING", "RUNNING", "FINISHED"
_CANCELLED, _CANCELLED_AND_NOTIFIED = "CANCELLED", "CANCELLED_AND_NOTIFIED"

#: Seconds between two warnings of failures that nobody has looked at.
_PAUSE = 10.0

#: Guards the state of every Future.
_quick = Lock()


def renew_lock() -> None:
    """In a forked child: a thread that does not exist there may hold the lock."""
    global _quick
    _quick = Lock()


run_after_fork(renew_lock)


class _Look:
    """The condition of a Future, for ``wait()`` and ``as_completed()``.

    While they hold it, the state that they see does not change. Nobody waits for them.
    """

    def __init__(self, future: PublishFuture) -> None:
        self._future = future

    def acquire(self) -> None:
        with _quick:
            self._future._looks += 1

    def release(self) -> None:
        with _quick:
            self._future._looks -= 1
        self._future._show()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class UnretrievedError:
    """Belongs to a Future that failed, and ends with it. ``__del__`` may run in any thread."""

    __slots__ = ("error", "is_seen", "_note")

    def __init__(self, error: BaseException, note: Callable[[BaseException], None]) -> None:
        self.error: BaseException = error
        self.is_seen: bool = False  # somebody asked for the outcome
        self._note = note

    def __del__(self) -> None:
        if not self.is_seen:
            self._note(self.error)


class PublishFuture(Future[Any]):
    """A message and its outcome. Attributes that few messages need are class attributes."""

    _state: str = PENDING  # what wait() and as_completed() see
    _final: str | None = None  # the last state; they may not see it yet
    _result: Any = None
    _exception: BaseException | None = None
    _callbacks: deque[Callable[[Any], object]] | None = None
    _listeners: list[Any] | None = None  # the waiters of wait() and as_completed()
    _looks = 0  # calls of these two that hold the state
    _is_looked_at = False  # the outcome was requested
    _unretrieved: UnretrievedError | None = None
    #: For the queue that takes it over: arguments of its call, later parts of its command.
    options: Any = None

    def __init__(
        self, topic: str, body: bytes, delay_ms: int | None, until: float, seconds: float
    ) -> None:
        self.topic = topic
        self.body = body
        self.delay_ms = delay_ms
        self.until = until  # its deadline, on time.monotonic()
        self.seconds = seconds  # timeout of the publish
        self.alone: bool = delay_ms is not None  # must be sent as a command of its own

    @property
    def _condition(self) -> Any:  # type: ignore[override] # made when it is needed
        return _Look(self)

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override] # made when needed
        with _quick:
            if self._listeners is None:
                self._listeners = []
            return self._listeners

    if not TYPE_CHECKING:

        def __await__(self) -> NoReturn:
            raise TypeError("write await asyncio.wrap_future(future)")

    # -- for any thread

    def cancel(self) -> bool:
        with _quick:
            if self._state == PENDING:
                self._state = self._final = _CANCELLED
        if self.cancelled():
            self._call_back()
        return self.cancelled()

    def cancelled(self) -> bool:
        return self._final in (_CANCELLED, _CANCELLED_AND_NOTIFIED)

    def running(self) -> bool:
        return self._state == RUNNING and self._final is None

    def done(self) -> bool:
        return self._final is not None

    def result(self, timeout: float | None = None) -> Any:
        """Return when nsqd has stored the message, or raise the reason why it is not stored."""
        if self._final != FINISHED or self._exception is not None:
            self._wait(timeout)
            if self._exception is not None:
                try:
                    raise self._exception
                finally:
                    del self  # no reference cycle with the traceback
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return self._exception

    def _wait(self, timeout: float | None) -> None:
        self._note_look()
        if not self.done():
            wakeups: SimpleQueue[Any] = SimpleQueue()
            wake = wakeups.put
            left = None if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)
            try:
                self.add_done_callback(wake)
                wakeups.get(timeout=left)
            except Empty:
                raise TimeoutError() from None
            finally:
                with contextlib.suppress(ValueError):  # it was called
                    self._make_callbacks().remove(wake)
        if self.cancelled():
            raise CancelledError()

    def _note_look(self) -> None:
        self._is_looked_at = True
        if self._unretrieved is not None:
            self._unretrieved.is_seen = True

    def _make_callbacks(self) -> deque[Callable[[Any], object]]:
        with _quick:
            if self._callbacks is None:
                self._callbacks = deque()
            return self._callbacks

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        self._note_look()
        self._make_callbacks().append(fn)
        if self.done():  # after the append, so that no callback is missed
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                fn = self._callbacks.popleft()
            except IndexError:  # another thread calls it
                return
            try:
                fn(self)
            except BaseException as exc:  # it must not end a thread of the library
                if is_for_caller(exc):
                    raise
                logger.exception("a callback of %r failed", self)

    # -- for the thread that sets the outcome

    def set_result(self, result: Any) -> None:
        self._settle(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        self._settle(None, exception)

    def _settle(self, result: Any, exception: BaseException | None) -> None:
        with _quick:
            is_first = self._final is None
            if is_first:
                self._result, self._exception = result, exception
                self._final = FINISHED
        if not is_first:
            raise InvalidStateError(f"{self._final}: {self!r}")
        self._show()
        self._call_back()

    def _show(self) -> None:
        with _quick:
            if self._looks or self._final in (None, _CANCELLED, self._state):
                return
            self._state = self._final or ""
            listeners = list(self._listeners or ())
        for listener in listeners:
            if self._state != FINISHED:
                listener.add_cancelled(self)
            elif self._exception is None:
                listener.add_result(self)
            else:
                listener.add_exception(self)

    def fail(
        self, error: BaseException, note: Callable[[BaseException], None] | None = None
    ) -> bool:
        """Set the error of a message; return False if it has an outcome already.

        ``note`` is called if the Future is dropped before anybody has asked for the outcome.
        """
        if note is not None:
            self._unretrieved = UnretrievedError(error, note)
            if self._is_looked_at:  # never back to False: somebody may look just now
                self._unretrieved.is_seen = True
        try:
            self.set_exception(error)
        except InvalidStateError:
            if self._unretrieved is not None:
                self._unretrieved.is_seen = True
            return False
        return True

    def abandon(self) -> None:
        """In a forked child: only the parent knows the outcome."""
        self._looks = 0  # the threads that looked do not exist there
        if not self.done():
            self.set_exception(
                ClosedError("published before a fork: only the parent knows the outcome"))


def start_all(futures: Sequence[PublishFuture]) -> list[PublishFuture]:
    """Begin messages; return the ones that were not cancelled or begun before."""
    with _quick:
        begun = list(future for future in futures if future._state == PENDING)
        for future in begun:
            future._state = RUNNING
        cancelled = list(future for future in futures if future._state == _CANCELLED)
        for future in cancelled:
            future._final = _CANCELLED_AND_NOTIFIED
    for future in cancelled:
        future._show()
    return begun


def succeed_all(futures: Sequence[PublishFuture]) -> None:
    """Set the result None of each message without an outcome; faster than ``set_result``."""
    watched = []
    with _quick:
        for future in futures:
            if future._callbacks is not None or future._listeners is not None or future._looks:
                watched.append(future)
            elif future._final is None:
                future._state = future._final = FINISHED
    for future in watched:
        with contextlib.suppress(InvalidStateError):  # it has an outcome already
            future.set_result(None)


class UnretrievedErrors:
    """Failures of Futures whose outcome nobody requested. Thread-safe: only a deque is shared."""

    def __init__(self) -> None:
        self._errors: deque[BaseException] = deque()
        self._next_warning = 0.0  # on time.monotonic()

    def note(self, error: BaseException) -> None:
        self._errors.append(error)

    def report(self, *, at_once: bool = False) -> None:
        """Log the failures, unless the last warning was less than ``_PAUSE`` ago."""
        number = len(self._errors)
        now = time.monotonic()
        if not number or (now < self._next_warning and not at_once):
            return
        self._next_warning = now + _PAUSE
        errors: list[BaseException] = []
        with contextlib.suppress(IndexError):  # another thread reports the others
            while len(errors) < number:
                errors.append(self._errors.popleft())
        if errors:
            logger.warning(
                "%s failed, and the result was not checked; the last: %r",
                counted(len(errors), "asynchronous publish", "asynchronous publishes"), errors[-1],
            )
