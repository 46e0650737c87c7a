"""``Wiring``: what the parts of a consumer ask of it, and who answers.

The base of ``Consumer``, so that the front door reads as documentation. Its constructor is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from nsqclient.config import Config
from nsqclient.consuming.backpressure import Backpressure
from nsqclient.consuming.flow_control import FlowControl
from nsqclient.consuming.handling import Handling, WorkerTask
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.membership import Membership
from nsqclient.consuming.partition_subscription import (
    OrderedSubscription,
    PartitionSubscription,
)
from nsqclient.consuming.stopping import StopProcedure
from nsqclient.consuming.subscription import Subscription
from nsqclient.consuming.unhandled_deliveries import UnhandledDeliveries
from nsqclient.errors import NSQError
from nsqclient.flow.backoff import Outcome, Phase
from nsqclient.message import Message
from nsqclient.partitions.routes import Place
from nsqclient.partitions.tracing import TraceSwitch
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool


class Wiring:
    """MembershipOwner and SubscriptionOwner; the attributes are made by ``Consumer``."""

    topic: str
    channel: str
    config: Config
    _ordered: bool
    _tracing: TraceSwitch
    _log: LifeLog
    _tell: Callable[..., Any]
    _lock: threading.Lock
    _running: list[Subscription]  # open and started; guarded by _lock
    _connected_until: float  # the last loss, on time.monotonic(); guarded by _lock
    _unhandled: UnhandledDeliveries
    _timer: Timer
    _chores: WorkerPool[Callable[[], None]]
    _workers: WorkerPool[Message]
    _flow: FlowControl
    _handling: Handling
    _backpressure: Backpressure
    _membership: Membership
    _stopping: StopProcedure

    def make_subscription(self, address: str) -> Subscription:
        """For Membership: a Subscription to ``address``, not open yet."""
        return Subscription(
            address, self.topic, self.channel, self.config, self, self._unhandled
        )

    def make_partition(self, place: Place, extended: bool) -> Subscription:
        """For Membership: a Subscription to a partition, not open yet."""
        make = OrderedSubscription if self._ordered else PartitionSubscription
        return make(
            place, extended, self.topic, self.channel, self.config, self, self._tracing,
            self._unhandled,
        )

    def on_connected(self, sub: Subscription, expected: int) -> None:
        """For Membership: start a Subscription that is open."""
        with self._lock:
            self._running = [*self._running, sub]  # replaced, never changed: readers take no lock
        self._flow.attach(sub, expected)
        self._tell("on_connect", sub.address)
        # Last, so that the loss of this connection is heard after all of the above. A stop that
        # began meanwhile knows this connection and sends CLS on it, or closes it.
        sub.conn.start()

    def survives_failed_dial(self, error: NSQError) -> bool:
        """For Membership: a consumer of its own goes on until it is stopped."""
        return True

    def on_error(self, error: NSQError) -> None:
        """For Membership and Subscription: tell the user's callback."""
        self._tell("on_error", error)

    def run_later(self, delay: float, task: Callable[[], None]) -> None:
        """For Subscription and BatchHandler: run a short task on the timer thread."""
        self._timer.schedule(delay, task)

    def run_on_worker(self, task: Callable[[], None]) -> None:
        """For BatchHandler: run a task on a worker thread."""
        self._workers.put(WorkerTask(task))

    def on_delivered(self, sub: Subscription, messages: list[Message], size: int) -> None:
        """For Subscription: messages came."""
        count = len(messages)
        if self._stopping.hands_back:
            sub.hand_back(messages)
            return
        if not self._backpressure.accepts(sub, count, size):
            sub.hand_back_excess(messages)
            return
        if len(self._workers):
            self._handling.drop_expired(self._workers)
        self._workers.put_many(messages)
        self._stopping.maybe_hand_back_queued()  # where it began while we put them
        self._backpressure.on_queued(count, size)

    def on_result(self, outcome: Outcome) -> None:
        """For Subscription: a message is about to be answered."""
        self._flow.on_result(outcome)

    def flush_soon(self, sub: Subscription) -> None:
        """For Subscription: a FIN waits; those of workers may wait for company."""
        if self._workers.is_worker():
            self._handling.flush_soon(sub)
        else:
            sub.flush()

    def on_answered(self) -> None:
        """For Subscription: a stop may wait for this answer."""
        if self._stopping.has_begun:
            self._stopping.on_answered()

    def run_chore(self, chore: Callable[[], None]) -> None:
        """For Subscription: run a task that may block."""
        self._chores.put(chore)

    def on_drained(self, sub: Subscription) -> None:
        """For Subscription: CLOSE_WAIT came."""
        self._stopping.on_drained(sub)

    def on_lost(self, sub: Subscription, error: NSQError) -> None:
        """For Subscription: its connection ended."""
        with self._lock:
            self._connected_until = time.monotonic()  # first, see Consumer._check_connected
            self._running = [other for other in self._running if other is not sub]
        self._stopping.ledger.add(sub)
        self._stopping.on_drained(sub)
        self._flow.detach(sub)
        if not self._stopping.has_begun:
            self._log.lost(str(sub.place), error)
            self.on_error(error)
        self._tell("on_disconnect", sub.address)
        self._membership.lost(sub, error)

    def _on_phase(self, phase: Phase, wait: float) -> None:
        """For FlowControl: the backoff changed its phase."""
        self._tell("on_backoff", phase.value, wait)
