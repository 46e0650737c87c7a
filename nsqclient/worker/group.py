"""``ConsumerGroup``: the consumers of one process, which start and stop together.

``check_group`` does the work of ``--check``: it connects to the servers and takes no message. If
nsqd requires authentication, only a SUB shows the right to consume. It would create topic and
channel, so it is sent only for existing channels, with RDY 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from nsqclient.config import OPTIONS, PARTITIONED_ARGUMENTS, Config
from nsqclient.cluster.probe import probe
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.core import few_in_flight
from nsqclient.consumer.consumer import STOP_TIMEOUT, Consumer, stop_all
from nsqclient.consumer.middleware import Middleware, check_middleware
from nsqclient.consumer.stats import StopReport
from nsqclient.display import counted, without_password
from nsqclient.errors import ConfigError, LocalProtocolError, NSQError, with_hint
from nsqclient.partitioned.discovery import lookup
from nsqclient.runtime.arguments import check_function
from nsqclient.worker.loading import UnknownTargetError
from nsqclient.worker.registry import Registration

if TYPE_CHECKING:
    from nsqclient.http.models import TopicStats
    from nsqclient.metrics.prometheus import WorkerMetrics

#: Functions of a registration that are called within the context of a group, and with what.
_WITHIN = {"retry": ("message", "exception"), "on_giving_up": ("message",)}
_UNSHOWN = {"user_agent", "max_in_flight"}


def stop_error(reports: Iterable[StopReport]) -> str:
    """Return an error with a hint if messages were abandoned; otherwise empty."""
    abandoned = sum(report.abandoned for report in reports)
    if not abandoned:
        return ""
    return (
        f"{counted(abandoned, 'message')} had no response at the stop: nsqd delivers them again. If"
        " handlers were still running, a longer --stop-timeout lets them finish"
    )


class ConsumerGroup:
    """Consumers that start and stop together. Threads: ``stop`` from any; the other methods in one.

    Args:
        addresses: arguments of each Consumer: ``nsqd_tcp_addresses``, ``lookupd_http_addresses``.
        middleware: outside of the middleware of each handler.
        context: the context of each call of ``retry`` and ``on_giving_up``.
    """

    def __init__(
        self,
        config: Config,
        addresses: Mapping[str, Any],
        middleware: Iterable[Middleware] = (),
        metrics: WorkerMetrics | None = None,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.config = config
        self.addresses: dict[str, Any] = dict(addresses)
        self.metrics = metrics
        self._context = context
        self._middleware = check_middleware(middleware)
        self.registrations: list[Registration] = []
        self.consumers: list[Consumer] = []

    def add(self, registration: Registration) -> Consumer:
        """Add the consumer of a registration. Errors: as for a Consumer."""
        for former in self.registrations:
            if former.place == registration.place:
                raise ConfigError(f"{registration.place} has two handlers:"
                                  f" {former.name} and {registration.name}")
        handler = registration.handler
        if isinstance(handler, BatchHandler):  # one serves one consumer
            handler = handler.wrapped(lambda function: function)
        if self.metrics is not None:
            handler = self.metrics.timed(handler, registration.topic, registration.channel)
        arguments = dict(registration.arguments)
        if registration.max_in_flight is not None:
            arguments["max_in_flight"] = registration.max_in_flight
        try:
            # The decorator has warned of what may be milliseconds.
            config = self.config.changed(registration.options, ())
            for name, parameters in _WITHIN.items():
                if arguments.get(name) is not None:
                    arguments[name] = self._within(arguments[name], name, parameters)
            consumer = consumer_class(arguments)(
                registration.topic, registration.channel, handler, workers=registration.workers,
                config=config,
                middleware=(*self._middleware, *registration.middleware),
                **self.addresses, **arguments,
            )
        except ConfigError as exc:
            raise ConfigError(f"{registration.name} for {registration.place}: {exc}") from exc
        if self.metrics is not None:
            self.metrics.add_consumer(consumer)
        self.registrations.append(registration)
        self.consumers.append(consumer)
        return consumer

    def _within(
        self, function: Callable[..., Any], name: str, parameters: Sequence[str]
    ) -> Callable[..., Any]:
        check_function(function, name, *parameters)  # the wrapper would hide an async function

        def call(*arguments: Any) -> Any:
            with self._context():
                return function(*arguments)

        # Of a Retry or a RetryTable: the Consumer checks it.
        call.max_attempts = getattr(function, "max_attempts", 0)  # type: ignore[attr-defined]
        return call

    def banner(self) -> list[str]:
        lines = []
        for registration, consumer in zip(self.registrations, self.consumers):
            own = _shown({name: getattr(consumer.config, name) for name in registration.options})
            parts = [
                counted(registration.workers, "worker"), f"max_in_flight {consumer.max_in_flight}",
                *own, *(name for name in registration.arguments),
            ]
            lines.append(
                f"consuming {registration.topic} on channel {registration.channel} with"
                f" {registration.name}: {', '.join(parts)}")
        for kind, addresses in self.addresses.items():
            if addresses:
                name = "nsqd" if kind.startswith("nsqd") else "nsqlookupd"
                shown = ", ".join(map(without_password, addresses))
                lines.append(f"from {name} {shown}")
        defaults = Config()
        changed = _shown({
            name: value for name in OPTIONS
            if (value := getattr(self.config, name)) != getattr(defaults, name)
        })
        if changed:
            lines.append(f"options: {', '.join(changed)}")
        return lines

    def health(self) -> dict[str, tuple[bool, str]]:
        """Return ``topic/channel`` -> (healthy, reason)."""
        return {
            f"{consumer.topic}/{consumer.channel}": (bool(health), health.reason)
            for consumer in self.consumers for health in [consumer.healthy()]
        }

    def start(self) -> None:
        for consumer in self.consumers:
            consumer.start()

    def stop(self, timeout: float = STOP_TIMEOUT) -> list[StopReport]:
        """Stop all consumers at once. Blocks: as ``Consumer.stop``."""
        return stop_all(self.consumers, timeout)


def consumer_class(arguments: Iterable[str]) -> type[Consumer]:
    if set(PARTITIONED_ARGUMENTS).isdisjoint(arguments):
        return Consumer
    from nsqclient.partitioned.consumer import Consumer as PartitionedConsumer

    return PartitionedConsumer


def add_all(
    group: ConsumerGroup, registrations: Iterable[Registration], topics: Iterable[str] = ()
) -> None:
    """Add registrations to a group, or only those of some ``topics``.

    Raises:
        UnknownTargetError: nothing is registered for a topic.
        ConfigError: nothing is registered, or an argument is wrong.
    """
    wanted = set(topics)
    for registration in registrations:
        if not wanted or registration.topic in wanted:
            group.add(registration)
    missing = wanted - {consumer.topic for consumer in group.consumers}
    if missing:
        raise UnknownTargetError(f"no handler is registered for {', '.join(sorted(missing))}")
    if not group.consumers:
        raise ConfigError("no handler is registered")


GROUP_ERRORS = (ConfigError, LocalProtocolError)


def _shown(options: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {'...' if OPTIONS[name].secret else value}" for name, value in options.items()
        if name not in _UNSHOWN
    ]


#: The suffix of names that nsqd deletes when the last consumer leaves.
_EPHEMERAL = "#ephemeral"


def check_group(group: ConsumerGroup, report: Callable[[str], None]) -> bool:
    """Connect to every nsqd and nsqlookupd of a group; return True if all is well.

    ``report`` is called with a line for each handler and server, which begins with OK, WRONG, or
    NOTE (advice, or a check that was impossible).

    Blocks: ``dial_timeout`` plus ``read_timeout`` for each server, and for each handler if nsqd
    requires authentication.
    """
    for line in group.banner():
        if line.startswith("consuming "):
            report(f"OK     {line}")
    for registration, consumer in zip(group.registrations, group.consumers):
        problem = few_in_flight(
            consumer.max_in_flight, registration.workers, registration.handler)
        if problem:
            report(f"NOTE   {consumer.topic}/{consumer.channel}: {problem}")
    is_well = True
    topics = list(dict.fromkeys(consumer.topic for consumer in group.consumers))
    listed: set[str] = set()
    nsqds = list(group.addresses.get("nsqd_tcp_addresses", ()))
    for lookupd in group.addresses.get("lookupd_http_addresses", ()):
        shown = f"nsqlookupd {without_password(lookupd)}"
        for topic in topics:
            try:
                found = lookup(lookupd, topic, group.config)
            except NSQError as exc:
                report(f"WRONG  {shown}: {with_hint(exc, shown)}")
                is_well = False
                break
            nsqds += found
            listed |= {topic} if found else set()
            report(f"OK     {shown} lists {counted(len(found), 'nsqd')} for {topic}")
    for topic in topics if group.addresses.get("lookupd_http_addresses") and is_well else ():
        if topic not in listed:
            report(f"NOTE   no nsqlookupd lists the topic {topic}: check its spelling, or publish"
                   " to it")
    guarded = {}
    for address in dict.fromkeys(nsqds):
        try:
            seen = probe(address, group.config, _timeout(group.config))
        except NSQError as exc:
            report(f"WRONG  nsqd {address}: {with_hint(exc, address)}")
            is_well = False
        else:
            report(f"OK     nsqd {address}")
            found_topics = _topics_of(address, topics, group.config)
            for each in found_topics.values():
                if each.waits_for_channel:
                    waiting = counted(each.depth, "waiting message")
                    report(f"NOTE   nsqd {address}: {each.name} has {waiting} and no channel: the"
                           " first channel takes them")
            if seen.settings.auth_required and seen.settings.is_stock:
                guarded[address] = found_topics
    return _check_rights(group, guarded, report) and is_well


def _check_rights(
    group: ConsumerGroup, nsqds: Mapping[str, Mapping[str, TopicStats]],
    report: Callable[[str], None],
) -> bool:
    """Subscribe to existing channels of nsqds with authentication; return True if nsqd permits it.
    """
    is_well = True
    unchecked = {id(consumer): consumer for consumer in group.consumers} if nsqds else {}
    for address, topics in nsqds.items():
        for consumer in _with_channel(topics, group):
            unchecked.pop(id(consumer), None)
            place = f"{consumer.topic}/{consumer.channel}"
            try:
                probe(address, consumer.config, _timeout(consumer.config),
                      (consumer.topic, consumer.channel))
            except NSQError as exc:
                report(f"WRONG  nsqd {address}, {place}: {with_hint(exc, address)}")
                is_well = False
            else:
                report(f"OK     nsqd {address} permits to consume {place}")
    for consumer in unchecked.values():
        report(f"NOTE   whether nsqd permits to consume {consumer.topic}/{consumer.channel} is not"
               " known: no nsqd shows that it has the channel, and to subscribe would create it")
    return is_well


def _with_channel(
    topics: Mapping[str, TopicStats], group: ConsumerGroup
) -> Iterator[Consumer]:
    """Yield the consumers whose channel exists, and outlives its consumers."""
    for consumer in group.consumers:
        if consumer.topic.endswith(_EPHEMERAL) or consumer.channel.endswith(_EPHEMERAL):
            continue
        topic = topics.get(consumer.topic)
        if topic is not None and topic.channel(consumer.channel) is not None:
            yield consumer


def _topics_of(address: str, topics: Iterable[str], config: Config) -> dict[str, TopicStats]:
    """Return the topics of an nsqd; empty if its HTTP API is not at the usual port."""
    # Here, because requests takes longer to import than the rest of the library.
    from nsqclient.http.nsqd import NsqdHTTP, find_http_address
    from nsqclient.partitioned.http import fetch_stats

    try:
        beside = find_http_address(address, config, _timeout(config))
        with NsqdHTTP(beside, config) as client:
            found = (fetch_stats(client, topic).topic(topic) for topic in topics)
            return {each.name: each for each in found if each is not None}
    except NSQError:
        return {}  # it is not there, or for others


def _timeout(config: Config) -> float:
    return config.dial_timeout + config.read_timeout
