"""``NsqlookupdHTTP``: the HTTP API of one nsqlookupd, stock or partitioned.

Sources: nsqlookupd 1.3.0, and ``nsqlookupd/http.go`` of youzan/nsq 0.3.7-HA. The latter sends the
keys of partitions and the ports in ``/listlookup`` as strings, and its map of partitions may be
incomplete, empty or null.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from nsqclient.http.models import Lookup, LookupdInfo, LookupdNode, Node, Producer
from nsqclient.http.session import HTTPClient, Server
from nsqclient.http.urls import lookup_url
from nsqclient.protocol.partitioned.lookup_table import TopicMeta
from nsqclient.protocol.extensions import MAX_PARTITION
from nsqclient.protocol.names import check_topic
from nsqclient.protocol.peer_json import InvalidField, JsonReader
from nsqclient.runtime.addresses import format_address, is_host, parse_uint
from nsqclient.runtime.log_lines import LineLimit

logger: logging.Logger = logging.getLogger("nsqclient.http")
_unusable_lines = LineLimit(logger)

T = TypeVar("T")

#: The longest partition number or port that is converted; its range is checked afterwards.
_DIGITS = 10


class NsqlookupdHTTP(HTTPClient):
    """The HTTP API of one nsqlookupd.

    Args:
        address: ``host:port`` or a URL. A path in the URL stands for ``/lookup``, as with
            go-nsq: the other endpoints are beside it.
        config, connect_timeout, timeout, max_answer_size, headers: see
            :class:`~nsqclient.http.session.HTTPClient`.
        bearer_token: sent as ``Authorization: Bearer``. None: the config's ``auth_secret``, where
            ``skip_lookupd_authorization`` (go-nsq's inverted name) is true; empty: nothing.

    Raises:
        ConfigError: no address, or a bad timeout.

    Threads: any, also several at once. Every method raises an NSQHTTPError; see the class.
    """

    _server = Server("nsqlookupd", 4160, 4161, lookup_url, takes_secret=True)

    def info(self) -> LookupdInfo:
        """Ask for its version."""
        return self._ask("info", lambda fields: fields.build(LookupdInfo))

    def lookup(self, topic: str, access: str = "") -> Lookup:
        """Ask which nsqds have a topic, and for its channels.

        Args:
            access: "r" or "w": ask a partitioned nsqlookupd also for the partitions that can be
                read or written, and for the topic's metadata; a stock one ignores it.

        Raises:
            NSQHTTPStatusError: 404 TOPIC_NOT_FOUND: no nsqd has registered it.
        """
        params = {"topic": check_topic(topic)}
        if access:
            params |= {"access": access, "metainfo": "true"}
        return self._read("lookup", self._ask_json("lookup", params), _read_lookup)

    def list_lookupds(self) -> tuple[LookupdNode, ...]:
        """Ask a partitioned nsqlookupd for those of its cluster; empty without a coordinator.

        Raises:
            NSQHTTPStatusError: 404: a stock one.
        """
        return self._read("listlookup", self._ask_json("listlookup", may_be_empty=True),
                          read_lookupds)

    def topics(self) -> tuple[str, ...]:
        """Ask for all topics."""
        return self._ask("topics", lambda fields: fields.texts("topics"))

    def channels(self, topic: str) -> tuple[str, ...]:
        """Ask for the channels of a topic; none for an unknown one."""
        return self._ask(
            "channels", lambda fields: fields.texts("channels"), {"topic": check_topic(topic)}
        )

    def nodes(self) -> tuple[Node, ...]:
        """Ask for every nsqd that is registered."""
        return self._read("nodes", self._ask_json("nodes"),
                          lambda data: _readable(_with_producers(data), Node.read))

    def create_topic(self, topic: str) -> None:
        """Register a topic that no nsqd has yet."""
        self._change("topic/create", topic)

    def delete_topic(self, topic: str) -> None:
        """Drop the registrations of a topic and its channels; the nsqds keep theirs."""
        self._change("topic/delete", topic)

    def create_channel(self, topic: str, channel: str) -> None:
        """Register a channel; each nsqd that makes the topic makes the channel with it."""
        self._change("channel/create", topic, channel)

    def delete_channel(self, topic: str, channel: str) -> None:
        """Drop the registration of a channel.

        Raises:
            NSQHTTPStatusError: 404 CHANNEL_NOT_FOUND.
        """
        self._change("channel/delete", topic, channel)

    def tombstone_topic(self, topic: str, node: str) -> None:
        """Hide one nsqd from lookups of a topic for a while (``--tombstone-lifetime``).

        Args:
            node: its ``broadcast_address:http_port`` (:attr:`Producer.http_address`).
        """
        self._send("POST", "topic/tombstone", {"topic": check_topic(topic), "node": node})


def _read_lookup(data: Any) -> Lookup:
    if is_partitioned(data):
        fields = JsonReader(data, "its answer")
        return Lookup(
            fields.texts("channels"), _readable(fields, Producer.read), read_partitions(fields),
            read_meta(fields),
        )
    fields = _with_producers(data)
    return Lookup(fields.texts("channels"), _readable(fields, Producer.read))


def _with_producers(data: Any) -> JsonReader:
    # Without this check the JSON of something else would read as "no nsqd at all".
    if not (isinstance(data, dict) and isinstance(data.get("producers"), list)):
        raise InvalidField(f"its answer has no list of producers: {data!r:.200}")
    return JsonReader(data, "its answer")


def _readable(fields: JsonReader, read: Callable[[JsonReader], T]) -> tuple[T, ...]:
    """Read the producers, without those that cannot be read."""
    found = []
    for producer in fields.items("producers"):
        try:
            found.append(read(JsonReader(producer, "producer")))
        except InvalidField as exc:
            _warn("producer: %s", exc)
    return tuple(found)


def is_partitioned(data: Any) -> bool:
    """Return whether an answer to ``/lookup`` is one of a partitioned nsqlookupd."""
    return isinstance(data, dict) and ("partitions" in data or "meta" in data)


def read_partitions(fields: JsonReader) -> dict[int, Producer]:
    """Read the leaders of the partitions, without those that cannot be read."""
    found = {}
    for key, value in fields.mapping("partitions").items():
        try:
            number = parse_uint(key, _DIGITS)
            if number is None or number > MAX_PARTITION:
                raise InvalidField(f"partition {key!r:.40}")
            found[number] = Producer.read(JsonReader(value, f"partition {key}"))
        except InvalidField as exc:
            _warn("partition: %s", exc)
    return found


def read_meta(fields: JsonReader) -> TopicMeta | None:
    """Read the metadata of a topic; None where there is none.

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
            _warn("nsqlookupd: %.200r:%.20s", host, node.text("HttpPort"))
    return tuple(found)


def _warn(what: str, *values: object) -> None:
    logger.log(
        _unusable_lines.level(logging.WARNING), "an nsqlookupd lists an unusable " + what, *values)
