"""``ConsumerDelegate``: the private object that the parts of a consumer report to.

Its counterpart in go-nsq is delegates.go. Here too is the way to the callbacks of the user.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from nsqclient.config import Config
from nsqclient.consumer.backoff import Phase
from nsqclient.consumer.connections import ConnectionManager
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.lifecycle_log import LifecycleLogger
from nsqclient.partitioned.consumer_leaders import PartitionTarget
from nsqclient.partitioned.consumer_options import PartitionOptions
from nsqclient.partitioned.consumer_start import ChannelStarts
from nsqclient.partitioned.consumer_subscription import (
    OrderedSubscription,
    PartitionSubscription,
)
from nsqclient.consumer.processor import MessageProcessor
from nsqclient.consumer.shutdown import Shutdown
from nsqclient.consumer.subscription import Subscription, UnhandledDeliveries
from nsqclient.errors import NSQError
from nsqclient.partitioned.tracing import TraceSwitch
from nsqclient.protocol.extensions import MAX_PARTITION
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import PrefixedLogger
from nsqclient.runtime.threads import is_for_caller
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.user_functions import check_function, check_result
from nsqclient.runtime.workers import WorkerPool

#: What each function of the user's is called with.
_PARAMETERS = {
    "handler": ["message"],
    "on_giving_up": ["message"],
    "on_blocked": ["message", "error"],
    "on_error": ["error"],
    "on_connect": ["address"],
    "on_disconnect": ["address"],
    "on_backoff": ["phase", "seconds"],
    "discovery_filter": ["addresses"],
}


def check_callbacks(arguments: Mapping[str, Any]) -> None:
    """Check the functions among the arguments of a consumer.

    Raises:
        ConfigError: one cannot be called, or calling it would do nothing.
    """
    for name, parameters in _PARAMETERS.items():
        if arguments[name] is not None:
            returns_addresses = name == "discovery_filter"
            check_function(
                arguments[name], name, *parameters, may_be_class=returns_addresses,
                may_be_generator=returns_addresses,
            )


class Callbacks:
    """The user's callbacks, a method each. What one raises is logged. Threads: any.

    On a thread of the user's a KeyboardInterrupt or the like goes on to the caller.
    """

    def __init__(
        self,
        log: PrefixedLogger,
        on_error: Callable[[NSQError], Any] | None = None,
        on_connect: Callable[[str], Any] | None = None,
        on_disconnect: Callable[[str], Any] | None = None,
        on_backoff: Callable[[str, float], Any] | None = None,
    ) -> None:
        self._log = log
        self._on_error = on_error
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._on_backoff = on_backoff

    def on_error(self, error: NSQError) -> None:
        """An error was logged, and what failed is tried again."""
        if self._on_error is not None:
            self._call("on_error", self._on_error, error)

    def on_connect(self, address: str) -> None:
        """An nsqd was subscribed to."""
        if self._on_connect is not None:
            self._call("on_connect", self._on_connect, address)

    def on_disconnect(self, address: str) -> None:
        """The connection to an nsqd ended."""
        if self._on_disconnect is not None:
            self._call("on_disconnect", self._on_disconnect, address)

    def on_backoff(self, phase: Phase, wait: float) -> None:
        """The backoff changed its phase."""
        if self._on_backoff is not None:
            self._call("on_backoff", self._on_backoff, phase.value, wait)

    def _call(self, name: str, function: Callable[..., Any], *arguments: object) -> None:
        try:
            check_result(function(*arguments))
        except BaseException as exc:  # a SystemExit would end a thread of ours
            if is_for_caller(exc):
                raise
            self._log.exception("%s failed", name)


class ConsumerDelegate:
    """Connects the parts of one consumer: connections, flow, processor, shutdown, callbacks.

    It is the ConnectionManagerDelegate, the SubscriptionDelegate and the BatchDelegate. What one
    part only passes to another is an attribute: the other part's own method.

    Args:
        running: the connections that are open and started, kept here under a lock. What reads it
            takes a copy, and no lock.
        is_dial_retried: returns whether a dial that failed so is certain to be repeated.

    Threads: any.
    """

    #: Set before anything starts.
    connections: ConnectionManager
    shutdown: Shutdown
    #: The user chose it; changed by any thread.
    has_max_in_flight = True
    #: Whether too few in flight for the partitions are logged: not for a limited look.
    warns_of_few_in_flight = True

    def __init__(
        self,
        topic: str,
        channel: str,
        config: Config,
        running: list[Subscription],
        flow: FlowControl,
        processor: MessageProcessor,
        timer: Timer,
        background: WorkerPool[Callable[[], None]],
        callbacks: Callbacks,
        log: LifecycleLogger,
        is_dial_retried: Callable[[NSQError], bool],
        *,
        options: PartitionOptions,
        tracing: TraceSwitch,
    ) -> None:
        self.topic = topic
        self.channel = channel
        self._config = config
        self._flow = flow
        self._processor = processor
        self._callbacks = callbacks
        self._log = log
        self._options = options
        self._starts = ChannelStarts(topic, channel, options, config, log)
        self._tracing = tracing
        self._unhandled = UnhandledDeliveries()
        self._lock = Lock()
        self._running = running
        #: When a connection was lost last, on time.monotonic(); guarded by _lock.
        self.connected_until: float = -math.inf
        self.on_messages = processor.enqueue
        self.is_starved = processor.is_starved
        self.run_on_worker = processor.run_on_worker
        self.decide_failure = processor.decide_failure
        self.on_failure = processor.on_failure
        self.on_result = flow.on_result
        self.run_later = timer.schedule
        self.run_in_background = background.put
        self.on_error = callbacks.on_error
        self.is_dial_retried = is_dial_retried

    # -- for ConnectionManager

    def make_subscription(self, address: str) -> Subscription:
        """Return a Subscription to an nsqd, not open yet."""
        return Subscription(
            address, self.topic, self.channel, self._config, self, self._unhandled
        )

    def make_partition(self, target: PartitionTarget) -> Subscription:
        """Return a Subscription to a partition, not open yet."""
        make = OrderedSubscription if target.ordered else PartitionSubscription
        return make(
            target.place, target.extended, self.topic, self.channel, self._config, self,
            self._tracing, self._unhandled, self._options,
            lambda: self._starts.apply(target.place, target.http_address),
        )

    def on_connected(self, sub: Subscription, expected: int) -> None:
        """Start a Subscription that is open."""
        with self._lock:
            self._running.append(sub)
        self._flow.attach(sub, expected)
        self._callbacks.on_connect(sub.address)
        # Last, so that the loss of this connection is reported after all of the above. A stop that
        # began meanwhile knows this connection and sends CLS on it, or closes it.
        sub.conn.start()

    def on_partitions(self, count: int) -> None:
        """Where max_in_flight was not given it is one for each partition."""
        # An nsqlookupd says how many there are.
        count = min(count, MAX_PARTITION + 1)
        former = self._flow.max_in_flight
        if former >= count or not former:
            return
        if self.has_max_in_flight:
            if self.warns_of_few_in_flight:
                self._log.too_few_in_flight(former, count)
        else:
            self._flow.set_max_in_flight(count)
            self._log.one_for_each_partition(count)

    # -- for Subscription

    def flush_soon(self, sub: Subscription) -> None:
        """A FIN waits; that of a worker may wait for others."""
        if self._processor.workers.is_worker():
            self._processor.flush_soon(sub)
        else:
            sub.flush()

    def on_answered(self) -> None:
        """A stop may wait for this answer."""
        if self.shutdown.has_begun:
            self.shutdown.on_answered()

    def on_drained(self, sub: Subscription) -> None:
        """CLOSE_WAIT came."""
        self.shutdown.on_drained(sub)

    def on_lost(self, sub: Subscription, error: NSQError) -> None:
        """The connection ended."""
        try:
            with self._lock:
                self.connected_until = time.monotonic()  # first, see Consumer._check_connected
                if sub in self._running:
                    self._running.remove(sub)
            self.shutdown.totals.add(sub.counters)
            self.shutdown.on_drained(sub)
            self._flow.detach(sub)
            if not self.shutdown.has_begun:
                self._log.lost(str(sub.place), error)
                self._callbacks.on_error(error)
            self._callbacks.on_disconnect(sub.address)
        finally:  # a MemoryError must not be the reason that nsqd is not dialed again
            self.connections.lost(sub, error)
