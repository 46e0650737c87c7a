"""``ConsumerCore``: the private object behind a Consumer. Creates its parts and connects them.

::

    Consumer
      core            receives the reports of subscriptions and dials
        shutdown      the stop procedure
        connections   connects to nsqds; discovery
        processor     the queue, the workers, the handler, its answer
          backpressure  max_queued_bytes
        flow          RDY and backoff of all subscriptions
          subscription, one for each connection

Each part knows only the parts below it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Union

from nsqclient.config import Config
from nsqclient.consumer.backoff import Outcome, Phase
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.connections import ConnectionManager, NsqdSources
from nsqclient.consumer.context import ConsumerContext, consumer_log
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.in_flight import DeliveryCounts
from nsqclient.consumer.processor import HandlerSettings, MessageProcessor
from nsqclient.consumer.shutdown import Shutdown
from nsqclient.consumer.stats import ConsumerStats
from nsqclient.consumer.subscription import Subscription
from nsqclient.consumer.watchdog import Watchdog
from nsqclient.display import counted, without_password
from nsqclient.errors import ConfigError, ConnectError, NSQError, with_hint
from nsqclient.log_records import log_fields
from nsqclient.message import Message
from nsqclient.protocol.events import Endpoint
from nsqclient.runtime.arguments import check_function, check_result
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.deques import copy_deque
from nsqclient.runtime.stats import Health
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import PrefixedLogger
from nsqclient.runtime.threads import is_for_caller, owner_of_thread
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool

if TYPE_CHECKING:
    from nsqclient.consumer.channel_depth import DepthQuery

T = TypeVar("T")

_PARAMETERS = {
    "handler": ["message"],
    "on_giving_up": ["message"],
    "on_error": ["error"],
    "on_connect": ["address"],
    "on_disconnect": ["address"],
    "on_backoff": ["phase", "seconds"],
    "on_stop": [],
    "discovery_filter": ["addresses"],
}


def check_callbacks(arguments: Mapping[str, Any]) -> None:
    for name, parameters in _PARAMETERS.items():
        if name == "on_giving_up" and isinstance(arguments[name], str):
            raise ConfigError(
                f"on_giving_up is a function: write DeadLetterTopic(producer, {arguments[name]!r})")
        if arguments.get(name) is not None:
            returns_addresses = name == "discovery_filter"
            check_function(
                arguments[name], name, *parameters, may_be_class=returns_addresses,
                may_be_generator=returns_addresses,
            )


@dataclass(frozen=True)
class ConsumerSettings:
    topic: str
    channel: str
    config: Config
    sources: NsqdSources
    handling: HandlerSettings
    callbacks: Mapping[str, Callable[..., Any] | None]


class ConsumerCore:
    """The parts of one consumer. Its connections report to it.

    Lifecycle: ``start()``, ``shutdown.stop()``; a forked child creates another one. Threads: any.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        config, handling = settings.config, settings.handling
        self.log: PrefixedLogger = consumer_log(settings.topic, settings.channel)
        self._lock = Lock()
        self.is_started: bool = False  #: all threads are running
        self._has_begun = False  # connecting has begun; guarded by _lock
        #: When a connection was last lost, on time.monotonic().
        self._connected_until = -math.inf
        self.has_max_in_flight: bool = config.has_max_in_flight()
        self.unhandled: DeliveryCounts = DeliveryCounts()
        self._timer = Timer()
        self._background: WorkerPool[Callable[[], None]] = WorkerPool(
            "nsq-background",
            # A lookup may hang for a minute and must not delay the others.
            2 + len(settings.sources.lookupds), lambda task: task(),
        )
        context = ConsumerContext(
            settings.topic, settings.channel, config, self._timer, self._background.put, self.log)
        self.context: ConsumerContext = context
        self.flow: FlowControl[Subscription] = FlowControl(
            context, lambda phase, wait: self.call_back("on_backoff", phase.value, wait),
            workers=handling.workers)
        self.processor: MessageProcessor = self.make_processor(handling)
        #: Called by each Subscription. Not a method here, to save a call for each read.
        self.on_messages: Callable[[Subscription, list[Message], int], None] = (
            self.processor.enqueue)
        self.connections: ConnectionManager[Subscription] = self.make_connections(settings.sources)
        self._watchdog = Watchdog(context, self.flow, self._fetch_depth)
        batch = handling.handler if isinstance(handling.handler, BatchHandler) else None
        self._batch = batch
        self.shutdown: Shutdown = Shutdown(
            context, self.connections, self.flow, self.processor, self._background, batch,
            lambda: self.call_back("on_stop"))
        if batch is not None:
            self.flow.hold(math.inf)
            batch.bind(self.processor)

    # -- lifecycle

    def start(self) -> None:
        """Start the threads and begin to connect; returns at once. Idempotent.

        Raises:
            RuntimeError: no thread can be started.
        """
        # A signal handler may interrupt these steps: the others run on a background thread.
        if not self.is_started:
            self._timer.start()
            self._background.start()
            self.processor.workers.start()
            self._background.put(self._begin)
            self.is_started = True

    def _begin(self) -> None:
        """Connect. On a background thread; may be called twice."""
        with self._lock:
            if self._has_begun or self.shutdown.has_begun:
                return
            self._has_begun = True
        self.log.info("started, max_in_flight %d", self.flow.max_in_flight)
        problem = few_in_flight(
            self.flow.max_in_flight, self._settings.handling.workers, self._batch)
        if problem:
            self.log.warning("%s", problem)
        self.flow.start()
        self._watchdog.start()
        self.connections.start()

    def flush_batch(self) -> None:
        if self._batch is not None:
            self.processor.run_on_worker(self._batch.flush)

    def is_own_thread(self) -> bool:
        """True if the caller is a thread that a stop waits for."""
        owner = owner_of_thread()  # the Subscription, on a reader thread
        return (
            self.processor.workers.is_worker() or self._background.is_worker()
            or self._timer.is_timer() or self.connections.dials.is_dialer()
            or self.processor.is_iterated_by_caller()
            or isinstance(owner, Subscription) and owner.reports_to(self)
        )

    def make_processor(self, handling: HandlerSettings) -> MessageProcessor:
        return MessageProcessor(self.context, self.flow, handling)

    def make_connections(self, sources: NsqdSources) -> ConnectionManager[Subscription]:
        return ConnectionManager(self.context, sources, self)

    def make_subscription(self, place: Endpoint) -> Subscription:
        return Subscription(place.address, self.context, self, self.unhandled)

    def make_depth_query(self, sources: NsqdSources) -> DepthQuery:
        from nsqclient.consumer.channel_depth import DepthQuery  # slow to import, as requests is

        context = self.context
        return DepthQuery(context.topic, context.channel, context.config, sources)

    def show_connections(self) -> str:
        return counted(len({sub.address for sub in self.flow.subscriptions}), "nsqd")

    def on_connected(self, sub: Subscription) -> None:
        self.flow.attach(sub)
        self.call_back("on_connect", sub.address)
        # Last, so that the loss of this connection is reported after all of the above.
        sub.conn.start()

    def on_error(self, error: NSQError) -> None:
        self.call_back("on_error", error)

    def on_result(self, outcome: Outcome) -> None:
        self.flow.backoff.on_result(outcome)

    def give_up(self, message: Message, reason: str) -> None:
        self.processor.give_up(message, reason)

    def flush_soon(self, sub: Subscription) -> None:
        if self.processor.workers.is_worker():
            self.processor.flush_soon(sub)
        else:
            sub.flush()

    def _fetch_depth(self, sub: Subscription) -> int | None:
        try:
            query = self.make_depth_query(self._settings.sources)
            return query.fetch_one(sub.address).coming
        except Exception as exc:  # includes errors of discovery_filter
            self.log.debug("%s: no depth: %s", sub.place, exc, extra=log_fields(nsqd=sub.address))
            return None

    def on_lost(self, sub: Subscription, error: NSQError) -> None:
        try:
            self._connected_until = time.monotonic()  # first, see check_connected
            self.flow.detach(sub)
            self.shutdown.totals.add(sub.counters)
            if sub.is_retired:
                self.log.info("closed the connection to %s, connecting again", sub.place,
                              extra=log_fields(nsqd=str(sub.place)))
            elif not self.shutdown.has_begun:
                self.log.warning(
                    "lost %s, connecting again: %s", sub.place, with_hint(error, str(sub.place)),
                    extra=log_fields(nsqd=str(sub.place)))
                self.on_error(error)
            self.call_back("on_disconnect", sub.address)
        finally:  # dial nsqd again even after a MemoryError
            self.connections.lost(sub, error)

    def call_back(self, name: str, *arguments: object) -> None:
        """Call a callback if the user gave one, and log its exceptions.

        On a user's thread, a KeyboardInterrupt or SystemExit propagates.
        """
        function = self._settings.callbacks[name]
        if function is None:
            return
        try:
            check_result(function(*arguments))
        except BaseException as exc:  # a SystemExit would end a library thread
            if is_for_caller(exc):
                raise
            self.log.exception("%s failed", name)

    # -- state

    def shown_addresses(self) -> str:
        sources = self._settings.sources
        return ", ".join([*sources.nsqds, *map(without_password, sources.lookupds)])

    def check_connected(self, since: float) -> bool:
        """Return True if an nsqd was connected at any time since ``since``.

        Raises:
            ConnectError: no nsqd was connected.
        """
        # In the opposite order of on_lost().
        if self.flow.subscriptions or self._connected_until >= since:
            return True
        failure = self.connections.incompatibility or self.connections.last_failure
        if failure is None:
            reason = "no attempt to connect has ended yet: give messages() a longer timeout"
        else:
            reason = f"the last failure: {with_hint(failure)}"
        raise ConnectError(
            self.shown_addresses(),
            f"{self.context.topic}/{self.context.channel} was not connected to any nsqd for"
            f" {round(time.monotonic() - since, 1):g} s, while it waited for a message; {reason}",
        ) from failure

    def health(self) -> Health:
        flow, workers = self.flow, self.processor.workers
        has_handler = self._settings.handling.workers > 0
        if not self.is_started:
            return Health(False, "not started")
        if self.shutdown.has_begun:
            return Health(False, "stopped")
        if self.connections.incompatibility is not None:
            return Health(False, str(self.connections.incompatibility))
        if not has_handler and not self.flow.loops:
            return Health(False, "no handler was given, and nobody iterates over messages()")
        if has_handler and not workers.has_threads:
            return Health(False, "no worker thread runs")
        if flow.is_paused:
            return Health(False, "paused: resume() was not called")
        if flow.max_in_flight == 0:
            return Health(False, "max_in_flight is 0")
        if not flow.subscriptions:
            failure = self.connections.last_failure
            return Health(False, "not connected to any nsqd" + (
                "" if failure is None else f": {with_hint(failure)}"))
        missing = self.connections.missing()
        if missing:
            return Health(False, missing)
        if flow.backoff.phase is Phase.WAITING:
            return Health(False, f"backing off after {counted(flow.backoff.counter, 'failure')}")
        if self.flow.is_held:
            return Health(
                False, "held by max_queued_bytes:"
                f" {self.processor.backpressure.queued_bytes() / 2**20:.1f} MiB wait for workers"
            )
        return Health(True, f"connected to {self.show_connections()}")

    def stats(self) -> ConsumerStats:
        rdy = self.flow.rdy_by_connection()
        return ConsumerStats(
            connections=[sub.stats(count) for sub, count in rdy.items()],
            total=self.shutdown.totals.total(sub.counters for sub in rdy),
            queued=len(self.processor.workers),
            queued_bytes=self.processor.backpressure.queued_bytes(),
            is_held=self.flow.is_held,
            running=len(self.processor.running),
            backoff=self.flow.backoff.phase.value,
            is_paused=self.flow.is_paused,
            max_in_flight=self.flow.max_in_flight,
            level=self.flow.level,
            level_reason=self.flow.level_reason.value,
            handler_time=max(copy_deque(self.flow.handler_times), default=None),
        )


def iterate(
    core: ConsumerCore,
    timeout: float | None,
    is_end: Callable[[float], bool],
    idle: Iterable[T] = (),
) -> Generator[Union[Message, T], None, None]:
    """Yield messages until the consumer stops or ``is_end`` returns True.

    The calling thread takes the place of the workers. If the loop is left during an iteration, its
    message is requeued at once.

    Args:
        timeout: seconds without a message after which ``is_end`` is called.
        is_end: called with the time.monotonic() since which the loop has waited. If it returns
            False, ``idle`` is yielded and the loop goes on. Its exceptions end the loop.
    """
    loop = object()
    processor = core.processor
    message: Message | None = None  # the message of the current iteration
    since, deadline = time.monotonic(), Deadline(timeout)

    def is_stopping() -> bool:
        return core.shutdown.has_begun

    try:
        core.flow.begin_loop(loop)
        while not is_stopping():
            # Send the answers of earlier iterations before waiting.
            if not len(processor.workers):
                processor.flush()
            message = processor.workers.take(deadline.remaining())
            if message is None:
                if is_stopping() or is_end(since):
                    break
                yield from idle
                deadline = Deadline(timeout)
                continue
            sub = processor.should_handle(message, time.monotonic())
            if sub is None:
                message = None
                continue
            processor.begin_iteration(message)
            if is_stopping():
                # A stop that saw no iteration could close the connection during this one.
                sub.requeue_unstarted([message])
                break
            yield message
            if not (message.has_responded or message.is_async):
                processor.finish(message, sub)
            processor.end_iteration(message)
            message = None
            since, deadline = time.monotonic(), Deadline(timeout)
        processor.flush()
    finally:
        try:
            _end_loop(core, message, loop)
        except BaseException:  # a signal handler raised during the end
            _end_loop(core, message, loop)
            raise


def _end_loop(core: ConsumerCore, message: Message | None, loop: object) -> None:
    """End a loop, and requeue the message of its iteration. Idempotent."""
    try:
        if message is not None and not (message.has_responded or message.is_async):
            message.requeue(delay=0, backoff=False)
    finally:
        if message is not None:
            core.processor.end_iteration(message)
        core.flow.end_loop(loop)


def few_in_flight(max_in_flight: int, workers: int, handler: object) -> str:
    """Return what is wrong with ``max_in_flight`` for this handler; empty if nothing is."""
    size = handler.size if isinstance(handler, BatchHandler) else 1
    if 0 < max_in_flight < size:
        return (f"max_in_flight {max_in_flight} is less than the batch size {size}, so batches are"
                f" smaller: set it to at least {size * workers}")
    if 0 < max_in_flight < workers:
        return (f"max_in_flight {max_in_flight} leaves {workers - max_in_flight} of {workers}"
                f" workers idle: set it to at least {workers}")
    return ""
