"""Adds up the statistics of all nsqds, with the field names of nsqadmin 1.3.0. No I/O.

The input is the ``/stats`` response of each nsqd. A missing number counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nsqclient.display import LONGEST_TEXT, printable

Values = Mapping[str, Any]

_CLIENT_TEXTS = (
    "remote_address", "version", "client_id", "hostname", "user_agent", "auth_identity",
    "auth_identity_url", "tls_cipher_suite", "tls_version", "tls_negotiated_protocol",
)
_CLIENT_NUMBERS = (
    "connect_ts", "in_flight_count", "ready_count", "finish_count", "requeue_count",
    "message_count", "sample_rate",
)
_CLIENT_FLAGS = (
    "deflate", "snappy", "authed", "tls", "tls_negotiated_protocol_is_mutual",
)
_CHANNEL_COUNTS = (
    "in_flight_count", "deferred_count", "requeue_count", "timeout_count", "message_count",
    "client_count",
)
_DEPTHS = ("depth", "memory_depth", "backend_depth")


class Source(NamedTuple):
    node: str
    hostname: str
    values: Values


def number(values: Values, name: str) -> int:
    """Return a count of a JSON object; 0 if it is missing, negative, or not a whole number."""
    value = values.get(name)
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0


def fraction(values: Values, name: str) -> float:
    """Return a number of a JSON object; 0 if it is missing or not a number."""
    value = values.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def text(values: Values, name: str) -> str:
    """Return a printable string of a JSON object; empty if it is missing or not a string."""
    value = values.get(name)
    return printable(value, LONGEST_TEXT) if isinstance(value, str) else ""


def objects(values: Values, name: str) -> list[Values]:
    """Return the objects of a list in a JSON object; none if it is missing or null."""
    value = values.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def topic_on_node(part: Source, now: float) -> dict[str, Any]:
    name = text(part.values, "topic_name")
    return {
        **_on_node(part, name),
        "message_count": number(part.values, "message_count"),
        "channels": [
            channel_on_node(Source(part.node, part.hostname, channel), name, now)
            for channel in objects(part.values, "channels")
        ],
    }


def channel_on_node(part: Source, topic: str, now: float) -> dict[str, Any]:
    values = part.values
    return {
        **_on_node(part, topic),
        "channel_name": text(values, "channel_name"),
        **{name: number(values, name) for name in _CHANNEL_COUNTS},
        "clients": None if values.get("clients") is None else [
            _client(client, part.node, now) for client in objects(values, "clients")
        ],
    }


def _on_node(part: Source, topic: str) -> dict[str, Any]:
    depth, on_disk = number(part.values, "depth"), number(part.values, "backend_depth")
    return {
        "node": part.node, "hostname": part.hostname, "topic_name": topic, "depth": depth,
        "memory_depth": depth - on_disk, "backend_depth": on_disk, "nodes": None,
        "paused": part.values.get("paused") is True,
        "e2e_processing_latency": _latency(part.values),
    }


def merge_topic(name: str, parts: Iterable[Source], now: float) -> dict[str, Any]:
    nodes = [topic_on_node(part, now) for part in parts]
    channels: dict[str, list[dict[str, Any]]] = {}
    for node in nodes:
        for channel in node["channels"]:
            channels.setdefault(channel["channel_name"], []).append(channel)
    return {
        **_merged(nodes, (*_DEPTHS, "message_count"), name),
        "channels": [merge_channel(found) for _, found in sorted(channels.items())],
    }


def merge_channel(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of a channel over all nsqds that have it, from :func:`channel_on_node`."""
    topic, name = nodes[0]["topic_name"], nodes[0]["channel_name"]
    clients = [client for node in nodes for client in node["clients"] or ()]
    return {
        **_merged(nodes, (*_DEPTHS, *_CHANNEL_COUNTS), topic, name),
        "channel_name": name,
        "clients": sorted(clients, key=lambda client: (client["hostname"], client["node"])),
    }


def _merged(
    nodes: list[dict[str, Any]], counts: Iterable[str], topic: str, channel: str = ""
) -> dict[str, Any]:
    return {
        "node": "*", "hostname": "", "topic_name": topic, "nodes": nodes,
        **{name: sum(node[name] for node in nodes) for name in counts},
        "paused": any(node["paused"] for node in nodes),
        "e2e_processing_latency": _merged_latency(nodes, topic, channel),
    }


def _client(values: Values, node: str, now: float) -> dict[str, Any]:
    return {
        "node": node,
        **{name: text(values, name) for name in _CLIENT_TEXTS},
        **{name: number(values, name) for name in _CLIENT_NUMBERS},
        **{name: values.get(name) is True for name in _CLIENT_FLAGS},
        "connected": max(0, int(now) - number(values, "connect_ts")) * 1_000_000_000,
    }


def _latency(values: Values) -> dict[str, Any]:
    found = values.get("e2e_processing_latency")
    latency: Values = found if isinstance(found, dict) else {}
    count = number(latency, "count")
    percentiles = [
        {
            "quantile": fraction(each, "quantile"), "value": value, "min": value, "max": value,
            "average": value, "count": count,
        }
        for each in objects(latency, "percentiles") for value in [fraction(each, "value")]
    ]
    return {
        "count": count,
        "percentiles": percentiles if isinstance(latency.get("percentiles"), list) else None,
        "topic": "", "channel": "", "host": "",
    }


def _merged_latency(nodes: Sequence[dict[str, Any]], topic: str, channel: str) -> dict[str, Any]:
    """Merge the latencies of several nsqds; averages are weighted by the message counts."""
    found = [node["e2e_processing_latency"] for node in nodes]
    by_quantile: dict[float, list[dict[str, Any]]] = {}
    for latency in found:
        for each in latency["percentiles"] or ():
            by_quantile.setdefault(each["quantile"], []).append(each)
    return {
        "count": sum(latency["count"] for latency in found),
        "percentiles": [
            _merged_percentile(quantile, by_quantile[quantile])
            for quantile in sorted(by_quantile, reverse=True)
        ] or None,
        "topic": topic, "channel": channel, "host": "*",
    }


def _merged_percentile(quantile: float, parts: list[dict[str, Any]]) -> dict[str, Any]:
    count = sum(part["count"] for part in parts)
    total = sum(part["average"] * part["count"] for part in parts)
    return {
        "quantile": quantile,
        "max": max(part["max"] for part in parts),
        "min": min(part["min"] for part in parts),
        "count": count,
        "average": total / count if count else 0,
    }
