"""Metrics and traces for the libraries of the field: ``prometheus_client`` and OpenTelemetry.

``prometheus`` has the collector of clients, of the worker and of everything that builds on them,
``spark`` the metrics of shards, ``opentelemetry`` the spans.
"""

from __future__ import annotations

from nsqclient.errors import ConfigError


def check_prometheus(flag: str) -> None:
    """Check that ``prometheus_client`` is installed.

    Args:
        flag: that needs it.

    Raises:
        ConfigError: it is not.
    """
    try:
        import prometheus_client  # noqa: F401 - whether it is there
    except ImportError as exc:
        raise ConfigError(
            f"{flag} needs prometheus_client: pip install 'nsqclient[prometheus]'") from exc
