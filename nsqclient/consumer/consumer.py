"""``Consumer``: subscribes to a channel of a topic on every nsqd that has it, and runs a handler.

Sources: client guide; TCP protocol spec. ``core`` creates and connects the parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from nsqclient.config import Config, checked_config
from nsqclient.connection.handshake import need_real_sockets
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.connections import NsqdSources
from nsqclient.consumer.core import ConsumerCore, ConsumerSettings, check_callbacks, iterate
from nsqclient.dead_letters import log_giving_up
from nsqclient.consumer.draining import TICK, Drain, check_rules
from nsqclient.consumer.middleware import Middleware, check_middleware, with_middleware
from nsqclient.consumer.processor import Handler, HandlerSettings
from nsqclient.consumer.retry import RetryPolicy, check_retry
from nsqclient.consumer.stats import ConsumerStats, DrainReport, StopReport
from nsqclient.discovery import Addresses, check_addresses, check_list
from nsqclient.display import counted
from nsqclient.errors import ClosedError, ConfigError, NSQError
from nsqclient.http.urls import nsqd_url
from nsqclient.message import Message
from nsqclient.protocol.events import Endpoint
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.runtime.arguments import checks_names
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.forking import check_process, register_for_fork
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.runtime.stats import Health
from nsqclient.runtime.threads import LibraryThread

#: Default timeout of a stop, in seconds: less than the 30 s that Kubernetes gives a pod.
STOP_TIMEOUT = 25.0


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
        max_in_flight: maximum number of messages in flight, over all nsqds. Default: the value of
            ``config`` if it is set, otherwise one message or batch for each worker.
        workers: number of threads that call the handler.
        config: the options. None: the defaults.
        retry: called with a message and the exception of its handler, unless that is ``Requeue`` or
            ``GiveUp``; returns ``Requeue(...)``, ``GiveUp(...)``, or None for the automatic delay
            and backoff. :class:`Retry` and :class:`RetryTable` are ready-made policies.
        on_giving_up: called with a message that is given up: the handler raised ``GiveUp``,
            ``retry`` returned it, or the handler failed ``max_attempts`` times.
            ``message.failure`` has the reason. Afterwards the message is finished; if the callback
            raises, it is requeued.
        on_error: called with an NSQError that was logged; the operation is retried.
        on_connect, on_disconnect: called with the address of an nsqd.
        on_backoff: called with "waiting" and the seconds, or with "testing" or "flowing" and 0.
        on_stop: called without arguments when a stop has begun and no more messages arrive, so that
            a handler that collects messages (``enable_async()``) answers them.
        discovery_filter: called with the addresses from one nsqlookupd; returns the ones to use.
        middleware: functions that are called with a :class:`Handling` and return a context manager
            for each call of the handler; the first is the outermost.

    Callbacks run on threads of the library and must not block. Their exceptions are logged.

    Raises:
        ConfigError, InvalidTopicError, InvalidChannelError: an argument is invalid, or a handler or
            callback does not accept its arguments or is asynchronous.

    Lifecycle: created (nothing runs), ``start()`` (or ``with``, or ``run()``), ``stop()``; it
    cannot be started again. In a forked child it is not started. Threads: any.
    """

    topic: str
    channel: str
    #: The options, including those set by arguments.
    config: Config
    #: True until start() or stop() is called; __del__ warns if it is still True.
    _is_forgotten = False

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler | None = None,
        *,
        nsqd_tcp_addresses: Addresses = (),
        lookupd_http_addresses: Addresses = (),
        max_in_flight: int | None = None,
        workers: int = 1,
        config: Config | None = None,
        retry: RetryPolicy | None = None,
        on_giving_up: Callable[[Message], Any] = log_giving_up,
        on_error: Callable[[NSQError], Any] | None = None,
        on_connect: Callable[[str], Any] | None = None,
        on_disconnect: Callable[[str], Any] | None = None,
        on_backoff: Callable[[str, float], Any] | None = None,
        on_stop: Callable[[], Any] | None = None,
        discovery_filter: Callable[[list[str]], Iterable[str]] | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        # As lists, because a forked child needs the addresses again.
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
        size = handler.size if isinstance(handler, BatchHandler) else 1
        wanted = size * workers if handler is not None else 1
        if not config.has_max_in_flight() and config.max_in_flight < wanted:
            config = config.with_default_in_flight(wanted)
        if config.heartbeat_interval <= 0:
            raise ConfigError("a consumer needs heartbeats: nsqd refuses SUB without them")
        check_retry(retry, config.max_attempts, has_handler=handler is not None)
        around = check_middleware(middleware)
        if around and handler is None:
            raise ConfigError(
                "middleware needs a handler: in a loop over messages() write a with statement")
        if handler is not None:
            handler = with_middleware(handler, around, self.topic, self.channel,
                                      lambda: self._core.shutdown.has_begun)
        self.config = config
        self._handler = handler
        self._settings = ConsumerSettings(
            self.topic, self.channel, config,
            NsqdSources(nsqd_tcp_addresses, lookupd_http_addresses, discovery_filter,
                        self._check_nsqd),
            HandlerSettings(
                handler, on_giving_up, retry, workers if handler is not None else 0),
            {"on_error": on_error, "on_connect": on_connect, "on_disconnect": on_disconnect,
             "on_backoff": on_backoff, "on_stop": on_stop},
        )
        self._core = self._make_core()
        self._is_forgotten = True
        register_for_fork(self)

    def _make_core(self) -> ConsumerCore:
        """Build the parts; a forked child builds its own. Overridden."""
        return ConsumerCore(self._settings)

    def _check_nsqd(self, place: Endpoint) -> None:
        """Raise an NSQError if this nsqd must not be subscribed to. On a dialing thread."""

    def _reset_after_fork(self) -> None:
        """Become a consumer that was never started. Called in a forked child."""
        self._is_forgotten = False  # the parent starts it
        self._core.connections.abandon()
        if isinstance(self._handler, BatchHandler):
            self._handler._unbind()
        self._core = self._make_core()

    def start(self) -> Consumer:
        """Start the threads and begin to connect; returns at once. Idempotent.

        Raises:
            ClosedError: the consumer was stopped.
            NegotiationError: gevent or eventlet has replaced Python's sockets.
            RuntimeError: no thread can be started; the call may be repeated.
        """
        check_process()
        need_real_sockets()
        if self._core.shutdown.has_begun:
            raise ClosedError("this consumer was stopped: make a new one")
        self._is_forgotten = False
        self._core.start()
        return self

    def stop(self, timeout: Duration = STOP_TIMEOUT) -> StopReport:
        """Stop the consumer; ``docs/topics/consumer.rst`` describes the steps.

        Messages that no handler has started are requeued at once. Running handlers may finish
        within ``timeout`` seconds. Afterwards no handler is started, and all threads have ended
        except those named in the report. Idempotent.

        Threads: any, and signal handlers. In a handler or a callback it begins the stop and returns
        an incomplete report, because it cannot wait for its own caller.

        Returns: a report, which is true unless a message was abandoned.
        """
        check_process()
        seconds = to_seconds(timeout, "timeout")
        self._is_forgotten = False
        return self._core.shutdown.stop(seconds, wait=not self._core.is_own_thread())

    def run(self, stop_timeout: Duration = STOP_TIMEOUT) -> StopReport:
        """Start, and block until SIGINT or SIGTERM (in the main thread) or ``stop()``.

        The first signal restores the previous signal handlers, so a second Ctrl-C interrupts the
        stop.

        Raises:
            ConfigError: the consumer has no handler.
        """
        seconds = to_seconds(stop_timeout, "stop_timeout")
        if self._handler is None:
            raise ConfigError("run() needs a handler: give one, or loop over messages() instead")
        with Signals(Second.FORMER) as signals:
            self.start()
            # A timeout lets Python run signal handlers on every platform.
            while not signals.wait(0.5) and not self._core.shutdown.has_begun:
                pass
            return self.stop(seconds)

    def messages(self, timeout: Duration | None = None) -> Iterator[Message]:
        """Iterate over messages, for a consumer without a handler. Starts the consumer.

        A message is finished when the loop asks for the next one, unless you finished or requeued
        it. If you leave the loop early, the current message is requeued at once; to avoid that,
        call its ``finish()`` first. While no loop runs, nsqd sends nothing. Messages that were
        received before wait for the next loop, or expire.

        Args:
            timeout: seconds without a message after which the loop ends, including the time to
                connect. None: the loop ends when the consumer is stopped.

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
        return iterate(self._core, seconds, self._core.check_connected)

    def drain(
        self,
        *,
        wait_deferred: bool = False,
        nsqd_http_addresses: Addresses = (),
        end_after_silence: Duration | None = None,
    ) -> Iterator[Message]:
        """Iterate over messages as :meth:`messages` does, until the channel is empty.

        The loop ends when every nsqd that this consumer has been connected to reports that no
        message is waiting or in flight. An nsqd that does not answer is asked again for
        ``config.drain_patience`` seconds (60). See ``docs/topics/batch-jobs.rst``.

        Args:
            wait_deferred: wait for deferred messages too, including those that you requeue with a
                delay. Otherwise their number is logged at the end.
            nsqd_http_addresses: ``host:port`` or URLs of the HTTP APIs of nsqds that you passed by
                TCP address. Not needed if the HTTP port is the one after the TCP port.
            end_after_silence: seconds without a message after which the loop may end although an
                nsqd cannot be asked. The log then says that the end is not verified. None: the loop
                raises.

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
        drain = self._make_drain(
            nsqd_http_addresses, end_after_silence, wait_deferred, is_loop=True)
        self.start()
        return iterate(self._core, TICK, lambda since: drain.is_over())

    def run_until_empty(
        self,
        *,
        wait_deferred: bool = False,
        nsqd_http_addresses: Addresses = (),
        end_after_silence: Duration | None = None,
        stop_timeout: Duration = STOP_TIMEOUT,
    ) -> DrainReport:
        """Start, block until the channel is empty, and stop. SIGINT and SIGTERM also end it.

        For a consumer with a handler; arguments and end as in :meth:`drain`. The last batch of a
        :class:`BatchHandler` is handled, and messages of ``enable_async()`` are waited for.

        Returns: a report, which is true if the channel was seen empty and no message was abandoned.

        Raises:
            ConfigError: the consumer has no handler, an argument is invalid, or the HTTP address of
                an nsqd is not known.
            ConnectError: as in :meth:`drain`; the consumer is then stopped.
        """
        seconds = to_seconds(stop_timeout, "stop_timeout")
        if self._handler is None:
            raise ConfigError("run_until_empty() needs a handler: give one, or loop over drain()")
        with Signals(Second.FORMER) as signals:
            drain = self._make_drain(
                nsqd_http_addresses, end_after_silence, wait_deferred, is_loop=False)
            has_ended = False
            try:
                self.start()
                while not (signals.wait(TICK) or self._core.shutdown.has_begun):
                    has_ended = drain.is_over()
                    if has_ended:
                        break
            finally:
                report = self.stop(seconds)
            return drain.report(has_ended, report)

    def _make_drain(
        self, nsqd_http_addresses: Addresses, end_after_silence: Duration | None,
        wait_deferred: bool, *, is_loop: bool,
    ) -> Drain:
        """Build a drain and check that its end can be detected. Asks every nsqd."""
        rules = check_rules(end_after_silence, wait_deferred, self.config, is_loop=is_loop)
        nsqd_http = check_list(nsqd_http_addresses, "nsqd_http_addresses")
        for address in nsqd_http:
            nsqd_url(address, "")
        sources = self._settings.sources._replace(nsqd_http=nsqd_http)
        drain = Drain(self._core, rules, self._core.make_depth_query(sources))
        drain.check()
        return drain

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise TypeError("a Consumer is not iterable: loop over consumer.messages()")

        def __aenter__(self) -> NoReturn:
            raise TypeError("a Consumer is for threads: write with, not async with")

        def __aexit__(self, *exc_info: object) -> NoReturn:
            raise TypeError("a Consumer is for threads: write with, not async with")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Consumer cannot be pickled or copied: make one in each process")

    def __del__(self) -> None:
        if self._is_forgotten:
            warnings.warn(f"{self!r} was never started: call start() or run()", ResourceWarning,
                          source=self)

    def __enter__(self) -> Consumer:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def is_starved(self) -> bool:
        """True if a connection has nearly as many messages in flight as its RDY allows.

        A handler that collects a batch should then handle it, because few or no messages arrive
        before it responds. False while messages wait for a worker. Source: client guide, "Message
        Flow Starvation".
        """
        return self._core.processor.is_starved()

    @property
    def is_stopping(self) -> bool:
        """True once ``stop()`` is called: a handler that collects messages should answer them."""
        return self._core.shutdown.has_begun

    @property
    def max_in_flight(self) -> int:
        """Maximum number of messages in flight."""
        return self._core.flow.max_in_flight

    def set_max_in_flight(self, count: int) -> None:
        """Change the maximum number of messages in flight; 0 stops the flow.

        Raises:
            ConfigError: ``count`` is negative or not an integer.
        """
        self._core.has_max_in_flight = True
        self._core.flow.set_max_in_flight(self.config.replace(max_in_flight=count).max_in_flight)

    def pause(self) -> None:
        """Stop the flow (RDY 0). Messages in flight are still handled."""
        self._core.flow.set_paused(True)

    def resume(self) -> None:
        """Undo ``pause()``."""
        self._core.flow.set_paused(False)

    def healthy(self) -> Health:
        """Return whether the consumer can receive messages, for readiness probes.

        If not, its ``reason`` says what is missing: an nsqd, a handler or a loop, ``max_in_flight``
        above 0; or that it is stopping, paused, in backoff, or held by ``max_queued_bytes``.
        """
        check_process()
        return self._core.health()

    def stats(self) -> ConsumerStats:
        """Take a snapshot of the counters and of every connection."""
        check_process()
        return self._core.stats()

    def __repr__(self) -> str:
        connections = counted(len(self._core.flow.subscriptions), "connection")
        return f"<Consumer {self.topic}/{self.channel} {connections}>"


def stop_all(consumers: Iterable[Consumer], timeout: float) -> list[StopReport]:
    """Stop consumers concurrently and return their reports. Blocks as ``Consumer.stop``."""
    reports: list[StopReport] = []
    threads = [
        LibraryThread(lambda one=one: reports.append(one.stop(timeout)), "nsq-stop-all")
        for one in consumers]
    for thread in threads:
        thread.launch()
    for thread in threads:
        thread.join()
    return reports
