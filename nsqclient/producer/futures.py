"""``PublishFuture``: an asynchronous publish; ``UnretrievedErrors``: failures nobody looked at."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from typing import Any

from nsqclient.display import counted
from nsqclient.errors import ClosedError
from nsqclient.runtime.futures import FINISHED, PlainFuture

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds between two warnings: during an outage thousands may fail.
_PAUSE = 10.0


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


class PublishFuture(PlainFuture):
    """A message whose outcome is a Future: what ``publish_async`` returns."""

    # Of the class until they change: each field of its own costs every message.
    _is_looked_at = False
    _unretrieved: UnretrievedError | None = None
    #: For a partitioned cluster: the arguments of its call, later the parts of its command.
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

    def result(self, timeout: float | None = None) -> Any:
        """Return when nsqd has stored the message; raise its outcome else. As Future.result.

        Returns: None, or what ``Producer.publish`` returns of a partition.
        """
        # The state is set last, so no lock is needed to see a good outcome.
        if self._state != FINISHED or self._exception is not None:
            self._look()
            return super().result(timeout)
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what went wrong, None when nsqd has stored it. As Future.exception."""
        self._look()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` with the Future when its outcome is there. As Future.add_done_callback."""
        self._look()
        super().add_done_callback(fn)

    def _look(self) -> None:
        """Somebody takes notice of the outcome."""
        self._is_looked_at = True
        if self._unretrieved is not None:
            self._unretrieved.is_seen = True

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
        self._forget_looks()
        if not self.done():
            self.set_exception(
                ClosedError("published before a fork: only the parent knows the outcome")
            )
