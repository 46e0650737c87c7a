"""Metrics and traces for ``prometheus_client`` and OpenTelemetry."""

from __future__ import annotations

from nsqclient.errors import ConfigError


def check_prometheus(flag: str) -> None:
    """Raise ConfigError if ``prometheus_client``, which a flag needs, is not installed."""
    try:
        import prometheus_client  # noqa: F401 - whether it is there
    except ImportError as exc:
        raise ConfigError(
            f"{flag} needs prometheus_client: pip install 'nsqclient[prometheus]'") from exc
