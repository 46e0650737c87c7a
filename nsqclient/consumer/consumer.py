"""``Consumer``: subscribes to a channel of a topic on every nsqd that has it, and runs a handler.

Sources: client guide; TCP protocol spec. The other modules of this package are its
parts: ``connections`` keeps the connections, ``flow_control`` shares RDY and backs off,
``processor`` runs the handler, ``shutdown`` is the stop procedure.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from nsqclient.config import Config, checked_config
from nsqclient.consumer.backoff import Phase
from nsqclient.consumer.backpressure import Backpressure
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.connections import ConnectionManager
from nsqclient.consumer.dead_letters import log_giving_up
from nsqclient.consumer.delegate import Callbacks, ConsumerDelegate, check_callbacks
from nsqclient.consumer.draining import TICK, Drain, check_http_addresses, check_rules
from nsqclient.consumer.drain_decision import DrainRules
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.iteration import ActiveIterators, iterate
from nsqclient.consumer.lifecycle_log import LifecycleLogger, show_partitions
from nsqclient.consumer.middleware import Middleware, check_middleware, with_middleware
from nsqclient.partitioned.consumer_processor import (
    BlockedPolicy,
    OrderedProcessor,
    check_ordered,
)
from nsqclient.partitioned.consumer_options import check_partition_options
from nsqclient.consumer.processor import Handler, MessageProcessor
from nsqclient.consumer.retry import RetryPolicy, check_retry
from nsqclient.consumer.shutdown import Shutdown, catch_shutdown_signals
from nsqclient.consumer.stats import ConsumerStats, DrainReport, Health, StopReport
from nsqclient.consumer.subscription import Subscription
from nsqclient.discovery import check_addresses
from nsqclient.display import counted
from nsqclient.errors import ClosedError, ConfigError, ConnectError, NSQError
from nsqclient.hints import with_hint
from nsqclient.message import Message
from nsqclient.partitioned.header_filter import HeaderFilter
from nsqclient.partitioned.start_position import StartPosition
from nsqclient.partitioned.tracing import TraceSwitch
from nsqclient.protocol.extensions import MAX_PARTITION
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.runtime.arguments import checks_names
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.fork import register_for_fork
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import owner_of_thread
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool
from nsqclient.sanitize import without_password

if TYPE_CHECKING:
    from nsqclient.http.channel_depth import DepthQuery


#: Seconds after which threads are replaced that have ended.
_THREADS_INTERVAL = 5.0


@checks_names("an argument of Consumer")
class Consumer:
    """Consumes one channel of one topic.

    Args:
        topic, channel: names. nsqd deletes topics and channels whose name ends with
            ``#ephemeral`` when nothing uses them.
        handler: called with each :class:`Message`, in ``workers`` threads. Returning finishes the
            message, raising requeues it (see :class:`Requeue`). A :class:`BatchHandler` collects
            messages into lists. None: use :meth:`messages` or :meth:`drain`.
        nsqd_tcp_addresses: ``host:port`` of the nsqds to connect to.
        lookupd_http_addresses: ``host:port`` or URL of the nsqlookupds to ask. Both kinds of
            addresses may be combined.
        max_in_flight: messages that may be in flight, over all nsqds. Default: the value of
            ``config``; if that is 1, one for each partition of a partitioned topic.
        workers: number of threads that call the handler.
        config: the options. None: the defaults.
        retry: called with a message and the exception of its handler; returns ``Requeue(...)``,
            ``GiveUp(...)``, or None for the default: a requeue with the automatic delay and
            backoff. Not called if the handler raised ``Requeue`` or ``GiveUp``. :class:`Retry` and
            :class:`RetryTable` are ready-made policies.
        on_giving_up: called with a message that is given up, because the handler raised
            ``GiveUp``, ``retry`` returned it, or the handler failed ``max_attempts`` times.
            ``message.failure`` has the reason. Afterwards the message is finished; if the callback
            raises, it is requeued. Deliveries that expired in the queue of this consumer do not
            count as failures.
        on_error: called with an NSQError that was logged; the operation is retried.
        on_connect, on_disconnect: called with the address of an nsqd.
        on_backoff: called with "waiting" and the seconds, or with "testing" or "flowing" and 0.
        discovery_filter: called with the addresses from one nsqlookupd; returns those to use.
        ordered: handle the messages of each partition of an ordered topic one by one, and skip
            none. Requires nsqlookupds. ``max_in_flight`` defaults to the number of partitions.
            See ``docs/topics/partitions.rst``.
        on_blocked: with ``ordered``: called with a message that failed, or arrived out of order,
            and the error; returns ``BlockedAction.RETRY``, ``BlockedAction.SKIP``, or seconds to
            wait.
        middleware: functions that are called with a :class:`Handling` and return a context manager
            for each call of the handler; the first is the outermost. See
            ``docs/topics/middleware.rst``.
        partitions: the partitions to consume; None: all of them. This argument and those below
            are for partitioned NSQ and need nsqlookupds; see ``docs/topics/partitions.rst``.
        start_at: where the channel begins to read, for all partitions or for each in a dict. It is
            applied once, when a partition is connected first, unless the channel has consumers.
        with_offsets: messages have ``offset`` and ``size``, as with ``ordered`` and ``start_at``.
        desired_tag: consume the messages with this tag (header ``##client_dispatch_tag``).
        header_filter: consume the messages whose headers match; the others are finished by nsqd.

    Callbacks run on threads of the library and must not block. Their exceptions are logged.
    Coroutine functions and generator functions are rejected: a call would not run their code.

    Raises:
        ConfigError, InvalidTopicError, InvalidChannelError: an argument is invalid, or a handler or
            callback does not accept its arguments.

    Life: created (nothing runs), ``start()`` (or ``with``, or ``run()``), ``stop()``; it cannot be
    started again. In a forked child it is not started; the parent's consumer continues.
    Threads: every method, from any thread.
    """

    #: What is consumed.
    topic: str
    channel: str
    #: The options, those that the arguments set included.
    config: Config
    #: Whether it is to be warned of at its end: it was made, and neither started nor stopped.
    _is_forgotten = False

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler | None = None,
        *,
        nsqd_tcp_addresses: Iterable[str] = (),
        lookupd_http_addresses: Iterable[str] = (),
        max_in_flight: int | None = None,
        workers: int = 1,
        config: Config | None = None,
        retry: RetryPolicy | None = None,
        on_giving_up: Callable[[Message], Any] = log_giving_up,
        on_error: Callable[[NSQError], Any] | None = None,
        on_connect: Callable[[str], Any] | None = None,
        on_disconnect: Callable[[str], Any] | None = None,
        on_backoff: Callable[[str, float], Any] | None = None,
        discovery_filter: Callable[[list[str]], Iterable[str]] | None = None,
        ordered: bool = False,
        on_blocked: BlockedPolicy | None = None,
        middleware: Iterable[Middleware] = (),
        partitions: Iterable[int] | None = None,
        start_at: StartPosition | Mapping[int, StartPosition] | None = None,
        with_offsets: bool = False,
        desired_tag: str = "",
        header_filter: HeaderFilter | None = None,
    ) -> None:
        # A generator can be read once, and a forked child needs the addresses again.
        nsqd_tcp_addresses, lookupd_http_addresses = check_addresses(
            nsqd_tcp_addresses, lookupd_http_addresses
        )
        self.topic = check_topic(topic)
        self.channel = check_channel(channel)
        check_callbacks(locals())
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise ConfigError(f"workers must be a whole number from 1, not {workers!r}")
        config = checked_config(config)
        if max_in_flight is not None:
            config = config.replace(max_in_flight=max_in_flight)
        if config.heartbeat_interval <= 0:
            raise ConfigError("a consumer needs heartbeats: nsqd refuses SUB without them")
        check_ordered(
            ordered, config, is_batch=isinstance(handler, BatchHandler),
            has_nsqds=bool(nsqd_tcp_addresses), has_policy=on_blocked is not None,
        )
        self._partition_options = check_partition_options(
            config, ordered=ordered, partitions=partitions, start_at=start_at,
            with_offsets=with_offsets, desired_tag=desired_tag, header_filter=header_filter,
            has_nsqds=bool(nsqd_tcp_addresses),
        )
        self._has_max_in_flight = config.has_max_in_flight()
        if ordered and not self._has_max_in_flight:
            config = config.replace(max_in_flight=MAX_PARTITION + 1)
        check_retry(
            retry, config.max_attempts, has_handler=handler is not None, ordered=ordered)
        self.config = config
        self._nsqds, self._lookupds = nsqd_tcp_addresses, lookupd_http_addresses
        around = check_middleware(middleware)
        if around and handler is None:
            raise ConfigError(
                "middleware needs a handler: in a loop over messages() write a with statement")
        if handler is not None:
            handler = with_middleware(handler, around, self.topic, self.channel,
                                      lambda: self._shutdown.has_begun)
        self._handler = handler
        self._worker_count = workers if handler is not None else 0
        self._retry, self._on_giving_up = retry, on_giving_up
        self._hooks = (on_error, on_connect, on_disconnect, on_backoff)
        self._discovery_filter = discovery_filter
        self._on_blocked = on_blocked
        self._build()
        self._is_forgotten = True
        register_for_fork(self)

    def _build(self) -> None:
        """Make everything that a forked child must have of its own."""
        config, handler = self.config, self._handler
        self._log = LifecycleLogger(self.topic, self.channel)
        self._tracing = TraceSwitch()
        callbacks = Callbacks(self._log, *self._hooks)
        self._lock = Lock()
        self._started = False  # all threads run
        self._has_begun = False  # it connects; guarded by _lock
        self._running: list[Subscription] = []  # open and started; changed by the delegate
        self._timer = Timer()
        self._background: WorkerPool[Callable[[], None]] = WorkerPool(
            "nsq-background",
            # A lookup may hang for a minute, and should not delay the others.
            2 + len(self._lookupds), lambda task: task(),
        )
        self._flow = FlowControl(
            config, config.max_in_flight, self._timer, self._background.put,
            callbacks.on_backoff, self._log,
        )
        if handler is None:
            self._flow.set_paused(True)  # until messages() is called: nobody takes them before
        self._iterators = ActiveIterators(self._flow.set_paused)
        self._processor: MessageProcessor
        if self._partition_options.ordered:
            self._processor = OrderedProcessor(
                handler or _no_handler, self._on_giving_up, self._on_blocked,
                config.ordered_attempts_warning, self._flow, self._timer, self._running.copy,
                self._log, workers=self._worker_count,
            )
        else:
            self._processor = MessageProcessor(
                handler or _no_handler, config.max_attempts, self._on_giving_up, self._flow,
                self._timer, self._running.copy, self._log, retry=self._retry,
                workers=self._worker_count,
            )
        self._backpressure = self._processor.backpressure = Backpressure(
            config.max_queued_bytes, self._flow, self._processor, self._running.copy, self._timer,
            self._background.put, self._log,
        )
        delegate = self._delegate = ConsumerDelegate(
            self.topic, self.channel, config, self._running, self._flow, self._processor,
            self._timer, self._background, callbacks, self._log, self._is_dial_retried,
            options=self._partition_options, tracing=self._tracing,
        )
        delegate.has_max_in_flight = self._has_max_in_flight
        self._connections = delegate.connections = ConnectionManager(
            self.topic, self._nsqds, self._lookupds, config, self._timer, self._background.put,
            delegate, self._discovery_filter, self._flow.set_expected, self._log,
            options=self._partition_options, make_partition=delegate.make_partition,
            check_nsqd=self._check_nsqd,
        )
        self._shutdown = delegate.shutdown = Shutdown(
            self._connections, self._flow, self._processor, self._timer, self._background,
            self._log,
        )
        if isinstance(handler, BatchHandler):
            handler.bind(delegate)
            self._shutdown.before_workers_end = lambda: delegate.run_on_worker(handler.flush)
            self._shutdown.after_workers_end = handler.requeue_pending

    def _is_dial_retried(self, error: NSQError) -> bool:
        """Return whether a dial that failed so is certain to be repeated."""
        return True

    def _check_nsqd(self, address: str, has_partitions: bool) -> None:
        """Return if an nsqd may be subscribed to, or raise an NSQError. On a thread that dials."""

    # -- life

    def _reset_after_fork(self) -> None:
        """For the library: become a consumer that was never started, in a forked child."""
        self._is_forgotten = False  # it is the parent's to start
        self._connections.abandon()
        if isinstance(self._handler, BatchHandler):
            self._handler._unbind()
        self._build()

    def start(self) -> Consumer:
        """Start the threads and begin to connect; returns at once. Idempotent.

        If it raises, or an exception in a signal handler interrupts it, call it again.

        Raises:
            ClosedError: the consumer was stopped.
            RuntimeError: no thread can be started, because of a limit or at interpreter exit.
        """
        if self._shutdown.has_begun:
            raise ClosedError("this consumer was stopped: make a new one")
        self._is_forgotten = False
        if not self._started:
            # Each step may be repeated, where a signal handler has interrupted them or no thread
            # was left. The last ones are taken on a thread of ours, which nothing interrupts.
            self._timer.start()
            self._background.start()
            self._processor.workers.start()
            self._background.put(self._begin)
            self._started = True
        return self

    def _begin(self) -> None:
        """Connect. On a background thread, which may come here twice."""
        with self._lock:
            if self._has_begun or self._shutdown.has_begun:
                return
            self._has_begun = True
        self._log.started(self.max_in_flight)
        self._keep_threads()
        self._flow.start()
        self._connections.start()

    def _keep_threads(self) -> None:
        """Replace threads that have ended, which only exceptions one upon the other can do."""
        self._timer.schedule(_THREADS_INTERVAL, self._keep_threads)
        self._background.start()
        self._processor.workers.start()

    def stop(self, timeout: Duration = 30.0) -> StopReport:
        """Stop the consumer; ``docs/topics/shutdown.rst`` describes the steps.

        Messages that no handler has started are requeued at once. Running handlers may finish
        within ``timeout`` seconds. When this method returns, no further handler is started, and
        all threads have ended except for those that the report names.

        Idempotent. Threads: any, and signal handlers. In a handler or a callback it only begins the
        stop, because it cannot wait for its own caller; the report is then not complete.

        Returns: a report, which is true unless the handling of a message was abandoned.
        """
        seconds = to_seconds(timeout, "timeout")
        self._is_forgotten = False
        return self._shutdown.stop(seconds, wait=not self._is_own_thread())

    def _is_own_thread(self) -> bool:
        """Return whether the caller is a thread that a stop waits for."""
        return (
            self._processor.workers.is_worker() or self._background.is_worker()
            or self._timer.is_timer() or self._connections.is_dialer()
            or self._processor.is_iterated_by_caller() or self._is_own_reader()
        )

    def _is_own_reader(self) -> bool:
        """Return whether the caller is the reader of a connection of this consumer."""
        owner = owner_of_thread()
        return isinstance(owner, Subscription) and owner.reports_to(self._delegate)

    def run(self, stop_timeout: Duration = 30.0) -> StopReport:
        """Start, and block until SIGINT or SIGTERM (in the main thread) or ``stop()``.

        The first signal restores the previous signal handlers, so that a second Ctrl-C interrupts
        the stop.

        Raises:
            ConfigError: the consumer has no handler.
        """
        seconds = to_seconds(stop_timeout, "stop_timeout")
        if self._handler is None:
            raise ConfigError("run() needs a handler: give one, or loop over messages() instead")
        with catch_shutdown_signals() as signaled:
            self.start()
            # A timeout lets Python run signal handlers on every platform.
            while not signaled.wait(0.5) and not self._shutdown.has_begun:
                pass
            return self.stop(seconds)

    def messages(self, timeout: Duration | None = None) -> Iterator[Message]:
        """Iterate over messages, for a consumer without a handler. Starts the consumer.

        A message is finished when the loop asks for the next one, unless you finished or requeued
        it. If you leave the loop early (``break``, an exception), the current message is requeued
        at once; to avoid that, call its ``finish()`` first. While no loop runs, nsqd sends nothing.
        Messages that were received before wait for the next loop, or expire.

        Args:
            timeout: the loop ends when no message has arrived for so many seconds. It includes the
                time to connect. None: the loop ends when the consumer is stopped.

        Blocks: until the next message.

        Raises:
            ConfigError: the consumer has a handler.
            ConnectError: at the end of ``timeout``, if no nsqd was connected during that time. You
                can loop again afterwards.
        """
        if self._handler is not None:
            raise ConfigError("messages() is for a Consumer without a handler")
        seconds = None if timeout is None else to_seconds(timeout, "timeout")
        self.start()
        return iterate(
            self._processor, self._iterators, seconds,
            lambda: self._shutdown.has_begun, self._check_connected,
        )

    def drain(
        self,
        *,
        wait_deferred: bool = False,
        nsqd_http_addresses: Iterable[str] = (),
        end_after_silence: Duration | None = None,
    ) -> Iterator[Message]:
        """Iterate over messages as :meth:`messages` does, until the channel is empty.

        The loop ends when every nsqd that this consumer has been connected to reports that no
        message is waiting or in flight. An nsqd that does not answer, while it is being
        restarted, is asked again for ``config.drain_patience`` seconds (60). See
        ``docs/topics/batch-jobs.rst``.

        Args:
            wait_deferred: wait for deferred messages too, including those that you requeue with a
                delay. Otherwise their number is logged at the end.
            nsqd_http_addresses: ``host:port`` or URLs of the HTTP APIs of nsqds that you passed by
                TCP address. Not needed for nsqds that an nsqlookupd lists, or whose HTTP port is
                the one after the TCP port, as 4150 and 4151.
            end_after_silence: seconds; allows the loop to end when no message has arrived for so
                long, although an nsqd cannot be asked. The log then says that the end is not
                verified. None: such a loop raises.

        Messages that you left unanswered with ``enable_async()`` do not prevent the end: other
        threads have two seconds to answer them.

        Blocks: until the nsqds have answered once.

        Raises:
            ConfigError: the consumer has a handler, an argument is invalid, or the HTTP address of
                an nsqd is not known.
            ConnectError: no nsqd has the topic. In the loop: for ``drain_patience`` seconds an nsqd
                did not answer, or messages waited and did not arrive.
        """
        if self._handler is not None:
            raise ConfigError("drain() is for a Consumer without a handler: use run_until_empty()")
        rules = check_rules(end_after_silence, wait_deferred, self.config, is_loop=True)
        drain = self._make_drain(rules, self._make_query(nsqd_http_addresses))
        self.start()
        return iterate(
            self._processor, self._iterators, TICK, lambda: self._shutdown.has_begun,
            drain.is_over,
        )

    def run_until_empty(
        self,
        *,
        wait_deferred: bool = False,
        nsqd_http_addresses: Iterable[str] = (),
        end_after_silence: Duration | None = None,
        stop_timeout: Duration = 30.0,
    ) -> DrainReport:
        """Start, block until the channel is empty, and stop. SIGINT and SIGTERM also end it.

        For a consumer with a handler. The last batch of a :class:`BatchHandler` is handled at the
        end. The end is detected as in :meth:`drain`, which also describes the other arguments.
        Messages that a handler left unanswered with ``enable_async()`` are waited for.

        Returns: a report, which is true if the channel was seen empty and no message was abandoned.

        Raises:
            ConfigError: the consumer has no handler, an argument is invalid, or the HTTP address of
                an nsqd is not known.
            ConnectError: as in :meth:`drain`; the consumer is then stopped.
        """
        seconds = to_seconds(stop_timeout, "stop_timeout")
        if self._handler is None:
            raise ConfigError("run_until_empty() needs a handler: give one, or loop over drain()")
        with catch_shutdown_signals() as signaled:
            rules = check_rules(end_after_silence, wait_deferred, self.config, is_loop=False)
            drain = self._make_drain(rules, self._make_query(nsqd_http_addresses))
            has_ended = False
            try:
                self.start()
                while not (signaled.wait(TICK) or self._shutdown.has_begun):
                    has_ended = drain.is_over()
                    if has_ended:
                        break
            finally:
                report = self.stop(seconds)
            return drain.report(has_ended, report)

    def _make_query(self, nsqd_http_addresses: Iterable[str]) -> Callable[[], DepthQuery]:
        """Return what makes the query of a drain."""
        nsqd_http = check_http_addresses(nsqd_http_addresses)

        def make_query() -> DepthQuery:
            from nsqclient.http.channel_depth import DepthQuery

            return DepthQuery(
                self.topic, self.channel, self.config, nsqds=self._nsqds, nsqd_http=nsqd_http,
                lookupds=self._lookupds, discovery_filter=self._discovery_filter,
                partitions=self._partition_options.partitions)

        return make_query

    def _make_drain(self, rules: DrainRules, make_query: Callable[[], DepthQuery]) -> Drain:
        """Return a drain that can know its end. Asks every nsqd."""
        batch = self._handler if isinstance(self._handler, BatchHandler) else None
        drain = Drain(
            rules, make_query, self._background.put, self._connections, self._running.copy,
            self.stats, self._processor.workers.__len__,
            lambda: None if batch is None else self._delegate.run_on_worker(batch.flush),
            self._log, self.topic, self._shown_addresses(),
        )
        if not self._shutdown.has_begun:
            drain.check()
        return drain

    def _check_connected(self, since: float) -> bool:
        """Return true; raise when no nsqd was connected at any time since then.

        Raises:
            ConnectError: says for how long, and the last reason.
        """
        # In the opposite order of on_lost(): a connection that ends meanwhile is seen in one.
        if self._running or self._delegate.connected_until >= since:
            return True
        failure = self._connections.incompatibility or self._connections.last_failure
        if failure is None:
            reason = "no attempt to connect has ended yet: give messages() a longer timeout"
        else:
            reason = f"the last failure: {with_hint(failure)}"
        raise ConnectError(
            self._shown_addresses(),
            f"{self.topic}/{self.channel} was connected to no nsqd for"
            f" {round(time.monotonic() - since, 1):g} s, while it waited for a message; {reason}",
        ) from failure

    def _shown_addresses(self) -> str:
        return ", ".join(
            [*self._nsqds, *(without_password(address) for address in self._lookupds)])

    def __reduce__(self) -> NoReturn:
        """It has threads and sockets, so it cannot be pickled or copied."""
        raise TypeError("a Consumer cannot be pickled or copied: make one in each process")

    def __del__(self) -> None:
        if self._is_forgotten:
            warnings.warn(f"{self!r} was never started: call start() or run()", ResourceWarning,
                          source=self)

    def __enter__(self) -> Consumer:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # -- questions and controls

    def is_starved(self) -> bool:
        """Return whether a connection has nearly as many messages in flight as its RDY allows.

        For a handler that collects a batch: handle it now, because few messages or none arrive
        before you respond. False while messages wait for a worker. Source: client guide, "Message
        Flow Starvation".
        """
        return self._processor.is_starved()

    @property
    def max_in_flight(self) -> int:
        """How many messages may be in flight."""
        return self._flow.max_in_flight

    def set_max_in_flight(self, count: int) -> None:
        """Change how many messages may be in flight; 0 stops the flow.

        Raises:
            ConfigError: ``count`` is negative or not an integer.
        """
        self._delegate.has_max_in_flight = True
        self._flow.set_max_in_flight(self.config.replace(max_in_flight=count).max_in_flight)

    def pause(self) -> None:
        """Stop the flow (RDY 0). Messages in flight are still handled."""
        self._flow.set_paused(True)

    def resume(self) -> None:
        """Undo ``pause()``."""
        self._flow.set_paused(False)

    def set_tracing(self, enabled: bool) -> None:
        """Turn the trace log (logger ``nsqclient.trace``) on or off; for partitioned NSQ."""
        self._tracing.set(enabled)

    def healthy(self) -> Health:
        """Return whether the consumer can receive messages; for readiness probes.

        It can if it is started, connected to an nsqd and to each partition of a partitioned topic,
        has a ``max_in_flight`` above 0 and a handler or a loop, and is not stopping, paused,
        waiting in backoff or held by ``max_queued_bytes``.
        The result is true or false; its ``reason`` says what is missing.
        """
        if not self._started:
            return Health(False, "not started")
        if self._shutdown.has_begun:
            return Health(False, "stopped")
        if self._connections.incompatibility is not None:
            return Health(False, str(self._connections.incompatibility))
        if self._handler is None and not self._iterators.count:
            return Health(False, "no handler was given, and nobody iterates over messages()")
        if self._handler is not None and not self._processor.workers.has_threads:
            return Health(False, "no worker thread runs")
        if self._flow.is_paused:
            return Health(False, "paused: resume() was not called")
        if self._flow.max_in_flight == 0:
            return Health(False, "max_in_flight is 0")
        if not self._running:
            return Health(False, "connected to no nsqd")
        unread = self._connections.find_unread()
        if unread:
            return Health(False, f"no reader for {show_partitions(unread)}")
        if self._flow.phase is Phase.WAITING:
            failures = counted(self._flow.backoff_counter, "failure")
            return Health(False, f"backing off after {failures}")
        if self._backpressure.is_held:
            return Health(
                False, "held by max_queued_bytes:"
                f" {self._backpressure.queued_bytes() / 2**20:.1f} MiB wait for workers"
            )
        running = self._running.copy()
        partitions = sum(sub.place.partition is not None for sub in running)
        return Health(
            True, f"connected to {counted(len({sub.address for sub in running}), 'nsqd')}"
            + (f", {counted(partitions, 'partition')}" if partitions else "")
        )

    def stats(self) -> ConsumerStats:
        """Take a snapshot of the counters and of every connection."""
        rdy = self._flow.rdy_by_connection()
        return ConsumerStats(
            connections=[sub.stats(count) for sub, count in rdy.items()],
            total=self._shutdown.totals.total(sub.counters for sub in rdy),
            queued=len(self._processor.workers),
            queued_bytes=self._backpressure.queued_bytes(),
            is_held=self._backpressure.is_held,
            running=len(self._processor.running),
            backoff=self._flow.phase.value,
            repairs=self._flow.repairs,
            is_paused=self._flow.is_paused,
            max_in_flight=self._flow.max_in_flight,
        )

    def __repr__(self) -> str:
        connections = counted(len(self._running), "connection")
        return f"<Consumer {self.topic}/{self.channel} {connections}>"


def _no_handler(message: Message) -> None:
    raise AssertionError("a consumer without a handler has no workers")
