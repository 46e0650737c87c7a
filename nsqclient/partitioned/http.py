"""The HTTP APIs of a partitioned nsqd and nsqlookupd that differ from the stock ones.

Source: ``nsqlookupd/http.go`` and ``nsqd/http.go`` of youzan/nsq 0.3.7-HA. Keys of partitions and
the ports in ``/listlookup`` are strings, and the map of partitions may be incomplete, empty or
null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nsqclient.http.models import Lookup, Producer, TopicStats
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.http.nsqlookupd import NsqlookupdHTTP, read_readable, warn_of
from nsqclient.partitioned.stats import QUERY_ARGUMENT, led_topics
from nsqclient.protocol.extensions import MAX_PARTITION, check_partition
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.protocol.partitioned.lookup_table import TopicMeta
from nsqclient.protocol.peer_json import InvalidField, JsonReader
from nsqclient.runtime.addresses import format_address, is_host, parse_uint

#: The longest partition number or port that is converted; its range is checked afterwards.
_DIGITS = 10


@dataclass(frozen=True)
class PartitionedLookup(Lookup):
    """``/lookup`` of an nsqlookupd of either kind."""

    #: Partition -> the nsqd that leads it; None from a stock nsqlookupd.
    partitions: Mapping[int, Producer] | None = None
    meta: TopicMeta | None = None  #: None if it was not asked for

    @property
    def is_stock(self) -> bool:
        """Whether a stock nsqlookupd has answered."""
        return self.partitions is None


@dataclass(frozen=True)
class LookupdNode:
    """One nsqlookupd in ``/listlookup``."""

    address: str  #: ``host:port`` of its HTTP API
    is_leader: bool


class PartitionedNsqlookupdHTTP(NsqlookupdHTTP):
    """The HTTP API of one nsqlookupd of either kind; see the base class."""

    def lookup(self, topic: str, access: str = "") -> PartitionedLookup:
        """Ask which nsqds have a topic, for its channels, and for the leaders of its partitions.

        Args:
            access: "r" or "w": ask only for the partitions that can be read or written, and for the
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

    def list_lookupds(self) -> tuple[LookupdNode, ...]:
        """Ask for the nsqlookupds of the cluster; empty without a coordinator.

        Raises:
            NSQHTTPStatusError: 404: a stock one.
        """
        return self._read("listlookup", self._ask_json("listlookup", may_be_empty=True),
                          read_lookupds)


class PartitionedNsqdHTTP(NsqdHTTP):
    """The HTTP API of one nsqd of either kind; see the base class."""

    def led_topics(self, topic: str) -> dict[int, TopicStats]:
        """Ask for the counters of the partitions of a topic that this nsqd leads."""
        return led_topics(self.stats_json(topic, include_clients=False), topic)

    def create_partition_channel(self, topic: str, partition: int, channel: str) -> None:
        """Create a channel of one partition, which this nsqd leads; it may exist already.

        A new channel begins at the end.

        Raises:
            NSQHTTPStatusError: 404 E_TOPIC_NOT_EXIST, 400 E_FAILED_ON_NOT_LEADER; 403 for a topic
                whose channels must be registered.
        """
        self.create_channel(topic, channel, _query(partition))

    def set_channel_offset(self, topic: str, partition: int, channel: str, start: str) -> None:
        """Have a channel of one partition read from somewhere else.

        Args:
            start: the text of a :class:`~nsqclient.partitioned.StartPosition`.

        Raises:
            NSQHTTPStatusError: as ``create_partition_channel``; 404 CHANNEL_NOT_FOUND.
        """
        self._send("POST", "channel/setoffset", {
            "topic": check_topic(topic), "channel": check_channel(channel), **_query(partition)},
            start.encode())

    def count_partition_consumers(self, topic: str, partition: int, channel: str) -> int:
        """Ask how many consumers a channel of one partition has."""
        found = self.led_topics(topic).get(partition)
        one = None if found is None else found.channel(channel)
        return 0 if one is None else one.client_count


def _query(partition: int) -> dict[str, str]:
    return {QUERY_ARGUMENT: str(check_partition(partition))}


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
    """Read the metadata of a topic; None if there is none.

    Raises:
        InvalidField: a topic cannot have that many partitions.
    """
    if not fields.has("meta"):
        return None
    meta = fields.object("meta")
    count = meta.number("partition_num")
    if not 0 <= count <= MAX_PARTITION + 1:
        raise InvalidField(f"its partition_num is {count}: 0 to {MAX_PARTITION + 1} can be")
    return TopicMeta(
        partition_num=count, replica=meta.number("replica"),
        ordered=meta.flag("ordered"), extended=meta.flag("extend_support"),
        multi_part=meta.flag("multi_part"),
        channels_are_registered=meta.flag("disable_channel_auto_create"),
    )


def read_lookupds(data: Any) -> tuple[LookupdNode, ...]:
    """Read ``/listlookup``; empty for an nsqlookupd without a coordinator, which sends null."""
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
            is_leader = bool(leader) and node.text("ID") == leader
            found.append(LookupdNode(format_address(host, port), is_leader))
        else:
            warn_of("nsqlookupd: %.200r:%.20s", host, node.text("HttpPort"))
    return tuple(found)
