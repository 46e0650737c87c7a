"""What happens to one message on a worker thread: the checks, the handler, the answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from nsqclient.errors import AlreadyRespondedError
from nsqclient.flow.backoff import Outcome
from nsqclient.consuming.flow_control import FlowControl
from nsqclient.message import Message, Requeue
from nsqclient.runtime.timer import Timer
from nsqclient.consuming.subscription import MAX_FIN_BATCH, Subscription

logger = logging.getLogger("nsqclient.consumer")

Handler = Callable[[Message], Any]

#: Seconds after which a waiting FIN leaves even if its worker is busy with the next message.
_FIN_DELAY = 0.004


class Handling:
    """Runs the user's handler. ``run`` is called by every worker, concurrently."""

    def __init__(
        self,
        handler: Handler,
        max_attempts: int,
        on_giving_up: Callable[[Message], Any],
        flow: FlowControl,
        timer: Timer,
        subscriptions: Callable[[], list[Subscription]],
    ) -> None:
        self._handler = handler
        self._max_attempts = max_attempts
        self._on_giving_up = on_giving_up
        self._flow = flow
        self._timer = timer
        self._subscriptions = subscriptions
        self._backstop_is_set = False
        self._told_about_false = False
        #: How many handlers are running now; for reports only, so the race in += is harmless.
        self.running: set[Message] = set()

    def run(self, message: Message) -> None:
        """Handle one message and see to its answer. Never raises."""
        sub = message._responder
        assert isinstance(sub, Subscription)
        if message._responded:
            return  # handed back while it was queued
        if sub.is_lost or time.monotonic() >= message.deadline:
            sub.drop_expired(message)
            return
        if 0 < self._max_attempts < message.attempts:
            self._give_up(message, sub)
            return
        running = self.running
        running.add(message)
        try:
            result = self._handler(message)
        except BaseException as exc:  # whatever it is, the message must be answered
            self._on_exception(message, exc)
        else:
            if result is False:
                self._hint_at_false()
            if not (message._responded or message._is_async):
                # Also the FINs of this sub that other workers left are sent by this flush.
                message._responded = True
                if self._flow.is_backing_off:
                    self._flow.on_result(Outcome.SUCCESS)
                finished = sub.finished
                finished.append(message)
                if len(finished) >= sub.fin_batch:
                    sub.flush()
                elif not self._backstop_is_set:
                    self._set_backstop()
        finally:
            running.discard(message)

    def flush(self) -> None:
        """Send all FINs that wait. A worker calls it when it finds the queue empty."""
        for sub in self._subscriptions():
            if sub.finished:
                sub.flush()

    def _set_backstop(self) -> None:
        """Make sure that a FIN leaves soon even if this worker's next message takes an hour."""
        self._backstop_is_set = True
        self._timer.schedule(_FIN_DELAY, self._backstop)

    def _backstop(self) -> None:
        # Reset first: whoever appends after this line sets it again, and whoever appended
        # before it is flushed now.
        self._backstop_is_set = False
        for sub in self._subscriptions():
            if sub.finished:
                sub.post_finished()

    def _on_exception(self, message: Message, exc: BaseException) -> None:
        requeue = exc if isinstance(exc, Requeue) else Requeue()
        if requeue is not exc:
            logger.error("handler failed for %r", message, exc_info=exc)
        try:
            message._responder.requeue(message, requeue.delay, requeue.backoff)
        except AlreadyRespondedError:
            pass  # the handler answered it before it failed

    def _give_up(self, message: Message, sub: Subscription) -> None:
        try:
            self._on_giving_up(message)
        except BaseException as exc:
            # What was to keep the message failed, so it must not be finished.
            logger.error("on_giving_up failed for %r: requeued", message, exc_info=exc)
            self._on_exception(message, Requeue())
            return
        if not (message._responded or message._is_async):
            sub.finish(message)

    def _hint_at_false(self) -> None:
        if not self._told_about_false:
            self._told_about_false = True
            logger.warning(
                "a handler returned False: return values mean nothing, the message is finished;"
                " raise Requeue to have it again"
            )


def log_giving_up(message: Message) -> None:
    """The ready-made ``on_giving_up``: says in the log what is given up."""
    logger.error(
        "giving up %r after %d attempts; its body of %d bytes is dropped",
        message, message.attempts - 1, len(message.body),
    )


__all__ = ["MAX_FIN_BATCH", "Handler", "Handling", "log_giving_up"]
