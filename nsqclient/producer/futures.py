"""``PublishFuture``: an asynchronous publish; ``UnretrievedErrors``: failures nobody looked at.

A plain ``concurrent.futures.Future`` makes a ``Condition`` at once, which costs more than the rest
of an asynchronous publish. And where an exception from a signal handler interrupts a thread in
``result()``, the condition may stay taken: then the thread that sets the outcome hangs. Here that
thread never waits for a lock that threads of the user's hold for more than an instant.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, TimeoutError
from typing import Any

from nsqclient.display import counted
from nsqclient.errors import ClosedError
from nsqclient.runtime.forking import run_after_fork
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import is_for_caller

logger: logging.Logger = logging.getLogger("nsqclient.producer")

# concurrent.futures spells its states as strings.
PENDING, RUNNING, FINISHED = "PENDING", "RUNNING", "FINISHED"
_CANCELLED, _CANCELLED_AND_NOTIFIED = "CANCELLED", "CANCELLED_AND_NOTIFIED"

#: Seconds between two warnings: during an outage thousands may fail.
_PAUSE = 10.0

#: Guards changes of a Future's state. One for all: it is held for a few instructions, and
#: never but by a ``with`` statement.
_quick = Lock()


def renew_lock() -> None:
    """In a forked child: a thread that does not exist there may hold the lock."""
    global _quick
    _quick = Lock()


run_after_fork(renew_lock)


class _Watchers:
    """The threads and callbacks that wait for the outcome of one PublishFuture."""

    __slots__ = ("batons", "callbacks", "waiters", "looking")

    def __init__(self) -> None:
        self.batons: set[threading.Lock] = set()  # each held by a thread that waits
        self.callbacks: deque[Callable[[Any], object]] = deque()
        self.waiters: list[Any] = []  # of concurrent.futures.wait() and as_completed()
        self.looking = 0  # how many of these two look at the state, and may add themselves


class _Turn:
    """What ``wait()`` and ``as_completed()`` take for a Future's condition.

    The state does not change while they have it; nobody waits for it.
    """

    __slots__ = ("_future", "_watchers")

    def __init__(self, future: PublishFuture, watchers: _Watchers) -> None:
        self._future = future
        self._watchers = watchers

    def acquire(self) -> None:
        """Have the state stay as it is."""
        with _quick:
            self._watchers.looking += 1

    def release(self) -> None:
        """Give it back, and announce what has happened meanwhile."""
        with _quick:
            self._watchers.looking -= 1
        self._future._announce()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class UnretrievedError:
    """Belongs to a Future that failed, and ends with it.

    ``__del__`` may run in any thread at any moment, so it only takes a note.
    """

    __slots__ = ("error", "is_seen", "_note")

    def __init__(self, error: BaseException, note: Callable[[BaseException], None]) -> None:
        self.error: BaseException = error
        self.is_seen: bool = False  # somebody asked for the outcome
        self._note = note

    def __del__(self) -> None:
        if not self.is_seen:
            self._note(self.error)


class UnretrievedErrors:
    """Collects the notes and logs them. Thread-safe: nothing but a deque is shared."""

    def __init__(self) -> None:
        self._errors: deque[BaseException] = deque()
        self._next_warning = 0.0  # on time.monotonic()

    def note(self, error: BaseException) -> None:
        """A Future was dropped unseen."""
        self._errors.append(error)

    def report(self, *, at_once: bool = False) -> None:
        """Log what was noted, if the last warning is long enough ago."""
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


class PublishFuture(Future[Any]):
    """A message whose outcome is a Future: what ``publish_async`` returns.

    Everything that it needs before somebody asks is an attribute of the class: each field of its
    own costs every message.
    """

    _state: str = PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _watchers: _Watchers | None = None
    #: The state that ``wait()`` and ``as_completed()`` are yet to hear of.
    _final: str | None = None
    _is_looked_at = False
    _unretrieved: UnretrievedError | None = None
    #: What the queue that takes it over needs: arguments of its call, later parts of its command.
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

    def _watch(self) -> _Watchers:
        watchers = self._watchers
        if watchers is None:
            with _quick:
                watchers = self._watchers
                if watchers is None:
                    watchers = self._watchers = _Watchers()
        return watchers

    # -- what the functions of concurrent.futures look at

    @property
    def _condition(self) -> Any:  # type: ignore[override] # made when needed
        return _Turn(self, self._watch())

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override] # made when needed
        return self._watch().waiters

    # -- for threads that wait

    def cancel(self) -> bool:
        """Cancel it, unless it runs or has run. As Future.cancel."""
        with _quick:
            if self._state == PENDING:
                self._state = _CANCELLED
        if not self.cancelled():
            return False
        self._wake()
        return True

    def cancelled(self) -> bool:
        """Return whether it was cancelled. As Future.cancelled."""
        return self._state in (_CANCELLED, _CANCELLED_AND_NOTIFIED)

    def running(self) -> bool:
        """Return whether it has begun and has no outcome. As Future.running."""
        return self._state == RUNNING and self._final is None

    def done(self) -> bool:
        """Return whether it has an outcome, or was cancelled. As Future.done."""
        return self._state not in (PENDING, RUNNING) or self._final is not None

    def result(self, timeout: float | None = None) -> Any:
        """Return when nsqd has stored the message; raise its outcome else. As Future.result.

        Returns: what ``Producer.publish`` returns.
        """
        # The state is set last, so no lock is needed to see a good outcome.
        if self._state != FINISHED or self._exception is not None:
            self._look()
            self._wait(timeout)
            if self._exception is not None:
                try:
                    raise self._exception
                finally:
                    del self  # no reference cycle with the traceback
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what went wrong, None when nsqd has stored it. As Future.exception."""
        self._look()
        self._wait(timeout)
        return self._exception

    def _look(self) -> None:
        """Somebody takes notice of the outcome."""
        self._is_looked_at = True
        if self._unretrieved is not None:
            self._unretrieved.is_seen = True

    def _wait(self, timeout: float | None) -> None:
        """Wait for the outcome; raise where it is none."""
        if not self.done():
            batons = self._watch().batons
            baton = threading.Lock()
            baton.acquire()
            try:
                batons.add(baton)
                if not self.done():  # looked at after it was added
                    if timeout is None:
                        baton.acquire()
                    else:
                        baton.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))
                    if not self.done():
                        raise TimeoutError()
            finally:
                batons.discard(baton)
        if self.cancelled():
            raise CancelledError()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` with the Future when its outcome is there. As Future.add_done_callback."""
        self._look()
        callbacks = self._watch().callbacks
        callbacks.append(fn)
        if self.done():  # looked at after it was added: it is called here, or there
            self._call_back(callbacks)

    def _call_back(self, callbacks: deque[Callable[[Any], object]]) -> None:
        while True:
            with _quick:  # another thread may call the others
                fn = callbacks.popleft() if callbacks else None
            if fn is None:
                return
            try:
                fn(self)
            except BaseException as exc:  # it must not end a thread of ours
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
            is_first = not self.done()
            if is_first:
                self._result, self._exception = result, exception
                self._final = FINISHED
        if not is_first:
            raise InvalidStateError(f"{self._state}: {self!r}")
        self._announce()
        self._wake()

    def _announce(self) -> None:
        """Have ``wait()`` and ``as_completed()`` hear of the end, unless one of them looks now."""
        watchers = self._watch()
        with _quick:
            if self._final is None or self._state == self._final or watchers.looking > 0:
                return
            self._state = self._final
            waiters = watchers.waiters.copy()
        for waiter in waiters:
            if self._state != FINISHED:
                waiter.add_cancelled(self)
            elif self._exception is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)

    def _wake(self) -> None:
        """Wake the threads that wait, then call the callbacks."""
        watchers = self._watchers
        if watchers is not None:
            with _quick:  # of two that cancel it at the same time
                # A copy: other threads add theirs meanwhile.
                for baton in list(one for one in watchers.batons.copy() if one.locked()):
                    baton.release()
            self._call_back(watchers.callbacks)

    def fail(
        self, error: BaseException, note: Callable[[BaseException], None] | None = None
    ) -> bool:
        """It has begun and has no good outcome; False when its outcome is there already.

        ``note`` is called when the Future is dropped and nobody has asked for the outcome.
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
        if self._watchers is not None:
            self._watchers.looking = 0  # those that looked do not exist there
        if not self.done():
            self.set_exception(
                ClosedError("published before a fork: only the parent knows the outcome")
            )


def start_all(futures: Sequence[PublishFuture]) -> list[PublishFuture]:
    """Say that they begin; return those that were neither cancelled nor begun before.

    Of several threads that begin the same one, one gets it.
    """
    with _quick:
        begun = list(future for future in futures if future._state == PENDING)
        for future in begun:
            future._state = RUNNING
    if len(begun) < len(futures):
        for future in futures:
            if future._state == _CANCELLED:
                future._final = _CANCELLED_AND_NOTIFIED
                future._announce()
    return begun


def succeed_all(futures: Sequence[PublishFuture]) -> None:
    """As ``set_result(None)`` for each of them that runs; quicker."""
    with _quick:
        # No thread has asked for the others yet: any thread that asks from now on sees it.
        watched = list(future for future in futures if future._watchers is not None)
        for future in (one for one in futures if one._watchers is None and one._state == RUNNING):
            future._state = FINISHED
    for future in watched:
        with contextlib.suppress(InvalidStateError):  # its outcome is there already
            future.set_result(None)
