"""Responses of nsqd and nsqlookupd as immutable values.

A field that a server does not send is 0, empty or false.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsqclient.protocol.peer_json import InvalidField, JsonReader
from nsqclient.runtime.addresses import format_address, ip_version, is_host


@dataclass(frozen=True)
class NsqdInfo:
    version: str
    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int


@dataclass(frozen=True)
class ClientStats:
    """One connection to nsqd."""

    client_id: str
    hostname: str
    remote_address: str
    user_agent: str
    ready_count: int
    in_flight_count: int
    message_count: int
    finish_count: int
    requeue_count: int


def _depth(found: JsonReader) -> int:
    """After a crash nsqd 1.3.0 may report a negative depth."""
    return max(0, found.number("depth"))


@dataclass(frozen=True)
class ChannelStats:
    name: str
    depth: int  #: waiting messages, in memory and on disk
    backend_depth: int  #: those on disk
    in_flight_count: int
    deferred_count: int
    message_count: int  #: since nsqd's start
    requeue_count: int
    timeout_count: int
    client_count: int
    paused: bool
    clients: tuple[ClientStats, ...]

    @classmethod
    def read(cls, found: JsonReader) -> ChannelStats:
        clients = tuple(item.build(ClientStats) for item in found.objects("clients"))
        return found.build(
            cls, name=found.text("channel_name"), depth=_depth(found), clients=clients)


@dataclass(frozen=True)
class TopicStats:
    """One topic. Its own depth is 0 while channels take its messages."""

    name: str
    depth: int
    backend_depth: int
    message_count: int  #: since nsqd's start
    message_bytes: int
    paused: bool
    channels: tuple[ChannelStats, ...]

    @property
    def waits_for_channel(self) -> bool:
        """True if messages wait for a first channel, which takes them."""
        return self.depth > 0 and not self.channels

    def channel(self, name: str) -> ChannelStats | None:
        return next((channel for channel in self.channels if channel.name == name), None)

    @classmethod
    def read(cls, found: JsonReader) -> TopicStats:
        channels = tuple(ChannelStats.read(item) for item in found.objects("channels"))
        return found.build(
            cls, name=found.text("topic_name"), depth=_depth(found), channels=channels)


@dataclass(frozen=True)
class Stats:
    version: str
    health: str  #: ``OK``, or the error
    topics: tuple[TopicStats, ...]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(topic.name for topic in self.topics))

    def topic(self, name: str) -> TopicStats | None:
        return next((topic for topic in self.topics if topic.name == name), None)

    @classmethod
    def read(cls, found: JsonReader) -> Stats:
        return found.build(
            cls, topics=tuple(TopicStats.read(item) for item in found.objects("topics")))


@dataclass(frozen=True)
class LookupdInfo:
    version: str


@dataclass(frozen=True)
class Producer:
    """An nsqd that is registered with nsqlookupd. Its ports may be unreachable."""

    remote_address: str  #: address of its connection to nsqlookupd
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str

    @property
    def problem(self) -> str:
        """The reason why its address cannot be dialed, or ""."""
        host = self.broadcast_address
        if not host or is_host(host) and (":" not in host or ip_version(host) == 6):
            return ""
        return (f"nsqd on {self.hostname or 'an unknown host'} announces the broadcast address"
                f" {host!r:.200}, which is not a host name or IP address: start"
                " it with another --broadcast-address")

    @property
    def tcp_address(self) -> str:
        return format_address(self.broadcast_address, self.tcp_port)

    @property
    def http_address(self) -> str:
        """The node of ``tombstone_topic``."""
        return format_address(self.broadcast_address, self.http_port)

    @classmethod
    def read(cls, found: JsonReader) -> Producer:
        ports = found.number("tcp_port"), found.number("http_port")
        if not all(0 <= port < 65536 for port in ports):
            raise InvalidField(f"producer has the ports {ports!r:.100}")
        return found.build(cls)


@dataclass(frozen=True)
class Lookup:
    """``/lookup``: the channels of a topic, and the nsqds that have it."""

    channels: tuple[str, ...]
    producers: tuple[Producer, ...]


@dataclass(frozen=True)
class Node:
    """One nsqd in ``/nodes``, with its topics."""

    producer: Producer
    topics: tuple[str, ...]
    tombstoned: tuple[str, ...]  #: its topics that lookups currently hide

    @classmethod
    def read(cls, found: JsonReader) -> Node:
        topics = found.texts("topics")
        marks = found.flags("tombstones")
        return cls(
            Producer.read(found), topics,
            tuple(topic for topic, mark in zip(topics, marks) if mark),
        )
