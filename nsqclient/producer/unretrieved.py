"""``UnretrievedErrors``: failures of asynchronous publishes that nobody has looked at."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable

from nsqclient.display import counted

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
        """Log the noted failures, if the last warning is long enough ago."""
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
