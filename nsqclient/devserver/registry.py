"""nsqlookupd's registry: the producers of topics and channels. Pure; ``now`` is an argument.

Rules of nsqlookupd 1.3.0, quirks included: topics and channels stay when their last producer
leaves (save ephemeral ones that are unregistered), and ``*`` as a topic matches them all.
Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nsqclient.devserver.protocol.lookupd import Identity
from nsqclient.protocol.names import is_ephemeral

WILDCARD = "*"


@dataclass
class PeerInfo:
    """One connected nsqd, after its IDENTIFY.

    ``id`` is its remote address, ``last_update`` the time of IDENTIFY or of its last PING, in
    seconds since the epoch.
    """

    id: str
    identity: Identity
    last_update: float

    @property
    def node(self) -> str:
        """``broadcast_address:http_port``, the name in /topic/tombstone."""
        return f"{self.identity.broadcast_address}:{self.identity.http_port}"


class Registration(NamedTuple):
    """A key of the registry: ("client", "", ""), ("topic", t, "") or ("channel", t, c)."""

    category: str
    topic: str
    channel: str

    def matches(self, category: str, topic: str, channel: str) -> bool:
        """Whether it matches; ``*`` stands for any topic or channel."""
        return (
            self.category == category
            and topic in (WILDCARD, self.topic)
            and channel in (WILDCARD, self.channel)
        )


_CLIENT = Registration("client", "", "")


@dataclass
class Producer:
    """A peer under one registration; the tombstone of the pair ends with the connection."""

    peer: PeerInfo
    tombstoned_at: float | None = None

    def is_tombstoned(self, now: float, lifetime: float) -> bool:
        """Whether it has a tombstone younger than ``lifetime``."""
        return self.tombstoned_at is not None and now - self.tombstoned_at < lifetime


class TopicLookup(NamedTuple):
    """The response of /lookup."""

    channels: list[str]
    producers: list[PeerInfo]


class ProducerTopics(NamedTuple):
    """One producer in the response of /nodes; ``tombstones`` is parallel to ``topics``."""

    peer: PeerInfo
    topics: list[str]
    tombstones: list[bool]


class Registry:
    """All registrations of one nsqlookupd.

    Args:
        inactive_producer_timeout: seconds after its last PING when a producer is hidden.
        tombstone_lifetime: seconds that a tombstone hides a producer of a topic from /lookup.
    """

    def __init__(self, inactive_producer_timeout: float, tombstone_lifetime: float) -> None:
        self._inactive_timeout = inactive_producer_timeout
        self._tombstone_lifetime = tombstone_lifetime
        self._entries: dict[Registration, dict[str, Producer]] = {}

    # -- commands of nsqd, over TCP

    def identify(self, peer: PeerInfo) -> None:
        """Add a peer without topics."""
        self._add(_CLIENT, peer)

    def register(self, peer: PeerInfo, topic: str, channel: str | None) -> None:
        """Add the peer to the topic and, where given, the channel."""
        if channel is not None:
            self._add(Registration("channel", topic, channel), peer)
        self._add(Registration("topic", topic, ""), peer)

    def unregister(self, peer: PeerInfo, topic: str, channel: str | None) -> None:
        """Remove the peer from the channel, or from the topic and all its channels."""
        if channel is not None:
            self._remove(Registration("channel", topic, channel), peer, channel)
            return
        for key in self._find("channel", topic, WILDCARD):
            self._entries[key].pop(peer.id, None)
        self._remove(Registration("topic", topic, ""), peer, topic)

    def drop(self, peer: PeerInfo) -> None:
        """Remove a peer whose connection closed; the keys stay, ephemeral ones too."""
        for entries in self._entries.values():
            entries.pop(peer.id, None)

    # -- changes by users, over HTTP

    def create(self, topic: str, channel: str | None = None) -> None:
        """Add a topic, or a channel and its topic, without producers."""
        if channel is not None:
            self._entries.setdefault(Registration("channel", topic, channel), {})
        self._entries.setdefault(Registration("topic", topic, ""), {})

    def delete_topic(self, topic: str) -> None:
        """Remove a topic and its channels, if there is one."""
        for key in [*self._find("channel", topic, WILDCARD), *self._find("topic", topic, "")]:
            del self._entries[key]

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Remove a channel; False when there is none."""
        return self._entries.pop(Registration("channel", topic, channel), None) is not None

    def tombstone(self, topic: str, node: str, now: float) -> None:
        """Hide the producer at ``node`` (broadcast_address:http_port) from /lookup of a topic."""
        for entry in self._producers("topic", topic):
            if entry.peer.node == node:
                entry.tombstoned_at = now

    # -- queries by users, over HTTP

    def topics(self) -> list[str]:
        """All topics."""
        return [key.topic for key in self._find("topic", WILDCARD, "")]

    def channels(self, topic: str) -> list[str]:
        """All channels of a topic; none when it is unknown."""
        return [key.channel for key in self._find("channel", topic, WILDCARD)]

    def lookup(self, topic: str, now: float) -> TopicLookup | None:
        """A topic's channels and live, not tombstoned producers; None when it is unknown."""
        if not self._find("topic", topic, ""):
            return None
        producers = [
            entry.peer
            for entry in self._producers("topic", topic)
            if self._is_active(entry, now)
            and not entry.is_tombstoned(now, self._tombstone_lifetime)
        ]
        return TopicLookup(self.channels(topic), producers)

    def nodes(self, now: float) -> list[ProducerTopics]:
        """All live producers with their topics, and which of them are tombstoned."""
        nodes = []
        for client in self._producers("client", ""):
            if not self._is_active(client, now):
                continue
            topics, tombstones = [], []
            for key in self._find("topic", WILDCARD, ""):
                entry = self._entries[key].get(client.peer.id)
                if entry is not None:
                    topics.append(key.topic)
                    tombstones.append(entry.is_tombstoned(now, self._tombstone_lifetime))
            nodes.append(ProducerTopics(client.peer, topics, tombstones))
        return nodes

    def entries(self) -> list[tuple[Registration, list[Producer]]]:
        """All producers by registration, for /debug."""
        return [(key, list(entries.values())) for key, entries in self._entries.items()]

    def _add(self, key: Registration, peer: PeerInfo) -> None:
        # A second REGISTER changes nothing: a tombstone outlives it.
        self._entries.setdefault(key, {}).setdefault(peer.id, Producer(peer))

    def _remove(self, key: Registration, peer: PeerInfo, name: str) -> None:
        entries = self._entries.get(key)
        if entries is None:
            return
        entries.pop(peer.id, None)
        if not entries and is_ephemeral(name):
            del self._entries[key]

    def _find(self, category: str, topic: str, channel: str) -> list[Registration]:
        return [key for key in self._entries if key.matches(category, topic, channel)]

    def _producers(self, category: str, topic: str) -> list[Producer]:
        """The producers of a key, each peer once (``*`` matches several keys)."""
        found: dict[str, Producer] = {}
        for key in self._find(category, topic, ""):
            for peer_id, entry in self._entries[key].items():
                found.setdefault(peer_id, entry)
        return list(found.values())

    def _is_active(self, entry: Producer, now: float) -> bool:
        return now - entry.peer.last_update <= self._inactive_timeout
