"""``check_stats``: checks the types of ``/stats`` without building values of it. Pure.

``Stats.read`` would do that as well, and takes six times as long: the admin page reads a few fields
of very many topics, every few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqclient.http.fields import Malformed

_LATENCY = "e2e_processing_latency"
_DEPTHS = {"depth": int, "backend_depth": int, "message_count": int, "paused": bool, _LATENCY: dict}
_TOPIC = {**_DEPTHS, "topic_name": str, "message_bytes": int, "channels": list}
_CHANNEL = {
    **_DEPTHS, "channel_name": str, "in_flight_count": int, "deferred_count": int,
    "requeue_count": int, "timeout_count": int, "client_count": int, "clients": list,
}
_CLIENT = {
    **dict.fromkeys((
        "remote_address", "version", "client_id", "hostname", "user_agent", "auth_identity",
        "auth_identity_url", "tls_cipher_suite", "tls_version", "tls_negotiated_protocol",
    ), str),
    **dict.fromkeys((
        "in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count",
        "sample_rate", "connect_ts",
    ), int),
    **dict.fromkeys((
        "deflate", "snappy", "authed", "tls", "tls_negotiated_protocol_is_mutual",
    ), bool),
    "pub_counts": list,
}
_PUBLISHED = {"topic": str, "count": int}
_DISTRIBUTION = {"count": int, "percentiles": list}
_PERCENTILE = {"quantile": float, "value": float}


def check_stats(data: object) -> dict[str, Any]:
    """Return ``/stats`` when every field that nsqd 1.3.0 has is missing, null or of its type.

    No number of nsqd's is negative, save how many messages a client has in flight: where a channel
    is emptied while a FIN arrives, nsqd counts one too few.

    Raises:
        Malformed: it is not.
    """
    answer = _checked(data, {"topics": list, "producers": list}, "its answer")
    for topic in _each(answer, "topics", _TOPIC):
        _check_latency(topic)
        for channel in _each(topic, "channels", _CHANNEL):
            _check_latency(channel)
            for client in _each(channel, "clients", _CLIENT):
                _each(client, "pub_counts", _PUBLISHED)
    for client in _each(answer, "producers", _CLIENT):
        _each(client, "pub_counts", _PUBLISHED)
    # nsqd says null where there are none.
    return {**answer, "topics": answer.get("topics") or []}


def _check_latency(values: dict[str, Any]) -> None:
    if values.get(_LATENCY) is not None:
        _each(_checked(values[_LATENCY], _DISTRIBUTION, _LATENCY), "percentiles", _PERCENTILE)


def _each(values: dict[str, Any], name: str, kinds: Mapping[str, type]) -> list[dict[str, Any]]:
    items = values.get(name) or ()
    return [_checked(item, kinds, f"a member of {name}") for item in items]


def _checked(values: object, kinds: Mapping[str, type], what: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise Malformed(f"{what} is no JSON object: {values!r:.200}")
    for name, kind in kinds.items():
        value = values.get(name)
        # Exactly: JSON's true is an int to Python. A whole number is a float that Go wrote short.
        if value is not None and type(value) is not kind and not (
                kind is float and type(value) is int):
            raise Malformed(f"{name} of {what} is {value!r:.200}")
        if kind is int and isinstance(value, int) and value < 0 and (
                name != "in_flight_count" or kinds is not _CLIENT):
            raise Malformed(f"{name} of {what} is negative: {value}")
    return values
