"""One message on its way through the pipeline, and who waits for its outcome."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from nsqclient.errors import ClosedError
from nsqclient.publishing.unseen import Unseen

# concurrent.futures spells its states as strings.
_PENDING, _RUNNING, _FINISHED = "PENDING", "RUNNING", "FINISHED"

#: Guards the making of a condition in a Item, and its quick ways out. One for all: it is
#: held for a few instructions.
_quick = threading.Lock()


def _after_fork_in_child() -> None:
    """A thread that does not exist in the child may hold the lock."""
    global _quick
    _quick = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Item(Future):  # type: ignore[type-arg] # it is a Future[None]
    """A message whose outcome is a Future: what ``publish_async`` returns.

    A plain Future makes a Condition at once, which costs more than the rest of a publish. This
    one makes it when somebody first waits, asks or cancels; most are never asked before their
    outcome is there.
    """

    # Of the class until they change: each field of its own, and each list, costs every message.
    _state: str = _PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _made_condition: threading.Condition | None = None
    _is_looked_at = False
    _unseen: Unseen | None = None
    maybe_stored = False
    has_started = False

    def __init__(
        self, topic: str, body: bytes, delay_ms: int | None, until: float, seconds: float
    ) -> None:
        # The fields of Future are here, of the class or made with its condition; a test compares.
        self.topic = topic
        self.body = body
        self.delay_ms = delay_ms
        self.until = until  # its deadline, on time.monotonic()
        self.seconds = seconds  # how long it was given
        self.alone = delay_ms is not None  # must travel as a command of its own

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override] # made when needed
        condition = self._made_condition
        if condition is None:
            with _quick:
                condition = self._made_condition
                if condition is None:
                    # Future uses these two only while it holds the condition, or behind that.
                    self._waiters: list[Any] = []
                    self._done_callbacks: list[Any] = []
                    condition = self._made_condition = threading.Condition()
        return condition

    def result(self, timeout: float | None = None) -> Any:
        """Return when nsqd has stored the message; raise its outcome else. As Future.result.

        Returns: None, or what ``Producer.publish`` returns of a partition.
        """
        # The state is set last, so no lock is needed to see a good outcome.
        if self._state != _FINISHED or self._exception is not None:
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
            with _quick:
                if self._made_condition is None:
                    self._state = _RUNNING
                    return True
            return self.set_running_or_notify_cancel()
        return True

    def succeed(self) -> None:
        """nsqd has stored it."""
        with _quick:
            # Nobody has asked yet: whoever does from now on sees the outcome.
            if self._made_condition is None:
                self._state = _FINISHED
                return
        self.set_result(None)

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
        # A thread that does not exist here may hold the condition.
        if self._made_condition is not None:
            self._made_condition = threading.Condition()
        if not self.done():
            self.has_started = True
            self._state = _RUNNING
            self.set_exception(
                ClosedError("published before a fork: only the parent knows the outcome")
            )
