"""nsqlookupd: its protocol with nsqd over TCP, for both ends, and its registry of producers. Pure.

nsqd opens with the magic, then sends lines; every command gets one response, in order::

    nsqd > nsqlookupd   [  V1] [IDENTIFY\\n][4 B size][JSON]   [REGISTER topic channel\\n]  ...
    nsqlookupd > nsqd   [4 B size][data]                       data: JSON, OK, or E_CODE text

Unlike nsqd's frames, a response comes without a type: data that starts with ``E_`` is an error, and
nsqlookupd closes the connection after every error. Texts are nsqlookupd 1.3.0's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from nsqclient.devserver.protocol.commands import CommandError, InvalidJSON, decode_json
from nsqclient.errors import NotNSQError, RemoteProtocolError, server_error
from nsqclient.protocol import peer_json
from nsqclient.protocol.names import is_ephemeral, is_valid_name

MAGIC_V1 = b"  V1"

#: nsqd's identity has a few hundred bytes. The real nsqlookupd has no limit, and a negative size
#: ends its process. Here both are errors before memory is allocated.
MAX_BODY_SIZE = 1024 * 1024
#: A valid REGISTER is shorter: it has two names of up to 64 characters.
MAX_LINE_SIZE = 16 * 1024


class Identity(NamedTuple):
    """The values of IDENTIFY, in both directions."""

    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    version: str

    def to_json(self) -> bytes:
        """Return the compact JSON that goes on the wire, keys in alphabetical order."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


# -- nsqlookupd's end


def read_command(stream: BinaryIO) -> list[str] | None:
    """Read the words of the next command; None at the end, or if a line is too long."""
    line = stream.readline(MAX_LINE_SIZE)
    if not line.endswith(b"\n"):
        return None
    # An invalid name is echoed byte for byte, whatever its encoding.
    return line.strip().decode("utf-8", "surrogateescape").split(" ")


def read_identity(stream: BinaryIO) -> Identity:
    """Read the body of IDENTIFY; only the host's name may be missing. Raises CommandError."""
    head = stream.read(4)
    if len(head) < 4:
        raise CommandError("E_BAD_BODY", "IDENTIFY failed to read body size")
    size = int.from_bytes(head, "big", signed=True)
    if size < 0:
        raise CommandError("E_BAD_BODY", f"IDENTIFY invalid body size {size}")
    if size > MAX_BODY_SIZE:
        raise CommandError("E_BAD_BODY", f"IDENTIFY body too big {size} > {MAX_BODY_SIZE}")
    body = stream.read(size)
    if len(body) < size:
        raise CommandError("E_BAD_BODY", "IDENTIFY failed to read body")
    kinds = {name: int if name.endswith("_port") else str for name in Identity._fields}
    try:
        found = decode_json(body, kinds)
    except InvalidJSON:
        raise CommandError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
    fields: dict[str, Any] = {name: found.get(name, kind()) for name, kind in kinds.items()}
    if not all(fields[name] for name in Identity._fields if name != "hostname"):
        raise CommandError("E_BAD_BODY", "IDENTIFY missing fields")
    return Identity(**fields)


def topic_and_channel(command: str, params: list[str]) -> tuple[str, str | None]:
    """Return the checked names of REGISTER or UNREGISTER. Raises CommandError."""
    if not params:
        raise CommandError("E_INVALID", f"{command} insufficient number of params")
    topic, channel = params[0], params[1] if len(params) > 1 else ""
    if not is_valid_name(topic):
        raise CommandError("E_BAD_TOPIC", f"{command} topic name '{topic}' is not valid")
    if channel and not is_valid_name(channel):
        raise CommandError("E_BAD_CHANNEL", f"{command} channel name '{channel}' is not valid")
    return topic, channel or None


# -- nsqd's end


def identify(identity: Identity) -> bytes:
    return MAGIC_V1 + b"IDENTIFY\n" + sized(identity.to_json())


def command_line(command: str, topic: str, channel: str | None) -> bytes:
    return " ".join([command, topic, *([] if channel is None else [channel])]).encode() + b"\n"


def read_response(stream: BinaryIO) -> bytes:
    """Read the response to one command. Raises NotNSQError, ServerError, RemoteProtocolError."""
    head = stream.read(4)
    if head == b"HTTP":
        raise NotNSQError(
            "the answer is HTTP: this looks like nsqlookupd's HTTP port (4161 by default), not its"
            " TCP port (4160)"
        )
    size = int.from_bytes(head, "big")
    if size > MAX_BODY_SIZE:
        raise RemoteProtocolError(
            f"nsqlookupd announced an answer of {size} bytes (limit {MAX_BODY_SIZE})")
    data = stream.read(size)
    if len(head) < 4 or len(data) < size:
        raise RemoteProtocolError("closed by nsqlookupd")
    if data.startswith(b"E_"):
        raise server_error(data)
    return data


def read_ok(stream: BinaryIO) -> None:
    """Read the response to a command other than IDENTIFY. Raises as :func:`read_response`."""
    data = read_response(stream)
    if data != b"OK":
        raise RemoteProtocolError(f"nsqlookupd answered {data[:64]!r}, not OK")


def read_peer(stream: BinaryIO) -> Identity:
    """Read nsqlookupd's identity; old versions may leave fields out."""
    data = read_response(stream)
    try:
        given: Any = peer_json.read_json(data)
        return Identity(
            str(given.get("broadcast_address", "")), str(given.get("hostname", "")),
            int(given.get("http_port", 0)), int(given.get("tcp_port", 0)),
            str(given.get("version", "")),
        )
    except (ValueError, TypeError, AttributeError) as exc:
        raise RemoteProtocolError(
            f"nsqlookupd answered IDENTIFY with {data[:64]!r}, not with JSON") from exc


# -- the registry. Rules of nsqlookupd 1.3.0: topics and channels stay when their last producer
# leaves, except ephemeral ones that are unregistered.


@dataclass
class PeerInfo:
    """One connected nsqd. ``id``: its remote address; ``last_update``: of IDENTIFY or PING."""

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
        """True if the producer has a tombstone younger than ``lifetime``."""
        return self.tombstoned_at is not None and now - self.tombstoned_at < lifetime


@dataclass
class _Topic:
    """Producers by their peers' ids: of the topic, and of each channel."""

    producers: dict[str, Producer] = field(default_factory=dict)
    channels: dict[str, dict[str, Producer]] = field(default_factory=dict)


class Registry:
    """All registrations of one nsqlookupd. Durations in seconds."""

    def __init__(self, inactive_producer_timeout: float, tombstone_lifetime: float) -> None:
        self._inactive_timeout = inactive_producer_timeout
        self._tombstone_lifetime = tombstone_lifetime
        self._peers: dict[str, PeerInfo] = {}
        self._topics: dict[str, _Topic] = {}

    def identify(self, peer: PeerInfo) -> None:
        self._peers[peer.id] = peer

    def register(self, peer: PeerInfo, topic: str, channel: str | None) -> None:
        self.create(topic, channel)
        entry = self._topics[topic]
        # A second REGISTER changes nothing: a tombstone outlives it.
        entry.producers.setdefault(peer.id, Producer(peer))
        if channel is not None:
            entry.channels[channel].setdefault(peer.id, Producer(peer))

    def unregister(self, peer: PeerInfo, topic: str, channel: str | None) -> None:
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

    def create(self, topic: str, channel: str | None = None) -> None:
        entry = self._topics.setdefault(topic, _Topic())
        if channel is not None:
            entry.channels.setdefault(channel, {})

    def delete_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Remove a channel; False if it does not exist."""
        entry = self._topics.get(topic, _Topic())
        return entry.channels.pop(channel, None) is not None

    def tombstone(self, topic: str, node: str, now: float) -> None:
        for producer in self._topics.get(topic, _Topic()).producers.values():
            if producer.peer.node == node:
                producer.tombstoned_at = now

    def topics(self) -> list[str]:
        return list(self._topics)

    def channels(self, topic: str) -> list[str]:
        return list(self._topics.get(topic, _Topic()).channels)

    def lookup(self, topic: str, now: float) -> tuple[list[str], list[PeerInfo]] | None:
        """Return the channels and the live, untombstoned producers of a topic; None if unknown."""
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
