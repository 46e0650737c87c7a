"""The consumers of one tool, and its dead-letter topic."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nsqclient import (
    Config, Consumer, DeadLetterTopic, DiscoveryError, Message, NSQError, PartitionError,
)
from nsqclient.cli.flags import CommandLineError
from nsqclient.cluster.probe import probe
from nsqclient.consumer.connections import NsqdSources
from nsqclient.consumer.consumer import stop_all
from nsqclient.partitioned.consumer import PartitionedConsumerCore
from nsqclient.cluster.look_guard import (
    LookGuard, LookingConsumer, LookRefusedError, Obstacle,
)
from nsqclient.partitioned import Producer
from nsqclient.runtime.process_signals import Signals

if TYPE_CHECKING:
    from nsqclient.http.models import TopicStats

#: Seconds that running handlers have to end, as in the originals.
STOP_TIMEOUT = 30.0
#: Seconds to connect to an nsqd whose HTTP API does not answer.
_PROBE_TIMEOUT = 5.0
_ANSWER_TIMEOUT = 2.0


class _ToolConsumer(LookingConsumer):
    """The consumer of a tool: ordered if its topic is, and it counts its nsqds."""

    def __init__(self, *args: Any, is_limited: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.is_limited = is_limited
        self._core.warns_of_few_in_flight = not is_limited

    def _make_core(self) -> PartitionedConsumerCore:
        # An ordered topic cannot be consumed without its order.
        self._options = self._options._replace(follows_topic=True)
        return super()._make_core()

    def count_nsqds(self) -> int:
        return len(self._core.connections.addresses())


class Consumers:
    """The consumers of one tool: started together, stopped together.

    A signal stops them; a failed start stops ``signals``.

    Threads: ``run`` in the thread of ``signals``, the others in any.
    """

    def __init__(self, values: Mapping[str, Any], config: Config, signals: Signals) -> None:
        self._nsqds: list[str] = list(dict.fromkeys(values["nsqd-tcp-address"]))
        self._lookupds: list[str] = values["lookupd-http-address"]
        self._config = config
        self._signals = signals
        self._lock = threading.Lock()
        self._all: list[_ToolConsumer] = []  # guarded by _lock, as the rest
        self._connected = False
        #: Topic and nsqd -> why the first dial failed, before any was connected.
        self._failures: dict[tuple[str, str], NSQError] = {}
        self._has_failed = False
        #: nsqlookupd -> why it will never list an nsqd
        self._wrong: dict[str, str] = {}
        self._fatal = ""
        self._started = False

    def add(
        self, topic: str, channel: str, handler: Callable[[Message], Any], *,
        guard: LookGuard | None = None, is_limited: bool = False, **options: Any,
    ) -> None:
        """Make a consumer, and start it if the others run.

        Args:
            guard: for a consumer that only looks at the topic.
            is_limited: max_in_flight is the number of messages to receive in all.
        """
        # As an argument it applies to partitioned topics too, even if it is 1.
        options.setdefault("max_in_flight", self._config.max_in_flight)
        consumer: _ToolConsumer = _ToolConsumer(
            topic, channel, handler, config=self._config, nsqd_tcp_addresses=self._nsqds,
            lookupd_http_addresses=self._lookupds,
            on_connect=lambda address: self._on_connect(consumer),
            on_error=lambda error: self._on_error(consumer, error), guard=guard,
            is_limited=is_limited, **options,
        )
        with self._lock:
            self._all.append(consumer)
            started = self._started
        if started:
            consumer.start()

    def run(self) -> None:
        with self._lock:
            self._started = True
            consumers = list(self._all)
        for consumer in consumers:
            consumer.start()
        self._signals.wait()
        self.stop()
        with self._lock:
            failures = list(self._failures.values())
            has_failed = self._has_failed and not self._connected
        if self._fatal:
            raise CommandLineError(self._fatal)
        if has_failed:
            raise CommandLineError("; ".join(dict.fromkeys(map(str, failures))))

    def fail(self, reason: str) -> None:
        self._fatal = reason
        self._signals.stop()

    def limit_in_flight(self, count: int) -> None:
        """Lower max_in_flight of every consumer to ``count``, but not below its connections.

        With less, some nsqds would have to wait for their turn to send. 0: no further message.
        """
        with self._lock:
            consumers = list(self._all)
        for consumer in consumers:
            wanted = max(count, consumer.count_nsqds(), 1) if count else 0
            if wanted < consumer.max_in_flight:
                consumer.set_max_in_flight(wanted)

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop all at once. Idempotent. Blocks: as ``Consumer.stop``."""
        with self._lock:
            consumers = list(self._all)
        stop_all(consumers, timeout)

    def _on_connect(self, consumer: _ToolConsumer) -> None:
        with self._lock:
            self._connected = True
        connections = consumer.count_nsqds()
        if consumer.is_limited and consumer.max_in_flight < connections:
            consumer.set_max_in_flight(connections)  # see limit_in_flight

    def _on_error(self, consumer: Consumer, error: NSQError) -> None:
        """Stop the tool if, at the start, every known nsqd has failed or may not be subscribed to.
        """
        if isinstance(error, PartitionError):
            self.fail(str(error))
            return
        if isinstance(error, DiscoveryError):
            self._on_lookup_failed(error)
            return
        obstacle = error.obstacle if isinstance(error, LookRefusedError) else None
        with self._lock:
            if self._connected:
                return
            if obstacle is Obstacle.NO_TOPIC or obstacle is None and not self._nsqds:
                return
            # Errors of a negotiation name no address; each address fails once before any twice.
            address = getattr(error, "address", str(len(self._failures)))
            self._failures[consumer.topic, address] = error
            self._has_failed = all(
                0 < each.count_nsqds() <= sum(
                    topic == each.topic for topic, _ in self._failures)
                for each in self._all)
            has_failed = self._has_failed
        if has_failed:
            self._signals.stop()

    def _on_lookup_failed(self, error: DiscoveryError) -> None:
        if not getattr(error.__cause__, "is_lasting", False):
            return
        with self._lock:
            self._wrong[error.address] = str(error)
            is_hopeless = not self._connected and len(self._wrong) >= len(set(self._lookupds))
        if is_hopeless:
            self.fail("; ".join(self._wrong.values()))


def make_guard(
    values: Mapping[str, Any], config: Config, topic: str, channel: str, *,
    may_create: bool = False,
) -> LookGuard:
    """Build the guard of a command that only looks at a topic, and may create its channel."""
    def ask(nsqd: str) -> TopicStats | None:
        from nsqclient.partitioned.channel_depth import DepthQuery
        from nsqclient.http.nsqd import NsqdHTTP
        from nsqclient.partitioned.http import fetch_stats

        query = DepthQuery(
            topic, channel, config,
            NsqdSources(values["nsqd-tcp-address"], values["lookupd-http-address"],
                        nsqd_http=values["nsqd-http-address"]))
        try:
            http = query.find_http(nsqd)
        except NSQError as exc:
            raise NSQError("its HTTP address is not known: give --nsqd-http-address") from exc
        with NsqdHTTP(http, config, connect_timeout=_ANSWER_TIMEOUT,
                      timeout=_ANSWER_TIMEOUT) as client:
            return fetch_stats(client, topic).topic(topic)

    return LookGuard(topic, channel, ask, lambda nsqd: probe(nsqd, config, _PROBE_TIMEOUT),
                     may_create=may_create)


def make_dead_letters(
    values: Mapping[str, Any], config: Config, stack: contextlib.ExitStack
) -> DeadLetterTopic:
    """Build the publisher of ``--dead-letter-topic``; the end of ``stack`` closes its producer."""
    producer = Producer(
        nsqd_tcp_addresses=list(dict.fromkeys(values["nsqd-tcp-address"])),
        lookupd_http_addresses=values["lookupd-http-address"], config=config,
    )
    stack.callback(producer.close)
    return DeadLetterTopic(
        producer, values["dead-letter-topic"],
        None if values["dead-letter-envelope"] else lambda message: message.body)
