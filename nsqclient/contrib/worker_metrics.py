"""``WorkerMetrics``: the Prometheus metrics of a worker, over all of its processes.

Each process takes snapshots of its own counters; the process that answers the scrapes renders
those of all, with the number of the process as the label ``process``. So a counter that begins
again with a new process is a reset that Prometheus knows how to handle. Needs
``prometheus_client``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqclient.contrib.metrics_registry import Family, MetricsRegistry
from nsqclient.errors import ConfigError
from nsqclient.runtime.histogram import HistogramSnapshot
from nsqclient.worker.group import Metrics

_LABEL = "process"


def make_worker_metrics() -> Metrics:
    """Return the exporter of a worker.

    Raises:
        ConfigError: ``prometheus_client`` is not installed.
    """
    try:
        import prometheus_client  # noqa: F401 - whether it is there
    except ImportError as exc:
        raise ConfigError(
            "--metrics-address needs prometheus_client: pip install 'nsqclient[prometheus]'"
        ) from exc
    return WorkerMetrics()


class WorkerMetrics(MetricsRegistry):
    """Counters of one process, and the text of all processes."""

    def snapshot(self) -> object:
        """Return every family as a value for JSON."""
        return [
            [family.name, family.kind, family.help, list(family.labels),
             [[list(labels), _as_json(value)] for labels, value in family.samples]]
            for family in self.families()
        ]

    def render(self, snapshots: Mapping[str, object]) -> tuple[str, bytes]:
        """Return the content type and the text of a scrape, from the snapshots of all processes."""
        # Here, since only the process that answers scrapes needs it.
        from nsqclient.contrib.prometheus import render

        return render(merge(snapshots))


def merge(snapshots: Mapping[str, object]) -> list[Family]:
    """Return the families of several processes, each sample with the label ``process``. Pure."""
    merged: dict[str, Family] = {}
    for process, snapshot in snapshots.items():
        assert isinstance(snapshot, list)
        for name, kind, text, labels, samples in snapshot:
            family = merged.setdefault(name, Family(name, kind, text, (*labels, _LABEL), []))
            family.samples.extend(
                ((*values, process), _from_json(value)) for values, value in samples)
    return list(merged.values())


def _as_json(value: object) -> object:
    if isinstance(value, HistogramSnapshot):
        return {"bounds": value.bounds, "counts": value.counts, "sum": value.sum}
    return value


def _from_json(value: Any) -> float | HistogramSnapshot:
    if isinstance(value, dict):
        return HistogramSnapshot(tuple(value["bounds"]), tuple(value["counts"]), value["sum"])
    return float(value)
