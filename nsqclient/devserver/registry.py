"""nsqlookupd's registry: the producers of topics and channels. Pure; ``now`` is an argument.

Rules of nsqlookupd 1.3.0: topics and channels stay when their last producer leaves, save ephemeral
ones that are unregistered. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nsqclient.devserver.protocol.lookupd import Identity
from nsqclient.protocol.names import is_ephemeral


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


@dataclass
class Producer:
    """A peer under one topic; the tombstone of the pair ends with the connection."""

    peer: PeerInfo
    tombstoned_at: float | None = None

    def is_tombstoned(self, now: float, lifetime: float) -> bool:
        """Whether it has a tombstone younger than ``lifetime``."""
        return self.tombstoned_at is not None and now - self.tombstoned_at < lifetime


@dataclass
class _Topic:
    """Producers by their peers' ids: of the topic, and of each channel."""

    producers: dict[str, Producer] = field(default_factory=dict)
    channels: dict[str, dict[str, Producer]] = field(default_factory=dict)


class Registry:
    """All registrations of one nsqlookupd.

    Args:
        inactive_producer_timeout: seconds after its last PING when a producer is hidden.
        tombstone_lifetime: seconds that a tombstone hides a producer of a topic from /lookup.
    """

    def __init__(self, inactive_producer_timeout: float, tombstone_lifetime: float) -> None:
        self._inactive_timeout = inactive_producer_timeout
        self._tombstone_lifetime = tombstone_lifetime
        self._peers: dict[str, PeerInfo] = {}
        self._topics: dict[str, _Topic] = {}

    # -- commands of nsqd, over TCP

    def identify(self, peer: PeerInfo) -> None:
        """Add a peer without topics."""
        self._peers[peer.id] = peer

    def register(self, peer: PeerInfo, topic: str, channel: str | None) -> None:
        """Add the peer to the topic and, where given, the channel."""
        self.create(topic, channel)
        entry = self._topics[topic]
        # A second REGISTER changes nothing: a tombstone outlives it.
        entry.producers.setdefault(peer.id, Producer(peer))
        if channel is not None:
            entry.channels[channel].setdefault(peer.id, Producer(peer))

    def unregister(self, peer: PeerInfo, topic: str, channel: str | None) -> None:
        """Remove the peer from the channel, or from the topic and all its channels."""
        entry = self._topics.get(topic, _Topic())
        if channel is None:
            for producers in (entry.producers, *entry.channels.values()):
                producers.pop(peer.id, None)
            if is_ephemeral(topic) and not entry.producers:
                self.delete_topic(topic)
        elif channel in entry.channels:
            entry.channels[channel].pop(peer.id, None)
            if is_ephemeral(channel) and not entry.channels[channel]:
                del entry.channels[channel]

    def drop(self, peer: PeerInfo) -> None:
        """Remove a peer whose connection closed; the names stay, ephemeral ones too."""
        self._peers.pop(peer.id, None)
        for topic in self._topics.values():
            for producers in (topic.producers, *topic.channels.values()):
                producers.pop(peer.id, None)

    # -- changes by users, over HTTP

    def create(self, topic: str, channel: str | None = None) -> None:
        """Add a topic, or a channel and its topic, without producers."""
        entry = self._topics.setdefault(topic, _Topic())
        if channel is not None:
            entry.channels.setdefault(channel, {})

    def delete_topic(self, topic: str) -> None:
        """Remove a topic and its channels, if there is one."""
        self._topics.pop(topic, None)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Remove a channel; False if it does not exist."""
        entry = self._topics.get(topic, _Topic())
        return entry.channels.pop(channel, None) is not None

    def tombstone(self, topic: str, node: str, now: float) -> None:
        """Hide the producer at ``node`` (broadcast_address:http_port) from /lookup of a topic."""
        for producer in self._topics.get(topic, _Topic()).producers.values():
            if producer.peer.node == node:
                producer.tombstoned_at = now

    # -- queries by users, over HTTP

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._topics)

    def channels(self, topic: str) -> list[str]:
        """All channels of a topic; none when it is unknown."""
        return list(self._topics.get(topic, _Topic()).channels)

    def lookup(self, topic: str, now: float) -> tuple[list[str], list[PeerInfo]] | None:
        """A topic's channels and live, not tombstoned producers; None when it is unknown."""
        if topic not in self._topics:
            return None
        return self.channels(topic), [
            producer.peer for producer in self._topics[topic].producers.values()
            if self._is_active(producer.peer, now)
            and not producer.is_tombstoned(now, self._tombstone_lifetime)
        ]

    def nodes(self, now: float) -> list[tuple[PeerInfo, dict[str, bool]]]:
        """All live producers, each with its topics: name -> whether it is tombstoned."""
        return [
            (peer, {
                name: topic.producers[peer.id].is_tombstoned(now, self._tombstone_lifetime)
                for name, topic in self._topics.items() if peer.id in topic.producers
            })
            for peer in self._peers.values() if self._is_active(peer, now)
        ]

    def _is_active(self, peer: PeerInfo, now: float) -> bool:
        return now - peer.last_update <= self._inactive_timeout
