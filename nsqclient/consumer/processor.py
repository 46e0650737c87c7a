"""``MessageProcessor``: takes messages from the queue, runs the handler, and answers them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from nsqclient.consumer.backoff import Outcome
from nsqclient.consumer.backpressure import Backpressure
from nsqclient.consumer.context import ConsumerContext, log_failure, log_retry
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.in_flight import DeliveryCounts
from nsqclient.consumer.retry import Decision, RetryPolicy, decide, show_delays
from nsqclient.consumer.subscription import Subscription
from nsqclient.display import LONGEST_TEXT, counted, printable
from nsqclient.errors import AlreadyRespondedError
from nsqclient.log_records import log_fields
from nsqclient.message import (
    MESSAGE_OVERHEAD, Failure, GiveUp, HandlerResult, Message, Requeue, raise_decision,
)
from nsqclient.runtime.arguments import check_result, show_function
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.threads import is_for_caller
from nsqclient.runtime.workers import WorkerPool

Handler = Callable[[Message], HandlerResult]

#: Seconds after which a collected FIN is sent even if its worker is busy with the next message.
_FIN_DELAY = 0.004
#: Seconds for which an idle worker receives from its connection before the reader takes over.
RECEIVE_TIME = 0.02


class HandlerSettings(NamedTuple):
    handler: Handler | None  #: None: a loop takes the messages
    on_giving_up: Callable[[Message], Any]
    #: Decides about messages whose handler raised; None: they are requeued.
    retry: RetryPolicy | None = None
    workers: int = 0  #: number of threads that run the handler


class WorkerTask(Message):
    __slots__ = ("task",)

    def __init__(self, task: Callable[[], None]) -> None:
        self.task: Callable[[], None] = task
        self.body = b""  # read by Backpressure
        # Marked as answered, so that run() need not check the type of every message.
        self.has_responded = True


class MessageProcessor:
    """Runs the user's handler on the worker threads and answers the messages.

    The BatchDelegate of a BatchHandler. Every worker calls ``run``, concurrently.
    """

    def __init__(
        self, context: ConsumerContext, flow: FlowControl[Subscription], settings: HandlerSettings
    ) -> None:
        self._log = context.log
        self.topic: str = context.topic
        self.channel: str = context.channel
        self.workers: WorkerPool[Message] = WorkerPool(
            "nsq-worker", settings.workers, self.run, self.on_idle)
        self.worker_count: int = settings.workers
        #: A stop has begun: received messages are requeued.
        self.requeues_incoming: bool = False
        self._handler = settings.handler or _no_handler
        self._max_attempts = context.config.max_attempts
        self._on_giving_up = settings.on_giving_up
        self._retry = settings.retry
        self._flow = flow
        self._backoff = flow.backoff
        self._timer = context.timer
        self._is_flush_scheduled = False
        self._warned_about_false = False
        #: Messages being handled -> since when. Includes those of loops over ``messages()``.
        self.running: dict[Message, float] = flow.running
        self._turns: dict[Message, int] = {}  # message of a loop -> its thread
        self._note_time = flow.handler_times.append
        #: Deliveries whose handler succeeded after the message's deadline.
        self._late = DeliveryCounts()
        self._handler_name = show_function(settings.handler)
        self._late_lines = LineLimit(1)
        self.backpressure: Backpressure = Backpressure(context, flow, self)
        #: Bytes queued since the last measurement. Not locked: a lost update is harmless.
        self._added = 0

    def enqueue(self, sub: Subscription, messages: list[Message], size: int) -> None:
        """Queue the messages of one read, with ``size`` bytes of bodies. See SubscriptionOwner."""
        is_stopping = self.requeues_incoming
        if is_stopping:
            sub.requeue_unstarted(messages)
            return
        flow = self._flow
        size += len(messages) * MESSAGE_OVERHEAD
        if flow.is_held:
            self.backpressure.check_late(sub, size)
        self.queue(messages)
        if self.requeues_incoming:
            self.requeue_queued()  # a stop has begun meanwhile
        flow.times_handlers = True
        if flow.counts_arrivals:
            flow.on_arrival(len(messages))
        self._added += size
        if self._added > self.backpressure.room and not flow.is_held:
            self._added = 0
            self.backpressure.measure()

    def queue(self, messages: list[Message]) -> None:
        self.workers.put_many(messages)

    def requeue_queued(self) -> int:
        queued = self.workers.take_all()
        tasks = [message for message in queued if message.has_responded]
        if tasks:
            self.workers.put_many(tasks)
        by_sub: dict[Subscription, list[Message]] = {}
        for message in queued:
            if not message.has_responded:
                sub = message.responder
                assert isinstance(sub, Subscription)
                by_sub.setdefault(sub, []).append(message)
        return sum(sub.requeue_unstarted(messages) for sub, messages in by_sub.items())

    def waiting(self) -> list[Message]:
        return self.workers.items()

    def remove_waiting(self, condition: Callable[[Message], bool]) -> list[Message]:
        taken = self.workers.take_where(condition)
        if self.requeues_incoming:
            self.requeue_queued()  # a stop may have missed messages that were moved meanwhile
        return taken

    def is_starved(self) -> bool:
        return not len(self.workers) and self._flow.is_starved()

    def run_later(self, delay: float, task: Callable[[], None]) -> None:
        self._timer.schedule(delay, task)

    def run_on_worker(self, task: Callable[[], None]) -> None:
        self.workers.put(WorkerTask(task))

    def run(self, message: Message) -> None:
        """Handle one message and answer it. Never raises."""
        began = monotonic()
        sub = self.should_handle(message, began)
        if sub is None:
            return
        running = self.running
        has_failed = False
        try:
            running[message] = began
            result = self._handler(message)
            if result is not None:
                self._check_result(result, message)
        except BaseException as exc:  # the message must be answered in any case
            has_failed = True
            self._on_exception(message, exc)
        else:
            if not (message.has_responded or message.is_async):
                self.finish(message, sub)
            elif not message.has_responded:
                self._flow.hold()
        finally:
            running.pop(message, None)
            flow = self._flow
            if flow.times_handlers:
                flow.times_handlers = flow.is_limited
                now = monotonic()
                self._note_time(now - began)
                if now > message.deadline:
                    self.note_late([message], now - began, has_failed)

    def note_late(self, messages: list[Message], seconds: float, has_failed: bool) -> None:
        """Record messages that expired while their handler ran, and warn of a slow handler."""
        for message in messages:
            sub = message.responder
            assert isinstance(sub, Subscription)
            if sub.is_lost:  # they expired with the connection
                continue
            if not has_failed:
                self._late.add(sub.place, message.raw_id)
            if seconds > sub.msg_timeout:  # otherwise it waited too long in the queue
                self._log.log(
                    self._late_lines.level(logging.WARNING),
                    "handler %s took %.1f s, longer than msg_timeout %g s: raise msg_timeout, or"
                    " call touch() or keep_alive()", self._handler_name, seconds, sub.msg_timeout,
                    extra=log_fields(message=message))

    def finish(self, message: Message, sub: Subscription) -> None:
        if self._backoff.is_active:
            self._backoff.on_result(Outcome.SUCCESS)
        sub.finished.append(message)
        message.has_responded = True
        if len(sub.finished) >= sub.fin_batch:  # flush_soon() inlined
            sub.flush()
        elif not self._is_flush_scheduled:
            self._schedule_flush()

    def flush_soon(self, sub: Subscription) -> None:
        if len(sub.finished) >= sub.fin_batch:
            sub.flush()
        elif not self._is_flush_scheduled:
            self._schedule_flush()

    def should_handle(self, message: Message, now: float) -> Subscription | None:
        """Return the message's subscription, or None if the handler must not see the message."""
        if message.has_responded:
            if isinstance(message, WorkerTask):
                message.task()
            return None  # any other answered message was requeued from the queue
        sub = message.responder
        assert isinstance(sub, Subscription)
        if now >= message.deadline:
            sub.drop_expired(message)
            return None
        most = self._max_attempts
        if 0 < most < message.attempts and sub.count_handled(message) > most:
            self._give_up(message, Failure(self._why_undone(message, sub)))
            return None
        return sub

    def _why_undone(self, message: Message, sub: Subscription) -> str:
        reason = (f"delivered {counted(message.attempts, 'time')}, and max_attempts is"
                  f" {self._max_attempts}")
        late = self._late.count(sub.place, message.raw_id)
        if late:
            reason += (f"; its handler succeeded {counted(late, 'time')}, but later than"
                       f" msg_timeout {sub.msg_timeout:g} s: raise msg_timeout, or call touch() or"
                       " keep_alive()")
        return reason

    # -- loops over messages()

    def begin_iteration(self, message: Message) -> None:
        self._turns[message] = threading.get_ident()
        self.running[message] = monotonic()

    def end_iteration(self, message: Message) -> None:
        """Idempotent."""
        self._turns.pop(message, None)
        began = self.running.pop(message, None)
        if message.is_async and not message.has_responded:
            self._flow.hold()
        elif began is not None:
            self._note_time(monotonic() - began)

    def is_iterated_by_caller(self) -> bool:
        return threading.get_ident() in self._turns.copy().values()

    def on_idle(self) -> None:
        """Send all FINs, and maybe receive. Called by a worker that found the queue empty.

        With one message at a time, this thread receives the next message, which would otherwise
        wake two threads: nsqd sends nothing until the previous message is finished.
        """
        subs = self._flow.subscriptions
        for sub in subs:
            sub.flush()
        if self.worker_count == 1 == len(subs) and self._flow.max_in_flight == 1:
            subs[0].conn.reader.receive_messages(monotonic() + RECEIVE_TIME)

    def flush(self) -> None:
        for sub in self._flow.subscriptions:
            sub.flush()

    def _schedule_flush(self) -> None:
        """Send the FINs soon, even if this worker's next message takes an hour."""
        self._is_flush_scheduled = True  # first: the task may run before schedule() returns
        try:
            self._timer.schedule(_FIN_DELAY, self._flush_on_timer)
        except BaseException:  # a signal handler raised, or this runs in one
            self._is_flush_scheduled = False
            raise

    def _flush_on_timer(self) -> None:
        self._is_flush_scheduled = False
        for sub in self._flow.subscriptions:
            sub.flush(waits=False)

    def _on_exception(self, message: Message, exc: BaseException) -> None:
        fields = log_fields(message=message)
        decision = self.decide_failure(message, exc)
        if decision is not None and decision.is_planned:
            log_retry(self._log, exc, "retrying %r after %s", message, show_delays([decision]),
                      extra=fields)
        elif not isinstance(exc, (Requeue, GiveUp)):
            log_failure(self._log, exc, "handler failed for %r", message, extra=fields)
        if decision is not None:
            self.on_failure(message, decision)

    def on_failure(self, message: Message, decision: Decision) -> None:
        """Requeue or give up the message, unless it is answered. Never raises."""
        if message.has_responded:
            return
        requeue, failure = decision.requeue, decision.failure
        if requeue is not None:
            delay, backoff = requeue.delay, requeue.backoff
            self._answer(lambda: message.requeue(delay, backoff))
        elif failure is not None:
            if decision.backoff:
                self._backoff.on_result(Outcome.FAILURE)
            message.is_async = False  # after a failure the handler does not answer
            self._give_up(message, failure)

    def decide_failure(self, message: Message, exc: BaseException) -> Decision | None:
        """Returns None if the message was answered. Never raises."""
        if message.has_responded:
            return None
        sub = message.responder
        assert isinstance(sub, Subscription)
        attempts, most = sub.count_handled(message), self._max_attempts
        try:
            return decide(self._retry, message, exc, attempts, most)
        except BaseException as error:  # the user's code
            log_failure(self._log, error, "retry failed for %r: the default applies", message,
                        extra=log_fields(message=message))
            return decide(None, message, exc, attempts, most)

    def give_up(self, message: Message, reason: str) -> None:
        if message.has_responded:
            raise AlreadyRespondedError(f"{message!r} was answered before")
        message.is_async = False  # the caller answers it here
        self._give_up(message, Failure(printable(reason, LONGEST_TEXT) or "no reason was given"))

    def _give_up(self, message: Message, failure: Failure) -> None:
        message._failure = failure
        try:
            result = self._on_giving_up(message)
            check_result(result, may_be_future=message.is_async or message.has_responded)
            raise_decision(result)
        except BaseException as exc:  # the callback failed, so the message is not finished
            log_failure(self._log, exc, "on_giving_up failed for %r: requeued", message,
                        extra=log_fields(message=message))
            self._answer(message.requeue)
            if is_for_caller(exc):
                raise
            return
        finally:
            del message._failure
        sub = message.responder
        assert isinstance(sub, Subscription)
        if not message.is_async:
            self._answer(message.finish)
        sub.in_flight.count_more("given_up")

    def _answer(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except AlreadyRespondedError:
            pass  # the user's code answered it

    def _check_result(self, result: object, message: Message) -> None:
        check_result(result, may_be_future=message.is_async or message.has_responded)
        raise_decision(result)
        if result is False and not self._warned_about_false:
            self._warned_about_false = True
            self._log.warning(
                "a handler returned False: return values are ignored, and the message is finished;"
                " raise Requeue to requeue it", extra=log_fields(message=message)
            )


def _no_handler(message: Message) -> None:
    raise AssertionError("a consumer without a handler has no workers")
