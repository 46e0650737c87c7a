"""``OrderedHandling``: handling where the order of a partition counts for more than its flow.

A message is handled when no other of its partition is, never given up because of its attempts,
and never skipped unless the user's policy says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

from nsqclient.config import Config
from nsqclient.consuming.flow_control import FlowControl
from nsqclient.consuming.handling import Handler, Handling
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.partition_subscription import OrderedSubscription
from nsqclient.consuming.subscription import Subscription
from nsqclient.errors import ConfigError, OrderError
from nsqclient.message import Message, Requeue
from nsqclient.partitions.ordering import Turn
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.threads import is_for_caller
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.user_functions import check_result

#: From five times the threshold on every such failure is an error, no mere warning.
_ERROR_FACTOR = 5


class Blocked(Enum):
    """What a policy may decide about an ordered message that blocks its partition."""

    RETRY = "retry"  #: wait, then have it delivered again: nothing is lost
    SKIP = "skip"  #: finish it all the same: the partition goes on without it
    HANDLE = "handle"  #: only for one that is out of order: handle it, and go on from there


#: (message, what went wrong) -> a decision, seconds to wait before the next try, or None for
#: ``Blocked.RETRY``. What went wrong is an OrderError, or what the handler raised.
Policy = Callable[[Message, BaseException], "Blocked | float | None"]


def check_ordered(
    ordered: object, config: Config, *, is_batch: bool, has_nsqds: bool, has_policy: bool
) -> None:
    """Check the arguments of a consumer that go with ``ordered``.

    Raises:
        ConfigError: they do not fit; says what to do.
    """
    if not isinstance(ordered, bool):
        raise ConfigError(f"ordered must be True or False, not {ordered!r}")
    if not ordered:
        if has_policy:
            raise ConfigError("on_blocked is for ordered=True; else see on_giving_up")
        return
    if config.sample_rate:
        raise ConfigError("sample_rate would break the order: nsqd refuses it with ordered=True")
    if has_nsqds:
        raise ConfigError(
            "ordered=True needs lookupd_http_addresses instead of nsqd_tcp_addresses: who leads a"
            " partition changes"
        )
    if is_batch:
        raise ConfigError("a BatchHandler cannot keep an order: give a plain handler")


class OrderedHandling(Handling):
    """Runs the user's handler for messages of partitions, each partition's in order.

    Args:
        on_blocked: the user's policy; None retries for ever.
        warn_after: failures of one message from which on its attempts are logged.
        put_back: puts messages into the workers' queue again.
    """

    def __init__(
        self,
        handler: Handler,
        on_blocked: Policy | None,
        warn_after: int,
        flow: FlowControl,
        timer: Timer,
        subscriptions: Callable[[], list[Subscription]],
        put_back: Callable[[list[Message]], Any],
        log: LifeLog | None = None,
    ) -> None:
        super().__init__(handler, 0, _never, flow, timer, subscriptions, log)
        self._on_blocked = on_blocked
        self._warn_after = warn_after
        self._put_back = put_back
        self._lock = threading.Lock()
        #: Partition -> what came for it while one of its messages is handled; guarded by _lock.
        self._busy: dict[int | None, list[Message]] = {}

    def run(self, message: Message) -> None:
        """Handle one message, when no other of its partition is being handled. Never raises.

        After a reconnect the server delivers again what is still being handled here: the two
        must not run side by side.
        """
        partition = message.partition
        if partition is None:
            super().run(message)  # a task for a worker
            return
        with self._lock:
            waiting = self._busy.get(partition)
            if waiting is not None:
                waiting.append(message)
                return
            self._busy[partition] = []
        try:
            super().run(message)
        finally:
            with self._lock:
                came = self._busy.pop(partition)
            if came:
                self._put_back(came)

    def set_aside(self) -> list[Message]:
        """Return what came for a partition while one of its messages is handled."""
        with self._lock:
            return [message for waiting in self._busy.values() for message in waiting]

    def take_aside(self, condition: Callable[[Message], bool]) -> list[Message]:
        """Remove and return those of them for which ``condition`` is true."""
        taken = []
        with self._lock:
            for waiting in self._busy.values():
                taken += [message for message in waiting if condition(message)]
                waiting[:] = [message for message in waiting if not condition(message)]
        return taken

    def admit(self, message: Message) -> Subscription | None:
        """Check the order before the handler sees the message; None when it must not."""
        sub = super().admit(message)
        if not isinstance(sub, OrderedSubscription):
            return sub
        self._tell_of_attempts(message)
        if message.internal_id is None or message.offset is None:
            return sub
        if sub.order.turn_of(message.internal_id, message.offset) is not Turn.BEHIND:
            return sub
        error = OrderError(
            f"{message!r} at offset {message.offset} came behind one that was finished on its"
            f" connection: {sub.order.last}"
        )
        self._log.error("%s: %s", sub.place, error)
        if self._decide(message, error) is not Blocked.HANDLE:
            return None
        sub.order.restart()
        return sub

    def finish(self, message: Message, sub: Subscription) -> None:
        """Finish a message that was handled."""
        if isinstance(sub, OrderedSubscription):
            sub.note_finished(message)
        super().finish(message, sub)

    def _tell_of_attempts(self, message: Message) -> None:
        after, attempts = self._warn_after, message.attempts
        if attempts <= after or attempts % after:
            return
        level = logging.WARNING if attempts < _ERROR_FACTOR * after else logging.ERROR
        self._log.log(level, "%r blocks its partition: it was delivered %s", message,
                      counted(attempts, "time"))

    def _on_exception(self, message: Message, exc: BaseException) -> None:
        if not isinstance(exc, Requeue):
            self._log.error("handler failed for %r", message, exc_info=exc)
        if not message.has_responded:
            self._decide(message, exc)

    def _decide(self, message: Message, error: BaseException) -> Blocked | float | None:
        """Ask the policy, and do what it says."""
        decision: Blocked | float | None = None
        if self._on_blocked is not None:
            try:
                result = self._on_blocked(message, error)
                check_result(result)
                decision = result
            except BaseException as exc:  # the user's code; never skip because of it
                self._log.exception("on_blocked failed for %r: it is tried again", message)
                if is_for_caller(exc):
                    self._answer(lambda: message.requeue(backoff=False))
                    raise
        if decision is Blocked.HANDLE and isinstance(error, OrderError):
            return decision
        if decision is Blocked.SKIP:
            self._log.error("%r is skipped, as on_blocked says: %r", message, error)
            self._answer(message.finish)
            return decision
        delay = error.delay if isinstance(error, Requeue) else None
        if isinstance(decision, (int, float)) and not isinstance(decision, bool):
            delay = max(0.0, float(decision))
        self._answer(lambda: message.requeue(delay, backoff=False))
        return decision


def _never(message: Message) -> None:
    raise AssertionError("ordered messages are not given up")
