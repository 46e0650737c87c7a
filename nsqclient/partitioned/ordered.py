"""``OrderedProcessor``: handles the messages of each partition in order, one at a time.

The number of its attempts never makes it give up a message. It skips a message only if the user's
policy says so, or the handler raises ``GiveUp``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum
from itertools import filterfalse
from time import monotonic

from nsqclient.consumer.context import ConsumerContext, log_failure
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.log_records import log_fields
from nsqclient.partitioned.subscription import OrderedSubscription
from nsqclient.consumer.processor import RECEIVE_TIME, HandlerSettings, MessageProcessor
from nsqclient.consumer.subscription import Subscription
from nsqclient.display import counted
from nsqclient.errors import OrderError
from nsqclient.message import GiveUp, Message, Requeue
from nsqclient.runtime.arguments import check_result
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import is_for_caller

#: Attempts of one message above which every tenth attempt is logged.
_WARN_AFTER = 10
#: Attempts from which on they are logged as errors instead of warnings.
_ERROR_FROM = 50


class BlockedAction(Enum):
    """The decision of ``on_blocked`` about an ordered message that blocks its partition."""

    RETRY = "retry"  #: requeue it after a delay
    SKIP = "skip"  #: finish it; the partition continues without it
    HANDLE = "handle"  #: only for a message that is out of order: handle it, continue from there


#: (message, error) -> an action, seconds to wait before the next attempt, or None for
#: ``BlockedAction.RETRY``. The error is an OrderError or the exception raised by the handler.
BlockedPolicy = Callable[[Message, BaseException], "BlockedAction | float | None"]


class OrderedProcessor(MessageProcessor):
    """Runs the user's handler for messages of partitions, each partition's in order."""

    def __init__(
        self, context: ConsumerContext, flow: FlowControl[Subscription], settings: HandlerSettings,
        on_blocked: BlockedPolicy | None,
    ) -> None:
        super().__init__(context, flow, settings)
        self._max_attempts = 0
        self._on_blocked = on_blocked
        self._lock = Lock()
        self._receivers: set[int] = set()  # receiving workers; changed only by atomic calls
        #: Partition -> (message being handled, messages received meanwhile). Guarded by _lock.
        self._busy: dict[int | None, tuple[Message, list[Message]]] = {}

    def run(self, message: Message) -> None:
        """Handle one message once no other of its partition is being handled. Never raises.

        After a reconnect, nsqd may redeliver a message that is still being handled, and the two
        deliveries must not run concurrently.
        """
        partition = message.partition
        if partition is None:
            super().run(message)  # not a message of a partition
            return
        with self._lock:
            if partition in self._busy:
                self._busy[partition][1].append(message)
                return
            self._busy[partition] = (message, [])
        try:
            super().run(message)
        finally:
            self._leave_partition(message)
        sub = message.responder
        if isinstance(sub, OrderedSubscription):
            self._receive_next(sub)

    def _receive_next(self, sub: Subscription) -> None:
        """Receive the next message on this worker, unless another connection may need it."""
        if (
            len(self.workers) or len(sub.in_flight) or self.requeues_incoming
            or self.worker_count < len(self._flow.subscriptions)
        ):
            sub.conn.reader.wake()
            return
        me = threading.get_ident()
        self._receivers.add(me)
        try:
            sub.conn.reader.receive_messages(monotonic() + RECEIVE_TIME)
        finally:
            self._receivers.discard(me)

    def queue(self, messages: list[Message]) -> None:
        self.workers.put_many(messages, wakes=threading.get_ident() not in self._receivers)

    def _leave_partition(self, message: Message) -> None:
        """Let the next message of its partition be handled. Idempotent."""
        with self._lock:
            handled, waiting = self._busy.get(message.partition, (None, []))
            if handled is message:
                self.workers.put_many(waiting)
                del self._busy[message.partition]

    def waiting(self) -> list[Message]:
        queued = super().waiting()  # first, because messages move from the queue to the lists
        with self._lock:
            return queued + [message for _, kept in self._busy.values() for message in kept]

    def remove_waiting(self, condition: Callable[[Message], bool]) -> list[Message]:
        taken = super().remove_waiting(condition)
        with self._lock:
            for _, waiting in self._busy.values():
                taken += filter(condition, waiting)
                waiting[:] = filterfalse(condition, waiting)
        return taken

    def should_handle(self, message: Message, now: float) -> Subscription | None:
        sub = super().should_handle(message, now)
        if not isinstance(sub, OrderedSubscription):
            return sub
        self._log_attempts(message)
        if not sub.is_behind(message):
            return sub
        error = OrderError(
            f"{message!r} at offset {message.offset} came behind a message that was finished on its"
            f" connection: {sub.last_finished}"
        )
        self._log.error("%s: %s", sub.place, error, extra=log_fields(message=message))
        if self._decide(message, error) is not BlockedAction.HANDLE:
            return None
        sub.last_finished = None
        return sub

    def finish(self, message: Message, sub: Subscription) -> None:
        if isinstance(sub, OrderedSubscription):
            sub.note_finished(message)
        super().finish(message, sub)

    def _log_attempts(self, message: Message) -> None:
        attempts = message.attempts
        if attempts <= _WARN_AFTER or attempts % _WARN_AFTER:
            return
        level = logging.WARNING if attempts < _ERROR_FROM else logging.ERROR
        self._log.log(level, "%r blocks its partition: it was delivered %s", message,
                      counted(attempts, "time"), extra=log_fields(message=message))

    def _on_exception(self, message: Message, exc: BaseException) -> None:
        if isinstance(exc, GiveUp):
            decision = self.decide_failure(message, exc)
            if decision is not None:
                self.on_failure(message, decision)
            return
        if not isinstance(exc, Requeue):
            log_failure(self._log, exc, "handler failed for %r", message,
                        extra=log_fields(message=message))
        if not message.has_responded:
            self._decide(message, exc)

    def _decide(self, message: Message, error: BaseException) -> BlockedAction | float | None:
        decision: BlockedAction | float | None = None
        if self._on_blocked is not None:
            try:
                result = self._on_blocked(message, error)
                check_result(result)
                decision = result
            except BaseException as exc:  # an error of the user's code does not skip a message
                self._log.exception("on_blocked failed for %r: the message is retried", message,
                                    extra=log_fields(message=message))
                if is_for_caller(exc):
                    self._answer(lambda: message.requeue(backoff=False))
                    raise
        if decision is BlockedAction.HANDLE and isinstance(error, OrderError):
            return decision
        if decision is BlockedAction.SKIP:
            self._log.error("%r is skipped because of on_blocked: %r", message, error,
                            extra=log_fields(message=message))
            self._answer(message.finish)
            return decision
        delay = error.delay if isinstance(error, Requeue) else None
        if isinstance(decision, (int, float)) and not isinstance(decision, bool):
            delay = max(0.0, float(decision))
        self._answer(lambda: message.requeue(delay, backoff=False))
        return decision
