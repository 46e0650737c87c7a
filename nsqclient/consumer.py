"""``Consumer``: subscribes to a channel of a topic on every nsqd that has it, and runs a handler.

Sources: client guide; TCP protocol spec. Its parts live in :mod:`nsqclient.consuming`:
``membership`` keeps the connections, ``flow_control`` shares RDY and backs off, ``handling`` runs
the handler, ``stopping`` ends it all.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nsqclient.addresses import check_addresses
from nsqclient.advice import explained
from nsqclient.batch import BatchHandler
from nsqclient.config import Config
from nsqclient.deadletter import log_giving_up
from nsqclient.errors import ClosedError, ConfigError, ConnectError, NSQError
from nsqclient.display import without_password
from nsqclient.flow.backoff import Phase
from nsqclient.consuming.backpressure import Backpressure
from nsqclient.consuming.callbacks import Callbacks, check_callbacks
from nsqclient.consuming.flow_control import FlowControl
from nsqclient.consuming.handling import Handler, Handling
from nsqclient.consuming.iteration import Loops, iterate
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.membership import Membership
from nsqclient.message import Message
from nsqclient.partitions.tracing import TraceSwitch
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.protocol.partition_commands import MAX_PARTITION
from nsqclient.consuming.reports import ConnectionStats, ConsumerStats, Health, StopReport
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.forking import notify_after_fork
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.threads import ThreadStartError, owner_of_thread
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool
from nsqclient.consuming.signals import first_signal
from nsqclient.consuming.stopping import StopProcedure
from nsqclient.consuming.ordered_handling import OrderedHandling, Policy, check_ordered
from nsqclient.consuming.subscription import Subscription
from nsqclient.consuming.unhandled_deliveries import UnhandledDeliveries
from nsqclient.consuming.wiring import Wiring


class Consumer(Wiring):
    """Consumes one channel of one topic.

    Args:
        topic, channel: names; ``#ephemeral`` at the end makes them vanish with their last user.
        handler: called with each :class:`Message`, in ``workers`` threads at once. Returning
            finishes the message, raising requeues it (``Requeue`` says how). None for
            :meth:`messages`. A :class:`BatchHandler` collects messages into lists.
        nsqd_tcp_addresses: ``host:port`` of nsqds to connect to.
        lookupd_http_addresses: ``host:port`` or URL of nsqlookupds to ask; may be combined.
        max_in_flight: how many messages may be out at once, over all nsqds; default: the
            config's.
        workers: threads that run the handler.
        config: the options; None: their defaults.
        on_giving_up: called instead of the handler when a message was delivered more than
            ``max_attempts`` times; then it is finished. If it raises, the message is requeued.
            Deliveries that expired in this consumer's queue are left out.
        on_error: called with an NSQError that was logged and will be retried.
        on_connect, on_disconnect: called with the address of an nsqd.
        on_backoff: called with "waiting" and the seconds, "testing" or "flowing" and 0.
        discovery_filter: called with the addresses that a nsqlookupd named; returns those to use.
        ordered: consume the partitions of an ordered topic one message at a time each, never
            skipping one; needs nsqlookupds. ``max_in_flight`` then is as many as there are
            partitions, unless given. See ``docs/topics/partitions.rst``.
        on_blocked: with ``ordered``: called with a message that failed, or came out of order, and
            the error; returns ``Blocked.RETRY``, ``Blocked.SKIP``, or seconds to wait.

    Callbacks run on the library's threads and must not block; what they raise is logged. None of
    these functions may be ``async def`` or a generator: calling it would do nothing.

    Raises:
        ConfigError, InvalidTopicError, InvalidChannelError: an argument cannot be right; a handler
            or callback cannot be called with what it is called with.

    Life: created (nothing runs), ``start()`` (or ``with``, or ``run()``), ``stop()``; it is not
    started again. In a forked child it is as it was created, and the parent's lives on.
    Threads: every method, from any thread.
    """

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
        on_giving_up: Callable[[Message], Any] = log_giving_up,
        on_error: Callable[[NSQError], Any] | None = None,
        on_connect: Callable[[str], Any] | None = None,
        on_disconnect: Callable[[str], Any] | None = None,
        on_backoff: Callable[[str, float], Any] | None = None,
        discovery_filter: Callable[[list[str]], Iterable[str]] | None = None,
        ordered: bool = False,
        on_blocked: Policy | None = None,
    ) -> None:
        # A generator can be read once, and a forked child needs the addresses again.
        nsqd_tcp_addresses, lookupd_http_addresses = check_addresses(
            nsqd_tcp_addresses, lookupd_http_addresses
        )
        self._arguments = {key: value for key, value in locals().items() if key != "self"}
        self.topic = check_topic(topic)
        self.channel = check_channel(channel)
        check_callbacks(self._arguments)
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise ConfigError(f"workers must be a whole number from 1, not {workers!r}")
        config = Config() if config is None else config
        if max_in_flight is not None:
            config = config.replace(max_in_flight=max_in_flight)
        if config.heartbeat_interval <= 0:
            raise ConfigError("a consumer needs heartbeats: nsqd refuses SUB without them")
        check_ordered(
            ordered, config, is_batch=isinstance(handler, BatchHandler),
            has_nsqds=bool(nsqd_tcp_addresses), has_policy=on_blocked is not None,
        )
        if ordered and max_in_flight is None:
            config = config.replace(max_in_flight=max(config.max_in_flight, MAX_PARTITION + 1))
        self._ordered = ordered
        self._tracing = TraceSwitch()
        self.config = config
        self._handler = handler
        self._log = LifeLog(topic, channel)
        self._tell = Callbacks(
            self._log, on_error=on_error, on_connect=on_connect, on_disconnect=on_disconnect,
            on_backoff=on_backoff,
        ).tell
        self._lock = threading.Lock()
        self._started = False  # all threads run
        self._has_begun = False  # it connects; guarded by _lock
        self._unhandled = UnhandledDeliveries()
        self._running: list[Subscription] = []  # open and started; guarded by _lock
        self._connected_until = -math.inf  # the last loss, on time.monotonic(); guarded by _lock
        self._timer = Timer()
        self._chores: WorkerPool[Callable[[], None]] = WorkerPool(
            "nsq-chores",
            # A lookup may hang for a minute, and should not delay the others.
            2 + len(lookupd_http_addresses), lambda chore: chore(),
        )
        self._flow = FlowControl(
            config, config.max_in_flight, self._timer, self._chores.put, self._on_phase, self._log
        )
        if handler is None:
            self._flow.set_paused(True)  # until messages() is called: nobody takes them before
        self._loops = Loops(self._flow.set_paused)
        self._handling = Handling(
            handler or _no_handler, config.max_attempts, on_giving_up, self._flow, self._timer,
            lambda: self._running, self._log,
        ) if not ordered else OrderedHandling(
            handler or _no_handler, on_blocked, config.ordered_attempts_warning, self._flow,
            self._timer, lambda: self._running, lambda messages: self._workers.put_many(messages),
            self._log,
        )
        self._workers: WorkerPool[Message] = WorkerPool(
            "nsq-worker", workers if handler is not None else 0, self._handling.run,
            self._handling.flush,
        )
        self._membership = Membership(
            self.topic, nsqd_tcp_addresses, lookupd_http_addresses, config, self._timer,
            self._chores.put, self, discovery_filter, self._flow.set_expected, self._log,
            ordered=ordered, make_partition=self.make_partition,
        )
        self._stopping = StopProcedure(
            self._membership, self._flow, self._handling, self._workers, self._timer,
            self._chores, self._log,
        )
        self._backpressure = Backpressure(
            config.max_queued_bytes, self._flow, self._workers, self._handling,
            lambda: self._running, self._timer, self._chores.put, self._log,
            self._stopping.maybe_hand_back_queued,
        )
        if isinstance(handler, BatchHandler):
            handler.bind(self)
            self._stopping.before_workers_end = lambda: self.run_on_worker(handler.flush)
            self._stopping.after_workers_end = handler.give_back
        notify_after_fork(self)

    # -- life

    def after_fork_in_child(self) -> None:
        """For the library: become a consumer that was never started, in a forked child."""
        self._membership.abandon()
        Consumer.__init__(self, **self._arguments)

    def start(self) -> Consumer:
        """Start the threads and begin to connect; returns at once. Idempotent.

        Where it failed, or an exception from a signal handler came in between, call it again.

        Raises:
            ClosedError: it was stopped.
            ConnectError: the system has no thread left, or the interpreter ends.
        """
        if self._stopping.has_begun:
            raise ClosedError("this consumer was stopped: make a new one")
        if not self._started:
            # Each step may be repeated, where a signal handler has interrupted them or no thread
            # was left. The last ones are taken on a thread of ours, which nothing interrupts.
            try:
                self._timer.start()
                self._chores.start()
                self._workers.start()
            except ThreadStartError as exc:
                raise ConnectError(self._shown_addresses(), f"no thread to consume: {exc}") from exc
            self._chores.put(self._begin)
            self._started = True
        return self

    def _begin(self) -> None:
        """Connect. On a chore thread, which may come here twice."""
        with self._lock:
            if self._has_begun or self._stopping.has_begun:
                return
            self._has_begun = True
        self._log.started(self.max_in_flight)
        self._flow.start()
        self._membership.start()

    def stop(self, timeout: Duration = 30.0) -> StopReport:
        """Stop consuming and lose nothing: see ``docs/topics/shutdown.rst`` for the steps.

        Messages that no handler has seen go back to nsqd at once; running handlers may finish
        until ``timeout`` seconds have passed. When it returns, no handler is started any more,
        and all threads but those that the report names have ended.

        Idempotent; from any thread, also from a signal handler. From inside a handler or a
        callback it only begins the stop, since it cannot wait for its own caller: the report is
        not complete.

        Returns: a report, true unless a running message had to be abandoned.
        """
        seconds = to_seconds(timeout, "timeout")
        return self._stopping.stop(seconds, wait=not self._is_own_thread())

    def _is_own_thread(self) -> bool:
        """Tell whether the caller is a thread that a stop waits for."""
        return (
            self._workers.is_worker() or self._chores.is_worker() or self._timer.is_timer()
            or self._membership.is_dialer() or self._handling.is_turn_of_caller()
            or self._is_own_reader()
        )

    def _is_own_reader(self) -> bool:
        """Tell whether the caller is the reader of a connection of this consumer."""
        listener = owner_of_thread()
        return isinstance(listener, Subscription) and listener.belongs_to(self)

    def run(self, stop_timeout: Duration = 30.0) -> StopReport:
        """Start, and block until SIGINT or SIGTERM (in the main thread) or ``stop()``.

        The signals' former handlers are put back with the first signal, so a second Ctrl-C
        interrupts the stop. ConfigError: no handler was given, so nothing would be handled.
        """
        seconds = to_seconds(stop_timeout, "stop_timeout")
        if self._handler is None:
            raise ConfigError("run() needs a handler: give one, or loop over messages() instead")
        with first_signal() as came:
            self.start()
            # A timeout lets Python run signal handlers on every platform.
            while not came.wait(0.5) and not self._stopping.has_begun:
                pass
            return self.stop(seconds)

    def messages(self, timeout: Duration | None = None) -> Iterator[Message]:
        """Yield messages to a loop of yours; for scripts. Only where no handler was given.

        A message is finished when the loop asks for the next one, unless you answered it. When
        you leave the loop in the middle of a turn (break, an exception), the message of that turn
        is requeued at once, unless you answered it: finish() it before you break. While nobody
        loops, nsqd sends nothing; what it had sent waits for the next loop, or expires.

        Args:
            timeout: the loop ends when no message has come for so many seconds; None: never.
                Leave time enough to connect.

        Blocks: until the next message. Starts the consumer; stopping it ends the loop.

        Raises:
            ConfigError: a handler was given.
            ConnectError: in the loop, when it would end, and no nsqd was connected in all those
                seconds. Another loop may follow.
        """
        if self._handler is not None:
            raise ConfigError("messages() is for a Consumer without a handler")
        seconds = None if timeout is None else to_seconds(timeout, "timeout")
        self.start()
        return iterate(
            self._workers, self._handling, self._loops, seconds,
            lambda: self._stopping.has_begun, self._check_connected,
        )

    def _check_connected(self, since: float) -> None:
        """Raise when no nsqd was connected at any time since then.

        Raises:
            ConnectError: says for how long, and the last reason.
        """
        # In the opposite order of on_lost(): a connection that ends meanwhile is seen in one.
        if self._running or self._connected_until >= since:
            return
        failure = self._membership.unfit or self._membership.last_failure
        if failure is None:
            reason = "no attempt to connect has ended yet: give messages() a longer timeout"
        else:
            reason = f"the last failure: {explained(failure)}"
        raise ConnectError(
            self._shown_addresses(),
            f"{self.topic}/{self.channel} was connected to no nsqd for"
            f" {round(time.monotonic() - since, 1):g} s, while it waited for a message; {reason}",
        ) from failure

    def _shown_addresses(self) -> str:
        return ", ".join(self._arguments["nsqd_tcp_addresses"] + [
            without_password(address) for address in self._arguments["lookupd_http_addresses"]
        ])

    def __enter__(self) -> Consumer:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # -- questions and controls

    def is_starved(self) -> bool:
        """Tell whether some connection has nearly all in flight that its RDY allows.

        For a handler that collects a batch: work it off now, more will not come before you
        answer. False while messages wait for a worker: those do come. Source: client guide,
        "Message Flow Starvation".
        """
        return not len(self._workers) and self._flow.is_starved()

    @property
    def max_in_flight(self) -> int:
        """How many messages may be out at once."""
        return self._flow.max_in_flight

    def set_max_in_flight(self, count: int) -> None:
        """Change how many messages may be out at once; 0 stops the flow.

        Raises:
            ConfigError: ``count`` is negative or no whole number.
        """
        self._flow.set_max_in_flight(self.config.replace(max_in_flight=count).max_in_flight)

    def pause(self) -> None:
        """Stop the flow (RDY 0); what is out or queued is still handled."""
        self._flow.set_paused(True)

    def resume(self) -> None:
        """Undo ``pause()``."""
        self._flow.set_paused(False)

    def set_tracing(self, enabled: bool) -> None:
        """Turn the trace log (logger ``nsqclient.trace``) on or off; for partitioned NSQ."""
        self._tracing.set(enabled)

    def healthy(self) -> Health:
        """Tell whether the consumer does what it should; for readiness probes.

        Healthy: started, not stopping, not paused, with a max_in_flight above 0 and a handler or
        a loop over ``messages()``, connected to at least one nsqd, not waiting in backoff, and
        not held by ``max_queued_bytes``. The result is true or false and has a ``reason``: what
        keeps messages from being consumed.
        """
        if not self._started:
            return Health(False, "not started")
        if self._stopping.has_begun:
            return Health(False, "stopped")
        if self._membership.unfit is not None:
            return Health(False, str(self._membership.unfit))
        if self._handler is None and not self._loops.count:
            return Health(False, "no handler was given, and nobody iterates over messages()")
        if self._flow.is_paused:
            return Health(False, "paused: resume() was not called")
        if self._flow.max_in_flight == 0:
            return Health(False, "max_in_flight is 0")
        if not self._running:
            return Health(False, "connected to no nsqd")
        if self._flow.phase is Phase.WAITING:
            failures = counted(self._flow.backoff_counter, "failure")
            return Health(False, f"backing off after {failures}")
        if self._backpressure.is_held:
            return Health(
                False, "held by max_queued_bytes:"
                f" {self._backpressure.queued_bytes() / 2**20:.1f} MiB wait for workers"
            )
        return Health(True, f"connected to {counted(len(self._running), 'nsqd')}")

    def stats(self) -> ConsumerStats:
        """Take a snapshot of the counters and of every connection."""
        rdy = self._flow.rdy_by_connection()
        return ConsumerStats(
            connections=[ConnectionStats.of(sub, count) for sub, count in rdy.items()],
            total=self._stopping.ledger.total(list(rdy)),
            queued=len(self._workers),
            queued_bytes=self._backpressure.queued_bytes(),
            is_held=self._backpressure.is_held,
            running=len(self._handling.running),
            backoff=self._flow.phase.value,
            repairs=self._flow.repairs,
            is_paused=self._flow.is_paused,
            max_in_flight=self._flow.max_in_flight,
        )

    def __repr__(self) -> str:
        return f"<Consumer {self.topic}/{self.channel} {counted(len(self._running), 'connection')}>"


def _no_handler(message: Message) -> None:
    raise AssertionError("a consumer without a handler has no workers")
