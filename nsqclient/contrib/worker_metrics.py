"""The exporter of a worker's metrics, where ``prometheus_client`` is there."""

from __future__ import annotations

from nsqclient.errors import ConfigError
from nsqclient.worker.group import Metrics


def make_worker_metrics() -> Metrics:
    """Return the exporter of a worker.

    Raises:
        ConfigError: ``prometheus_client`` is not installed.
    """
    try:
        from nsqclient.contrib.prometheus import WorkerMetrics
    except ImportError as exc:
        raise ConfigError(
            "--metrics-address needs prometheus_client: pip install 'nsqclient[prometheus]'"
        ) from exc
    return WorkerMetrics()
