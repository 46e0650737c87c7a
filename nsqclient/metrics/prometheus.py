"""``NSQCollector``: consumers and producers for ``prometheus_client``.

The page ``docs/topics/metrics.rst`` lists the metrics.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from nsqclient.consumer.backoff import Phase
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.consumer import Consumer
from nsqclient.consumer.processor import Handler
from nsqclient.consumer.rdy import LevelReason
from nsqclient.consumer.stats import ConsumerStats
from nsqclient.message import Message, Requeue, raise_decision
from nsqclient.producer.producer import BaseProducer
from nsqclient.producer.stats import ProducerStats
from nsqclient.runtime.arguments import check_function
from nsqclient.runtime.stats import Histogram, HistogramSnapshot
from nsqclient.runtime.lock import Lock

#: Values of the labels, and the value.
Samples = Iterable[tuple[tuple[str, ...], float]]

_CHANNEL = ("topic", "channel")
_NSQD = (*_CHANNEL, "nsqd")
_PRODUCER = ("producer",)

#: Name in ``ConsumerStats.total``, and help.
_CONSUMER_TOTALS = [
    ("received", "messages received"),
    ("finished", "messages finished (FIN)"),
    ("requeued", "messages requeued (REQ)"),
    ("given_up", "messages given up and finished"),
    ("touched", "timeout extensions sent (TOUCH)"),
    ("requeued_unstarted", "messages requeued by a stop before their handler started"),
    ("expired", "messages that timed out before their handler started"),
    ("late_answers", "responses sent after the message timed out"),
    ("lost_answers", "responses lost with their connection"),
    ("orphaned", "messages in flight on a connection when it was lost"),
]
#: Name, help and value.
_CONSUMER_GAUGES: list[tuple[str, str, Callable[[ConsumerStats], float]]] = [
    ("connections", "connected nsqds", lambda stats: len(stats.connections)),
    ("queued", "messages waiting for a worker", lambda stats: stats.queued),
    ("queued_bytes", "size in bytes of the messages waiting for a worker",
     lambda stats: stats.queued_bytes),
    ("held", "1 while max_queued_bytes holds RDY at 0", lambda stats: stats.is_held),
    ("running", "running handlers", lambda stats: stats.running),
    ("max_in_flight", "maximum number of messages in flight", lambda stats: stats.max_in_flight),
    ("level", "messages that may be in flight now: max_in_flight, or fewer that handlers finish in"
     " time", lambda stats: stats.level),
    ("slowest_handler_seconds", "duration of the slowest of the last handler calls, in seconds",
     lambda stats: stats.handler_time or 0.0),
    ("paused", "1 while the consumer is paused", lambda stats: stats.is_paused),
]
_PRODUCER_COUNTERS: list[tuple[str, str, Callable[[ProducerStats], float]]] = [
    ("retried", "retried publishes", lambda stats: stats.retried),
    ("bytes", "bytes stored by synchronous publishes", lambda stats: stats.bytes),
]
_PRODUCER_GAUGES: list[tuple[str, str, Callable[[ProducerStats], float]]] = [
    ("pending", "publishes in progress", lambda stats: stats.pending),
    ("connections", "connected nsqds", lambda stats: len(stats.connected)),
    ("nsqds", "known nsqds", lambda stats: len(stats.known)),
]


class _Timing:
    def __init__(self) -> None:
        self.handling = Histogram()
        self.age = Histogram()
        self.lock = Lock()
        self.failures = 0  # guarded by lock


class NSQCollector(Collector):
    """Exports its consumers and producers at each scrape. Threads: any.

    Args:
        registry: the registry to register with, or None.
    """

    def __init__(self, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._lock = Lock()
        self._consumers: list[Consumer] = []  # guarded by _lock, as below
        self._producers: dict[str, BaseProducer[Any]] = {}
        self._timings: dict[tuple[str, str], _Timing] = {}
        if registry is not None:
            registry.register(self)

    def add_consumer(self, consumer: Consumer) -> None:
        """Export a consumer's counters. Consumers of the same channel are summed."""
        with self._lock:
            if consumer not in self._consumers:
                self._consumers.append(consumer)

    def add_producer(self, producer: BaseProducer[Any], name: str = "default") -> None:
        """Export a producer's counters under a name; replaces a former producer of that name."""
        with self._lock:
            self._producers[name] = producer

    def remove(self, what: Consumer | BaseProducer[Any]) -> None:
        """Remove a consumer or producer, if present."""
        with self._lock:
            self._consumers = list(other for other in self._consumers if other is not what)
            self._producers = dict(
                (name, other) for name, other in self._producers.items() if other is not what
            )

    def timed(self, handler: Handler, topic: str, channel: str) -> Handler:
        """Return a handler that measures the time, failures and messages' age of ``handler``.

        For a BatchHandler it returns a copy that measures each batch.
        """
        with self._lock:
            timing = self._timings.setdefault((topic, channel), _Timing())

        def wrap(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @wraps(function, updated=())
            def run(argument: Any) -> Any:
                _note_ages(timing, argument if isinstance(argument, list) else [argument])
                began = time.perf_counter()
                try:
                    result = function(argument)
                    raise_decision(result)
                    return result
                except BaseException as exc:
                    if not isinstance(exc, Requeue):
                        with timing.lock:
                            timing.failures += 1
                    raise
                finally:
                    timing.handling.observe(time.perf_counter() - began)

            return run

        if isinstance(handler, BatchHandler):
            return handler.wrapped(wrap)
        check_function(handler, "handler", "message")  # the wrapper would hide an async function
        return wrap(handler)

    def describe(self) -> Iterable[Metric]:
        return NSQCollector(None).collect()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            consumers, producers = list(self._consumers), dict(self._producers)
            timings = dict(self._timings)
        yield from _of_consumers(consumers)
        yield from _of_timings(timings)
        yield from _of_producers(producers)


def _note_ages(timing: _Timing, messages: Iterable[Message]) -> None:
    now = time.time_ns()
    for message in messages:
        # The clocks of two machines may differ: never below zero.
        timing.age.observe(max(0.0, (now - message.timestamp) / 1e9))


def counter(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    """Return a counter; samples with the same labels are summed."""
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def gauge(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def _filled(metric: Any, samples: Samples) -> Metric:
    sums: Counter[tuple[str, ...]] = Counter()
    for labels, value in samples:
        sums[labels] += value  # type: ignore[assignment] # a Counter takes any number
    for labels, total in sums.items():
        metric.add_metric(labels, total)
    filled: Metric = metric
    return filled


def _histogram(
    name: str, text: str, labels: tuple[str, ...],
    samples: Iterable[tuple[tuple[str, ...], HistogramSnapshot]],
) -> Metric:
    metric = HistogramMetricFamily(name, text, labels=labels)
    for values, found in samples:
        names = [*map(floatToGoString, found.bounds), "+Inf"]
        metric.add_metric(values, list(zip(names, found.cumulative())), found.sum)
    return metric


def _of_consumers(consumers: list[Consumer]) -> Iterator[Metric]:
    seen = [((each.topic, each.channel), each.stats()) for each in consumers]
    for name, text in _CONSUMER_TOTALS:
        yield counter(f"nsq_consumer_{name}", text, _CHANNEL,
                      [(labels, getattr(stats.total, name)) for labels, stats in seen])
    yield counter(
        "nsq_consumer_timed_out",
        "messages that timed out: nsq_consumer_expired plus nsq_consumer_late_answers", _CHANNEL,
        [(labels, stats.total.expired + stats.total.late_answers) for labels, stats in seen])
    for name, text, value in _CONSUMER_GAUGES:
        yield gauge(f"nsq_consumer_{name}", text, _CHANNEL,
                    [(labels, value(stats)) for labels, stats in seen])
    yield gauge("nsq_consumer_healthy", "1 while healthy() is true", _CHANNEL,
                [((each.topic, each.channel), bool(each.healthy())) for each in consumers])
    yield gauge("nsq_consumer_backoff", "1 for the current backoff state", (*_CHANNEL, "state"), [
        ((*labels, phase.value), stats.backoff == phase.value)
        for labels, stats in seen for phase in Phase])
    yield gauge("nsq_consumer_level_reason", "1 for what decides the level",
                (*_CHANNEL, "reason"), [
                    ((*labels, reason.value), stats.level_reason == reason.value)
                    for labels, stats in seen for reason in LevelReason])
    connections = [
        ((*labels, conn.address), conn) for labels, stats in seen for conn in stats.connections]
    yield gauge("nsq_consumer_in_flight", "messages in flight on a connection", _NSQD,
                [(labels, conn.in_flight) for labels, conn in connections])
    yield gauge("nsq_consumer_rdy", "RDY of a connection", _NSQD,
                [(labels, conn.rdy) for labels, conn in connections])


def _of_timings(timings: dict[tuple[str, str], _Timing]) -> Iterator[Metric]:
    yield counter("nsq_consumer_handler_failures", "exceptions raised by handlers, except Requeue",
                  _CHANNEL, [(labels, timing.failures) for labels, timing in timings.items()])
    yield _histogram(
        "nsq_consumer_handler_seconds", "duration of a handler call, in seconds", _CHANNEL,
        [(labels, timing.handling.snapshot()) for labels, timing in timings.items()])
    yield _histogram(
        "nsq_consumer_message_age_seconds",
        "age of a message when its handler starts, in seconds", _CHANNEL,
        [(labels, timing.age.snapshot()) for labels, timing in timings.items()])


def _of_producers(producers: dict[str, BaseProducer[Any]]) -> Iterator[Metric]:
    seen = [((name,), producer.stats()) for name, producer in producers.items()]
    yield counter("nsq_producer_messages", "messages by outcome of their publish",
                  (*_PRODUCER, "outcome"), [
                      ((*labels, outcome), value) for labels, stats in seen
                      for outcome, value in (("stored", stats.published),
                                             ("rejected", stats.rejected),
                                             ("unknown", stats.unknown))])
    for kind, table in ((counter, _PRODUCER_COUNTERS), (gauge, _PRODUCER_GAUGES)):
        for name, text, value in table:
            yield kind(f"nsq_producer_{name}", text, _PRODUCER,
                       [(labels, value(stats)) for labels, stats in seen])
    yield _histogram(
        "nsq_producer_publish_seconds",
        "duration of a successful synchronous publish, in seconds", _PRODUCER,
        [(labels, stats.latency) for labels, stats in seen])


def render(metrics: Iterable[Metric]) -> tuple[str, bytes]:
    """Return content type and text of a scrape, without metrics that have no samples."""

    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            return (metric for metric in metrics if metric.samples)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    return CONTENT_TYPE_LATEST, generate_latest(registry)


class WorkerMetrics(NSQCollector):
    """The metrics of a worker, over all of its processes.

    Each process takes snapshots, which the process that answers scrapes renders with the number of
    the process as the label ``process``. The counters of a replaced process start at 0, which
    Prometheus handles as a reset.
    """

    def __init__(self) -> None:
        super().__init__(None)

    def snapshot(self) -> object:
        """Return every metric as a value for JSON."""
        return [
            [metric.name, metric.documentation, metric.type,
             [[sample.name, sample.labels, sample.value] for sample in metric.samples]]
            for metric in self.collect()
        ]

    def render(self, snapshots: Mapping[str, object]) -> tuple[str, bytes]:
        """Return content type and text of a scrape of all processes."""
        merged: dict[str, Metric] = {}
        for process, snapshot in snapshots.items():
            assert isinstance(snapshot, list)
            for name, text, kind, samples in snapshot:
                metric = merged.setdefault(name, Metric(name, text, kind))
                for sample, labels, value in samples:
                    metric.add_sample(sample, {**labels, "process": process}, value)
        return render(merged.values())
