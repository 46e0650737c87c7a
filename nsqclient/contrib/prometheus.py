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

from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from nsqclient.contrib.samples import Family, Watch
from nsqclient.runtime.histogram import HistogramSnapshot


class NSQCollector(Watch, Collector):
    """Shows what was added to it, each time Prometheus asks; nothing is counted twice.

    Args:
        registry: where it registers; None: it registers nowhere.

    Life and threads: as :class:`~nsqclient.contrib.samples.Watch`.
    """

    def __init__(self, registry: CollectorRegistry | None = REGISTRY) -> None:
        super().__init__()
        if registry is not None:
            registry.register(self)

    def describe(self) -> list[Metric]:
        """For the registry: the names, without samples."""
        return list(map(_metric, Watch().families()))

    def collect(self) -> Iterator[Metric]:
        """For the registry: every family with what it has now."""
        for family in self.families():
            yield _metric(family)


def _metric(family: Family) -> Metric:
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
