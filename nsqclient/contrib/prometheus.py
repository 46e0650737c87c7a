"""``NSQCollector``: consumers and producers for ``prometheus_client``.

::

    metrics = NSQCollector()
    consumer = Consumer("orders", "mail", metrics.timed(send_mail, "orders", "mail"), ...)
    metrics.add_consumer(consumer)
    metrics.add_producer(producer)
    prometheus_client.start_http_server(9100)

The page ``docs/topics/metrics.rst`` lists the metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from nsqclient.contrib.metrics_registry import Family, MetricsRegistry
from nsqclient.runtime.histogram import HistogramSnapshot


class NSQCollector(MetricsRegistry, Collector):
    """Exports its consumers and producers at each scrape.

    Args:
        registry: the registry to register with; None: none.

    Life and threads: as :class:`~nsqclient.contrib.metrics_registry.MetricsRegistry`.
    """

    def __init__(self, registry: CollectorRegistry | None = REGISTRY) -> None:
        super().__init__()
        if registry is not None:
            registry.register(self)

    def describe(self) -> list[Metric]:
        """For the registry: the names, without samples."""
        return list(map(metric_of, MetricsRegistry().families()))

    def collect(self) -> Iterator[Metric]:
        """For the registry: every family with its present samples."""
        for family in self.families():
            yield metric_of(family)


def metric_of(family: Family) -> Metric:
    """Return a family as prometheus_client has it."""
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in family.samples:
            assert isinstance(value, HistogramSnapshot)
            names = [*map(floatToGoString, value.bounds), "+Inf"]
            histogram.add_metric(labels, list(zip(names, value.cumulative())), value.sum)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        assert not isinstance(value, HistogramSnapshot)
        metric.add_metric(labels, value)
    return metric


def render(families: Iterable[Family]) -> tuple[str, bytes]:
    """Return the content type and the text of a scrape."""

    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            return map(metric_of, families)

    registry = CollectorRegistry()
    registry.register(Once())
    return CONTENT_TYPE_LATEST, generate_latest(registry)
