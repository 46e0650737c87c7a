"""The ``/stats`` of a partitioned nsqd in the form of a stock one.

A partitioned nsqd reports each partition as a topic of its own, also the copies of partitions that
another nsqd leads. The depth that it reports of a topic is a number of bytes, and the
depth of a channel includes its messages in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nsqclient.http.models import Stats, TopicStats
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.protocol.peer_json import JsonReader
from nsqclient.runtime.addresses import parse_uint

#: The query argument that names a partition in requests to nsqd.
QUERY_ARGUMENT = "partition"
#: Digits of the largest partition number that is read.
_MAX_DIGITS = 4


def fetch_stats(
    nsqd: NsqdHTTP, topic: str | None = None, channel: str | None = None, *,
    include_clients: bool = False,
) -> Stats:
    """Ask for the counters as ``NsqdHTTP.stats`` does, with one entry for each topic."""
    values = nsqd.stats_json(topic, channel, include_clients=include_clients)
    return Stats.read(JsonReader(as_stock(values), "its statistics"))


def led_partitions(stats: Mapping[str, Any], topic: str) -> dict[int, set[str]]:
    """Return the channels of each partition of a topic that the nsqd leads."""
    return {
        number: {channel["channel_name"] for channel in _objects(one, "channels")
                 if isinstance(channel.get("channel_name"), str)}
        for one in _objects(stats, "topics") if one.get("topic_name") == topic
        for number in [_number_of(one)] if number is not None and one.get("is_leader") is True
    }


def led_topics(stats: Mapping[str, Any], topic: str) -> dict[int, TopicStats]:
    """Return the counters of each partition of a topic that the nsqd leads."""
    return {
        number: TopicStats.read(JsonReader(_topic(topic, [one]), "its statistics"))
        for one in _objects(stats, "topics") if one.get("topic_name") == topic
        for number in [_number_of(one)] if number is not None and one.get("is_leader") is True
    }


def as_stock(stats: dict[str, Any]) -> dict[str, Any]:
    """Return ``/stats`` with one entry for each topic: the sum of the partitions it leads there.

    The answer of a stock nsqd is returned as it is.
    """
    topics = _objects(stats, "topics")
    if not any(_number_of(each) is not None for each in topics):
        return stats
    by_name: dict[str, dict[int, Mapping[str, Any]]] = {}
    for each in topics:
        number, name = _number_of(each), each.get("topic_name")
        if number is not None and isinstance(name, str):
            led = by_name.setdefault(name, {})
            if each.get("is_leader") is True:
                led[number] = each
    return {**stats, "topics": [_topic(name, led.values()) for name, led in by_name.items()]}


def _topic(name: str, partitions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    channels: dict[str, list[Mapping[str, Any]]] = {}
    for partition in partitions:
        for channel in _objects(partition, "channels"):
            channels.setdefault(str(channel.get("channel_name")), []).append(channel)
    return {
        **_sum(partitions), "topic_name": name, "depth": 0, "backend_depth": 0,
        "channels": [_channel(each, found) for each, found in channels.items()],
    }


def _channel(name: str, parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    total = _sum(parts)
    waiting = total.get("depth", 0) - total.get("in_flight_count", 0)
    return {
        **total, "channel_name": name, "depth": max(0, waiting), "backend_depth": 0,
        "client_count": total.get("client_num", total.get("client_count", 0)),
        # nsqd keeps messages with a long delay in a queue of its own.
        "deferred_count": total.get("deferred_count", 0) + total.get("delayed_queue_count", 0),
        "clients": [client for part in parts for client in _objects(part, "clients")],
    }


def _sum(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up the whole numbers; ``paused`` is true if one part is paused."""
    total: dict[str, Any] = {"paused": any(part.get("paused") is True for part in parts)}
    for part in parts:
        for key, value in part.items():
            if isinstance(value, int) and not isinstance(value, bool):
                total[key] = total.get(key, 0) + value
    return total


def _number_of(topic: Mapping[str, Any]) -> int | None:
    text = topic.get("topic_partition")
    return parse_uint(text, _MAX_DIGITS) if isinstance(text, str) else None


def _objects(values: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = values.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
