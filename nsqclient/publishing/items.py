"""One message on its way through the pipeline, and who waits for its outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nsqclient.errors import ClosedError
from nsqclient.publishing.unseen import Unseen
from nsqclient.runtime.futures import FINISHED, PlainFuture


class Item(PlainFuture):
    """A message whose outcome is a Future: what ``publish_async`` returns."""

    # Of the class until they change: each field of its own costs every message.
    _is_looked_at = False
    _unseen: Unseen | None = None
    maybe_stored = False
    has_started = False

    def __init__(
        self, topic: str, body: bytes, delay_ms: int | None, until: float, seconds: float
    ) -> None:
        self.topic = topic
        self.body = body
        self.delay_ms = delay_ms
        self.until = until  # its deadline, on time.monotonic()
        self.seconds = seconds  # how long it was given
        self.alone = delay_ms is not None  # must travel as a command of its own

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
        if self._unseen is not None:
            self._unseen.is_seen = True

    def start(self) -> bool:
        """It is about to be sent; False when it was cancelled before."""
        if not self.has_started:
            self.has_started = True
            return self.set_running_or_notify_cancel()
        return True

    def fail(
        self, error: BaseException, note: Callable[[BaseException], None] | None = None
    ) -> bool:
        """It has no good outcome; False when its outcome is there already.

        ``note`` is called when the Future is dropped and nobody has asked for the outcome.
        """
        if self.done() or not self.start():
            return False
        if note is not None:
            self._unseen = Unseen(error, note)
            if self._is_looked_at:  # never back to False: somebody may look just now
                self._unseen.is_seen = True
        self.set_exception(error)
        return True

    def abandon(self) -> None:
        """In a forked child: only the parent knows the outcome."""
        self._forget_locks()
        if not self.done():
            self.has_started = True
            self.set_exception(
                ClosedError("published before a fork: only the parent knows the outcome")
            )
