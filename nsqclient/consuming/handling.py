"""What happens to one message on a worker thread: the checks, the handler, the answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from nsqclient.errors import AlreadyRespondedError, ConnectionLostError
from nsqclient.flow.backoff import Outcome
from nsqclient.consuming.flow_control import FlowControl
from nsqclient.consuming.life_log import LifeLog
from nsqclient.message import Message, Requeue
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.threads import is_for_caller
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.user_functions import check_result
from nsqclient.runtime.workers import WorkerPool
from nsqclient.consuming.subscription import Subscription

Handler = Callable[[Message], Any]

#: Seconds after which a waiting FIN leaves even if its worker is busy with the next message.
_FIN_DELAY = 0.004


class WorkerTask(Message):
    """Something else for a worker to do; travels in the queue of messages."""

    __slots__ = ("task",)

    def __init__(self, task: Callable[[], None]) -> None:
        self.task = task
        self.body = b""  # the queue's bytes are counted
        # Looks like an answered message, so that only run() has to know about it, and only in
        # the branch that is rare.
        self._responded = True


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
        log: LifeLog | None = None,
    ) -> None:
        self._log = LifeLog("consumer") if log is None else log
        self._handler = handler
        self._max_attempts = max_attempts
        self._on_giving_up = on_giving_up
        self._flow = flow
        self._timer = timer
        self._subscriptions = subscriptions
        self._backstop_is_set = False
        self._told_about_false = False
        #: The messages that are being handled now; those of a loop over ``messages()`` with the
        #: loop's thread.
        self.running: dict[Message, int | None] = {}
        self._turn_over = Monitor()

    def run(self, message: Message) -> None:
        """Handle one message and see to its answer. Never raises."""
        sub = self.admit(message)
        if sub is None:
            return
        running = self.running
        running[message] = None
        try:
            result = self._handler(message)
            if result is not None:
                self._check_result(result, message)
        except BaseException as exc:  # whatever it is, the message must be answered
            self._on_exception(message, exc)
        else:
            if not (message._responded or message._is_async):
                self.finish(message, sub)
        finally:
            del running[message]

    def finish(self, message: Message, sub: Subscription) -> None:
        """Finish a message that was handled; its FIN waits a little for company."""
        message._responded = True
        if self._flow.is_backing_off:
            self._flow.on_result(Outcome.SUCCESS)
        sub.finished.append(message)
        self.flush_soon(sub)

    def flush_soon(self, sub: Subscription) -> None:
        """See to it that the FINs that wait leave, now or in a moment, whatever workers do."""
        if len(sub.finished) >= sub.fin_batch:
            sub.flush()
        elif not self._backstop_is_set:
            self._set_backstop()

    def admit(self, message: Message) -> Subscription | None:
        """Check a message before the handler sees it; None when it must not."""
        if message._responded:
            if isinstance(message, WorkerTask):
                message.task()
            return None  # else it was handed back while it was queued
        sub = message._responder
        assert isinstance(sub, Subscription)
        if time.monotonic() >= message.deadline:
            sub.drop_expired(message)
            return None
        most = self._max_attempts
        if 0 < most < message.attempts and sub.count_handled(message) > most:
            self._give_up(message)
            return None
        return sub

    def drop_expired(self, queue: WorkerPool[Message]) -> None:
        """Forget what expired while it was first in the queue; called when more is put behind it.

        Else the queue would grow for as long as a handler hangs: nsqd sends each again.
        """
        now = time.monotonic()

        def is_expired(message: Message) -> bool:
            return not message._responded and message.deadline <= now

        while (message := queue.take_if(is_expired)) is not None:
            sub = message._responder
            assert isinstance(sub, Subscription)
            sub.drop_expired(message)

    def set_aside(self) -> list[Message]:
        """Return what was taken from the queue and waits all the same; here there is none."""
        return []

    def take_aside(self, condition: Callable[[Message], bool]) -> list[Message]:
        """Remove and return those of them for which ``condition`` is true."""
        return []

    def begin_turn(self, message: Message) -> None:
        """A loop over ``messages()`` has this message now."""
        self.running[message] = threading.get_ident()

    def end_turn(self, message: Message) -> None:
        """The loop is done with it."""
        with self._turn_over.lock:
            self._turn_over.notify_all()
            self.running.pop(message, None)

    def is_turn_of_caller(self) -> bool:
        """Tell whether the calling thread is a loop in the middle of a turn."""
        return threading.get_ident() in list(self.running.values())

    def wait_for_turns(self, deadline: Deadline) -> None:
        """Wait until no loop is in the middle of a turn. A worker's handler does not count."""

        def no_turn() -> bool:
            return not any(thread is not None for thread in list(self.running.values()))

        self._turn_over.wait_for(no_turn, deadline.remaining())

    def flush(self) -> None:
        """Send all FINs that wait. A worker calls it when it finds the queue empty."""
        for sub in self._subscriptions():
            if sub.finished:
                sub.flush()

    def _set_backstop(self) -> None:
        """Make sure that a FIN leaves soon even if this worker's next message takes an hour."""
        self._backstop_is_set = True  # first: the task may run before schedule() returns
        try:
            self._timer.schedule(_FIN_DELAY, self._backstop)
        except BaseException:  # of a signal handler
            self._backstop_is_set = False
            raise

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
            self._log.error("handler failed for %r", message, exc_info=exc)
        self._answer(lambda: message.requeue(requeue.delay, requeue.backoff))

    def _give_up(self, message: Message) -> None:
        try:
            result = self._on_giving_up(message)
            check_result(result, may_be_future=message._is_async or message._responded)
        except BaseException as exc:
            # What was to keep the message failed, so it must not be finished.
            self._log.error("on_giving_up failed for %r: requeued", message, exc_info=exc)
            self._on_exception(message, Requeue())
            if is_for_caller(exc):
                raise
            return
        if not message._is_async:
            self._answer(message.finish)

    def _answer(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except AlreadyRespondedError:
            pass  # the user's code answered it
        except ConnectionLostError as exc:
            self._log.info("%s", exc)

    def _check_result(self, result: object, message: Message) -> None:
        """Raise when the handler has only begun its work; a result means nothing else."""
        check_result(result, may_be_future=message._is_async or message._responded)
        if result is False and not self._told_about_false:
            self._told_about_false = True
            self._log.warning(
                "a handler returned False: return values mean nothing, the message is finished;"
                " raise Requeue to have it again"
            )
