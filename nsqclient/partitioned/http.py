"""The HTTP APIs of a partitioned nsqd and nsqlookupd, where they differ from the stock ones.

``/stats`` lists each partition as a topic, including copies of partitions that another nsqd leads.
The depth of a topic is in bytes, and the depth of a channel includes its messages in flight.
``as_stock`` converts the statistics to those of a stock nsqd. Source: ``nsqlookupd/http.go`` and
``nsqd/http.go`` of youzan/nsq 0.3.7-HA.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqclient.http.models import Lookup, Producer, Stats, TopicStats
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.http.nsqlookupd import NsqlookupdHTTP, read_readable, warn_of
from nsqclient.protocol.partitioned.extensions import MAX_PARTITION, check_partition
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.protocol.partitioned.lookup_table import TopicMeta
from nsqclient.protocol.peer_json import InvalidField, JsonReader
from nsqclient.runtime.addresses import format_address, is_host, parse_uint

#: Maximum digits of a partition number or port.
_DIGITS = 10
#: The query argument that names a partition in requests to nsqd.
QUERY_ARGUMENT = "partition"


@dataclass(frozen=True)
class PartitionedLookup(Lookup):
    #: Partition -> the nsqd that leads it; None from a stock nsqlookupd.
    partitions: Mapping[int, Producer] | None = None
    meta: TopicMeta | None = None  #: None if it was not asked for


class PartitionedNsqlookupdHTTP(NsqlookupdHTTP):
    """The HTTP API of one stock or partitioned nsqlookupd; see the base class."""

    def lookup(self, topic: str, access: str = "") -> PartitionedLookup:
        """Ask for the nsqds, the channels and the leaders of the partitions of a topic.

        Args:
            access: "r" or "w": ask only for partitions that can be read or written, and for the
                topic's metadata. A stock nsqlookupd ignores it.

        Raises:
            NSQHTTPStatusError: 404 TOPIC_NOT_FOUND: no nsqd has registered it.
        """
        params = {"topic": check_topic(topic)}
        if access:
            params |= {"access": access, "metainfo": "true"}
        return self._read("lookup", self._ask_json("lookup", params), self._read_either)

    def _read_either(self, data: Any) -> PartitionedLookup:
        if not (isinstance(data, dict) and ("partitions" in data or "meta" in data)):
            found = self._read_lookup(data)
            return PartitionedLookup(found.channels, found.producers)
        fields = JsonReader(data, "its answer")
        return PartitionedLookup(
            fields.texts("channels"), read_readable(fields, Producer.read),
            read_partitions(fields), read_meta(fields))

    def list_lookupds(self) -> tuple[tuple[str, bool], ...]:
        """Ask for the nsqlookupds of the cluster: (HTTP address, True for the leader).

        A stock nsqlookupd answers 404.
        """
        return self._read("listlookup", self._ask_json("listlookup", may_be_empty=True),
                          read_lookupds)


class PartitionedNsqdHTTP(NsqdHTTP):
    """The HTTP API of one stock or partitioned nsqd; see the base class."""

    def start_channel(self, topic: str, partition: int, channel: str, start: str) -> int:
        """Create the channel of a partition; set its position unless it has consumers.

        Returns: the number of its consumers.

        Raises:
            NSQHTTPStatusError: 404 E_TOPIC_NOT_EXIST, 400 E_FAILED_ON_NOT_LEADER; 403 for a topic
                whose channels must be registered.
        """
        query = {QUERY_ARGUMENT: str(check_partition(partition))}
        self.create_channel(topic, channel, query)
        led = led_topics(self.stats_json(topic, include_clients=False), topic)
        found = led[partition].channel(channel) if partition in led else None
        consumers = 0 if found is None else found.client_count
        if not consumers:
            self._send("POST", "channel/setoffset", {
                "topic": check_topic(topic), "channel": check_channel(channel), **query},
                start.encode())
        return consumers


def read_partitions(fields: JsonReader) -> dict[int, Producer]:
    """Read the leaders of the partitions. Unreadable entries are left out."""
    found = {}
    for key, value in fields.mapping("partitions").items():
        try:
            number = parse_uint(key, _DIGITS)
            if number is None or number > MAX_PARTITION:
                raise InvalidField(f"partition {key!r:.40}")
            found[number] = Producer.read(JsonReader(value, f"partition {key}"))
        except InvalidField as exc:
            warn_of("partition: %s", exc)
    return found


def read_meta(fields: JsonReader) -> TopicMeta | None:
    """Read the metadata of a topic; None if there is none. Raises InvalidField."""
    if not fields.has("meta"):
        return None
    meta = fields.object("meta")
    count = meta.number("partition_num")
    if not 0 <= count <= MAX_PARTITION + 1:
        raise InvalidField(f"its partition_num is {count}: 0 to {MAX_PARTITION + 1} can be")
    return TopicMeta(count, meta.flag("ordered"), meta.flag("extend_support"))


def read_lookupds(data: Any) -> tuple[tuple[str, bool], ...]:
    """Read ``/listlookup``; an nsqlookupd without a coordinator sends null."""
    if data is None:
        return ()
    fields = JsonReader(data, "its answer")
    if not fields.has("lookupdnodes"):
        return ()
    leader = fields.object("lookupdleader").text("ID")
    found = []
    for node in fields.objects("lookupdnodes"):
        host, port = node.text("NodeIP"), parse_uint(node.text("HttpPort"), _DIGITS)
        if is_host(host) and port is not None and 0 < port < 65536:
            found.append((format_address(host, port), node.text("ID") == leader != ""))
        else:
            warn_of("nsqlookupd: %.200r:%.20s", host, node.text("HttpPort"))
    return tuple(found)


def fetch_stats(
    nsqd: NsqdHTTP, topic: str | None = None, channel: str | None = None, *,
    include_clients: bool = False,
) -> Stats:
    values = nsqd.stats_json(topic, channel, include_clients=include_clients)
    return Stats.read(JsonReader(as_stock(values), "its statistics"))


def led_topics(stats: Mapping[str, Any], topic: str) -> dict[int, TopicStats]:
    """Return the counters of each partition of a topic that the nsqd leads."""
    return {
        number: TopicStats.read(JsonReader(_topic(topic, [one]), "its statistics"))
        for one in _objects(stats, "topics") if one.get("topic_name") == topic
        for number in [_number_of(one)] if number is not None and one.get("is_leader") is True
    }


def as_stock(stats: dict[str, Any]) -> dict[str, Any]:
    """Return ``/stats`` with one entry for each topic: the sum of the partitions it leads."""
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
    total: dict[str, Any] = {"paused": any(part.get("paused") is True for part in parts)}
    for part in parts:
        for key, value in part.items():
            if isinstance(value, int) and not isinstance(value, bool):
                total[key] = total.get(key, 0) + value
    return total


def _number_of(topic: Mapping[str, Any]) -> int | None:
    text = topic.get("topic_partition")
    return parse_uint(text, _DIGITS) if isinstance(text, str) else None


def _objects(values: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = values.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
