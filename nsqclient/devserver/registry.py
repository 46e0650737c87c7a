"""nsqlookupd's registry: who has which topic and channel. Pure; ``now`` is an argument.

Rules of nsqlookupd 1.3.0, quirks included: topics and channels stay when their last producer
leaves (save ephemeral ones that are unregistered), and ``*`` as a topic matches them all.
Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nsqclient.protocol.lookupd import Identity
from nsqclient.protocol.names import is_ephemeral

WILDCARD = "*"


@dataclass
class Peer:
    """One nsqd connection that has identified itself.

    ``id`` is its remote address, ``last_update`` the time of IDENTIFY or of its last PING, in
    seconds since the epoch.
    """

    id: str
    identity: Identity
    last_update: float

    @property
    def node(self) -> str:
        """The name that /topic/tombstone uses."""
        return f"{self.identity.broadcast_address}:{self.identity.http_port}"


class Key(NamedTuple):
    """What can be registered: ("client", "", ""), ("topic", t, "") or ("channel", t, c)."""

    category: str
    topic: str
    channel: str

    def matches(self, category: str, topic: str, channel: str) -> bool:
        """Tell whether this key is meant; ``*`` stands for any topic or channel."""
        return (
            self.category == category
            and topic in (WILDCARD, self.topic)
            and channel in (WILDCARD, self.channel)
        )


_CLIENT = Key("client", "", "")


@dataclass
class Entry:
    """A peer under one key. A tombstone belongs to the pair, and dies with the connection."""

    peer: Peer
    tombstoned_at: float | None = None

    def is_tombstoned(self, now: float, lifetime: float) -> bool:
        """Tell whether the tombstone, if any, is still younger than ``lifetime``."""
        return self.tombstoned_at is not None and now - self.tombstoned_at < lifetime


class Lookup(NamedTuple):
    """The answer of /lookup."""

    channels: list[str]
    producers: list[Peer]


class Node(NamedTuple):
    """One producer in the answer of /nodes; ``tombstones`` runs parallel to ``topics``."""

    peer: Peer
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
        self._entries: dict[Key, dict[str, Entry]] = {}

    # -- what nsqd says over TCP

    def identify(self, peer: Peer) -> None:
        """Add a peer that has no topic yet."""
        self._add(_CLIENT, peer)

    def register(self, peer: Peer, topic: str, channel: str | None) -> None:
        """Note that the peer has the topic and, where given, the channel."""
        if channel is not None:
            self._add(Key("channel", topic, channel), peer)
        self._add(Key("topic", topic, ""), peer)

    def unregister(self, peer: Peer, topic: str, channel: str | None) -> None:
        """Note that the peer no longer has the channel, or the topic and all its channels."""
        if channel is not None:
            self._remove(Key("channel", topic, channel), peer, channel)
            return
        for key in self._find("channel", topic, WILDCARD):
            self._entries[key].pop(peer.id, None)
        self._remove(Key("topic", topic, ""), peer, topic)

    def drop(self, peer: Peer) -> None:
        """Forget a peer whose connection closed; the keys stay, ephemeral ones too."""
        for entries in self._entries.values():
            entries.pop(peer.id, None)

    # -- what users say over HTTP

    def create(self, topic: str, channel: str | None = None) -> None:
        """Add a topic, or a channel and its topic, that nobody has yet."""
        if channel is not None:
            self._entries.setdefault(Key("channel", topic, channel), {})
        self._entries.setdefault(Key("topic", topic, ""), {})

    def delete_topic(self, topic: str) -> None:
        """Remove a topic and its channels; a topic that is not there is no error."""
        for key in [*self._find("channel", topic, WILDCARD), *self._find("topic", topic, "")]:
            del self._entries[key]

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Remove a channel; False when there is none."""
        return self._entries.pop(Key("channel", topic, channel), None) is not None

    def tombstone(self, topic: str, node: str, now: float) -> None:
        """Hide the producer at ``node`` (broadcast_address:http_port) from /lookup of a topic."""
        for entry in self._producers("topic", topic):
            if entry.peer.node == node:
                entry.tombstoned_at = now

    # -- what users ask over HTTP

    def topics(self) -> list[str]:
        """All topics."""
        return [key.topic for key in self._find("topic", WILDCARD, "")]

    def channels(self, topic: str) -> list[str]:
        """All channels of a topic; none when it is unknown."""
        return [key.channel for key in self._find("channel", topic, WILDCARD)]

    def lookup(self, topic: str, now: float) -> Lookup | None:
        """A topic's channels and live, not tombstoned producers; None when it is unknown."""
        if not self._find("topic", topic, ""):
            return None
        producers = [
            entry.peer
            for entry in self._producers("topic", topic)
            if self._is_active(entry, now)
            and not entry.is_tombstoned(now, self._tombstone_lifetime)
        ]
        return Lookup(self.channels(topic), producers)

    def nodes(self, now: float) -> list[Node]:
        """All live producers with their topics; tombstoned ones are shown, and marked."""
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
            nodes.append(Node(client.peer, topics, tombstones))
        return nodes

    def entries(self) -> list[tuple[Key, list[Entry]]]:
        """Everything, for /debug."""
        return [(key, list(entries.values())) for key, entries in self._entries.items()]

    def _add(self, key: Key, peer: Peer) -> None:
        # A second REGISTER changes nothing: a tombstone outlives it.
        self._entries.setdefault(key, {}).setdefault(peer.id, Entry(peer))

    def _remove(self, key: Key, peer: Peer, name: str) -> None:
        entries = self._entries.get(key)
        if entries is None:
            return
        entries.pop(peer.id, None)
        if not entries and is_ephemeral(name):
            del self._entries[key]

    def _find(self, category: str, topic: str, channel: str) -> list[Key]:
        return [key for key in self._entries if key.matches(category, topic, channel)]

    def _producers(self, category: str, topic: str) -> list[Entry]:
        """The entries under a key, each peer once (it may stand under several with ``*``)."""
        found: dict[str, Entry] = {}
        for key in self._find(category, topic, ""):
            for peer_id, entry in self._entries[key].items():
                found.setdefault(peer_id, entry)
        return list(found.values())

    def _is_active(self, entry: Entry, now: float) -> bool:
        return now - entry.peer.last_update <= self._inactive_timeout
