"""The options that nsqd shows under /config/, by nsqd's names and in nsqd's units."""

from __future__ import annotations

from typing import Any

from nsqclient.devserver.options import NsqdOptions

#: Options that the embedded server does not have; nsqd's own values for them.
_FIXED: dict[str, Any] = {
    "log_prefix": "[nsqd] ",
    "https_address": "",
    "http_client_connect_timeout": 2_000_000_000,
    "http_client_request_timeout": 5_000_000_000,
    "max_bytes_per_file": 104_857_600,
    "sync_every": 2500,
    "sync_timeout": 2_000_000_000,
    "queue_scan_worker_pool_max": 4,
    "queue_scan_selection_count": 20,
    "statsd_address": "",
    "statsd_prefix": "",
    "statsd_interval": 60_000_000_000,
    "statsd_mem_stats": True,
    "statsd_udp_packet_size": 508,
    "statsd_exclude_ephemeral": False,
    "e2e_processing_latency_window_time": 600_000_000_000,
    "e2e_processing_latency_percentiles": [],
}

_TLS_VERSIONS = {"tls1.0": 769, "tls1.1": 770, "tls1.2": 771, "tls1.3": 772}
_AS_THEY_ARE = (
    "deflate",
    "snappy",
    "tls_cert",
    "tls_key",
    "tls_client_auth_policy",
    "tls_root_ca_file",
)
_DURATIONS = (
    "msg_timeout",
    "max_msg_timeout",
    "max_req_timeout",
    "max_heartbeat_interval",
    "max_output_buffer_timeout",
    "min_output_buffer_timeout",
    "output_buffer_timeout",
)
_NUMBERS = (
    "mem_queue_size",
    "max_msg_size",
    "max_body_size",
    "max_rdy_count",
    "max_output_buffer_size",
    "max_channel_consumers",
    "max_deflate_level",
)


def values(options: NsqdOptions) -> dict[str, Any]:
    """Return all options that do not change while nsqd runs, durations in ns."""
    return {
        **_FIXED,
        **{name: getattr(options, name) for name in (*_NUMBERS, *_AS_THEY_ARE)},
        **{name: round(getattr(options, name) * 1e9) for name in _DURATIONS},
        "auth_http_addresses": list(options.auth_http_addresses),
        "tls_required": int(options.tls_policy),
        "tls_min_version": _TLS_VERSIONS[options.tls_min_version],
        "id": options.node_id,
        "data_path": options.data_path or "",
        "broadcast_address": options.broadcast_address,
    }
