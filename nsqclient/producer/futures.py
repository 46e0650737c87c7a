"""``PublishFuture``: an asynchronous publish, whose outcome is a Future.

A ``concurrent.futures.Future`` makes a ``Condition`` at once, which costs more than everything else
in an asynchronous publish. And an exception from a signal handler in ``result()`` may leave the
condition acquired; the thread that sets the outcome would then hang. Here a thread that waits adds
a callback, and the outcome is set under a lock that is held for a few instructions.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, TimeoutError
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

from nsqclient.errors import ClosedError
from nsqclient.producer.unretrieved import UnretrievedError
from nsqclient.runtime.forking import run_after_fork
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import is_for_caller

logger: logging.Logger = logging.getLogger("nsqclient.producer")

# concurrent.futures spells its states as strings.
PENDING, RUNNING, FINISHED = "PENDING", "RUNNING", "FINISHED"
_CANCELLED, _CANCELLED_AND_NOTIFIED = "CANCELLED", "CANCELLED_AND_NOTIFIED"

#: Guards the state of every Future.
_quick = Lock()


def renew_lock() -> None:
    """In a forked child: a thread that does not exist there may hold the lock."""
    global _quick
    _quick = Lock()


run_after_fork(renew_lock)


class _Look:
    """Takes the place of a Future's condition in ``wait()`` and ``as_completed()``.

    While they hold it, they see the same state; nobody waits for them.
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


class PublishFuture(Future[Any]):
    """A message whose outcome is a Future: what ``publish_async`` returns.

    Attributes that few messages need are class attributes: setting one costs time.
    """

    _state: str = PENDING  # what wait() and as_completed() see
    _final: str | None = None  # the last state; they may not see it yet
    _result: Any = None
    _exception: BaseException | None = None
    _callbacks: deque[Callable[[Any], object]] | None = None
    _listeners: list[Any] | None = None  # of wait() and as_completed()
    _looks = 0  # calls of these two that hold the state
    _is_looked_at = False  # somebody has asked for the outcome
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
        self.seconds = seconds  # how long it was given
        self.alone: bool = delay_ms is not None  # must be sent as a command of its own

    @property
    def _condition(self) -> Any:  # type: ignore[override] # made when needed
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
        """Cancel it unless it has begun. As Future.cancel."""
        with _quick:
            if self._state == PENDING:
                self._state = self._final = _CANCELLED
        if self.cancelled():
            self._call_back()
        return self.cancelled()

    def cancelled(self) -> bool:
        """True after ``cancel()``. As Future.cancelled."""
        return self._final in (_CANCELLED, _CANCELLED_AND_NOTIFIED)

    def running(self) -> bool:
        """True between its begin and its outcome. As Future.running."""
        return self._state == RUNNING and self._final is None

    def done(self) -> bool:
        """True with an outcome, or if cancelled. As Future.done."""
        return self._final is not None

    def result(self, timeout: float | None = None) -> Any:
        """Return when nsqd has stored the message; raise its outcome else. As Future.result."""
        if self._final != FINISHED or self._exception is not None:
            self._wait(timeout)
            if self._exception is not None:
                try:
                    raise self._exception
                finally:
                    del self  # no reference cycle with the traceback
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what went wrong, None when nsqd has stored it. As Future.exception."""
        self._wait(timeout)
        return self._exception

    def _wait(self, timeout: float | None) -> None:
        """Wait for the outcome; raise if it does not come in time, or if it was cancelled."""
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
        """Somebody takes notice of the outcome."""
        self._is_looked_at = True
        if self._unretrieved is not None:
            self._unretrieved.is_seen = True

    def _make_callbacks(self) -> deque[Callable[[Any], object]]:
        with _quick:
            if self._callbacks is None:
                self._callbacks = deque()
            return self._callbacks

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` with the Future when its outcome is there. As Future.add_done_callback."""
        self._note_look()
        self._make_callbacks().append(fn)
        if self.done():  # looked at after it was added: it is called here, or there
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
        """Set a good outcome. As Future.set_result."""
        self._settle(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """Set what went wrong. As Future.set_exception."""
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
        """Show the last state to ``wait()`` and ``as_completed()``, unless one of them looks now.
        """
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
        """Fail a message that has begun; False if it has an outcome already.

        ``note`` is called if the Future is dropped and nobody has asked for the outcome.
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
    """Begin messages; return the messages that nobody has cancelled or begun.

    If several threads begin the same message, one gets it.
    """
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
