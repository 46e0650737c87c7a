"""The protocol between nsqd and nsqlookupd over TCP: both ends, as pure state machines.

nsqd opens with the magic, then sends lines; every command gets one response, in order::

    nsqd > nsqlookupd   [  V1] [IDENTIFY\\n][4 B size][JSON]   [REGISTER topic channel\\n]  ...
    nsqlookupd > nsqd   [4 B size][data]                       data: JSON, OK, or E_CODE text

Unlike nsqd's frames a response has no type: data that starts with ``E_`` is an error, and
nsqlookupd closes the connection after every error. Texts are nsqlookupd 1.3.0's, byte for byte.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Union

from nsqclient.devserver.protocol import go_compat
from nsqclient.devserver.protocol.commands import CommandError
from nsqclient.errors import (
    LocalProtocolError,
    NotNSQError,
    RemoteProtocolError,
    ServerError,
    server_error,
)
from nsqclient.protocol import peer_json
from nsqclient.protocol.names import check_channel, check_topic, is_valid_name

MAGIC_V1 = b"  V1"

#: nsqd's identity is a few hundred bytes. The real nsqlookupd has no limit, and a negative size
#: ends its process; here both are errors before memory is allocated.
DEFAULT_MAX_BODY_SIZE = 1024 * 1024
#: A longer command line can be no valid REGISTER (64 + 64 characters of names).
MAX_LINE_SIZE = 16 * 1024

_size = struct.Struct(">i")
# The ASCII part of what Go's strings.TrimSpace removes.
_SPACE = b" \t\n\v\f\r"


class State(Enum):
    """The state of one connection; the same on both ends."""

    MAGIC = "magic"  # no byte received
    INIT = "init"  # the magic was V1; no IDENTIFY yet
    IDENTIFIED = "identified"
    CLOSED = "closed"


#: The server's table: the states in which a command is allowed, and the state that follows.
#: Any other command is an error, with the text of _OUT_OF_ORDER, and closes the connection.
TRANSITIONS: dict[tuple[State, str], State] = {
    (State.INIT, "PING"): State.INIT,
    (State.INIT, "IDENTIFY"): State.IDENTIFIED,
    (State.IDENTIFIED, "PING"): State.IDENTIFIED,
    (State.IDENTIFIED, "REGISTER"): State.IDENTIFIED,
    (State.IDENTIFIED, "UNREGISTER"): State.IDENTIFIED,
}
_OUT_OF_ORDER = {
    (State.IDENTIFIED, "IDENTIFY"): "cannot IDENTIFY again",
    (State.INIT, "REGISTER"): "client must IDENTIFY",
    (State.INIT, "UNREGISTER"): "client must IDENTIFY",
}


class Identity(NamedTuple):
    """What nsqd and nsqlookupd send each other in IDENTIFY."""

    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    version: str

    def to_json(self) -> bytes:
        """Return the compact JSON that goes on the wire, keys in alphabetical order."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()


class Registered(NamedTuple):
    """nsqd has this topic, or this channel and so its topic."""

    topic: str
    channel: str | None


class Unregistered(NamedTuple):
    """nsqd no longer has this channel, or without a channel the topic and all its channels."""

    topic: str
    channel: str | None


class Pinged(NamedTuple):
    """nsqd is alive."""


#: The events of the server's end, in order; Identity comes first and once.
ServerEvent = Union[Identity, Registered, Unregistered, Pinged]


class LookupdServerProtocol:
    """nsqlookupd's end of one connection.

    Feed it with :meth:`receive_data` and :meth:`receive_eof`; after each, apply
    :meth:`take_events` to the registry and only then write :meth:`data_to_send`, so that a
    producer that has read OK is found in /lookup. When :attr:`is_closed`, write and close.

    Args:
        identity: what this nsqlookupd answers to IDENTIFY.
        max_body_size: the largest IDENTIFY body, in bytes.
    """

    def __init__(self, identity: Identity, max_body_size: int = DEFAULT_MAX_BODY_SIZE) -> None:
        self._identity = identity
        self._max_body_size = max_body_size
        self._state = State.MAGIC
        self._in_identify = False  # the line was read, the body was not
        self._buffer = bytearray()
        self._events: list[ServerEvent] = []
        self._out: list[bytes] = []

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    @property
    def is_closed(self) -> bool:
        """Whether the connection is to be closed once all output is written."""
        return self._state is State.CLOSED

    def receive_data(self, data: bytes) -> None:
        """Take bytes from nsqd; bytes after a fatal error are dropped."""
        if self.is_closed:
            return
        self._buffer += data
        try:
            while not self.is_closed and self._step():
                pass
        except CommandError as error:
            self._close(error)

    def receive_eof(self) -> None:
        """Take the end of nsqd's bytes; an incomplete command gets its error."""
        if self._in_identify and not self.is_closed:
            what = "body size" if len(self._buffer) < 4 else "body"
            self._close(CommandError("E_BAD_BODY", f"IDENTIFY failed to read {what}"))
        self._state = State.CLOSED

    def take_events(self) -> list[ServerEvent]:
        """Remove and return what happened, in order."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> bytes:
        """Remove and return the responses to write."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _step(self) -> bool:
        """Read one thing from the buffer; False when more bytes are needed."""
        if self._state is State.MAGIC:
            return self._read_magic()
        if self._in_identify:
            return self._read_identity()
        end = self._buffer.find(b"\n")
        if end < 0 and len(self._buffer) <= MAX_LINE_SIZE:
            return False
        if end < 0 or end > MAX_LINE_SIZE:
            # Close without a response, as nsqd does. The real nsqlookupd reads on forever.
            self._close(None)
            return False
        # An invalid name is echoed byte for byte, whatever its encoding.
        line = bytes(self._buffer[:end]).strip(_SPACE).decode("utf-8", "surrogateescape")
        del self._buffer[:end + 1]
        self._execute(*line.split(" "))
        return True

    def _read_magic(self) -> bool:
        if len(self._buffer) < 4:
            return False
        magic = bytes(self._buffer[:4])
        del self._buffer[:4]
        if magic != MAGIC_V1:
            raise CommandError("E_BAD_PROTOCOL")
        self._state = State.INIT
        return True

    def _execute(self, command: str, *params: str) -> None:
        reason = _OUT_OF_ORDER.get((self._state, command))
        if reason is not None:
            raise CommandError("E_INVALID", reason)
        following = TRANSITIONS.get((self._state, command))
        if following is None:
            raise CommandError("E_INVALID", f"invalid command {command}")
        if command == "IDENTIFY":
            self._in_identify = True  # the state changes with the body
            return
        if command == "PING":
            self._events.append(Pinged())
        else:
            topic, channel = _topic_and_channel(command, params)
            event = Registered if command == "REGISTER" else Unregistered
            self._events.append(event(topic, channel))
        self._state = following
        self._respond(b"OK")

    def _read_identity(self) -> bool:
        if len(self._buffer) < 4:
            return False
        size = _size.unpack_from(self._buffer)[0]
        if size < 0:
            raise CommandError("E_BAD_BODY", f"IDENTIFY invalid body size {size}")
        if size > self._max_body_size:
            limit = self._max_body_size
            raise CommandError("E_BAD_BODY", f"IDENTIFY body too big {size} > {limit}")
        if len(self._buffer) < 4 + size:
            return False
        body = bytes(self._buffer[4:4 + size])
        del self._buffer[:4 + size]
        self._events.append(_parse_identity(body))
        self._in_identify = False
        self._state = TRANSITIONS[self._state, "IDENTIFY"]
        self._respond(self._identity.to_json())
        return True

    def _respond(self, data: bytes) -> None:
        self._out.append(_size.pack(len(data)) + data)

    def _close(self, error: CommandError | None) -> None:
        if error is not None:
            self._respond(error.code.encode() + (b" " + error.text if error.text else b""))
        self._buffer.clear()
        self._state = State.CLOSED


def _topic_and_channel(command: str, params: tuple[str, ...]) -> tuple[str, str | None]:
    if not params:
        raise CommandError("E_INVALID", f"{command} insufficient number of params")
    topic, channel = params[0], params[1] if len(params) > 1 else ""
    if not is_valid_name(topic):
        raise CommandError("E_BAD_TOPIC", f"{command} topic name '{topic}' is not valid")
    if channel and not is_valid_name(channel):
        raise CommandError("E_BAD_CHANNEL", f"{command} channel name '{channel}' is not valid")
    return topic, channel or None


def _parse_identity(body: bytes) -> Identity:
    """Read IDENTIFY's JSON; only the host's name may be missing or empty."""
    kinds = {name: int if name.endswith("_port") else str for name in Identity._fields}
    try:
        found = go_compat.decode_json(body, kinds)
    except go_compat.InvalidJSON:
        raise CommandError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
    fields: dict[str, Any] = {name: found.get(name, kind()) for name, kind in kinds.items()}
    if not all(fields[name] for name in Identity._fields if name != "hostname"):
        raise CommandError("E_BAD_BODY", "IDENTIFY missing fields")
    return Identity(**fields)


# "HTTP", the first bytes of an HTTP server, read as the size of a response.
_HTTP_AS_SIZE = _size.unpack(b"HTTP")[0]


class Response(NamedTuple):
    """nsqlookupd's response to ``command``; ``error`` is None for OK."""

    command: str
    error: ServerError | None


#: The events of nsqd's end: the Identity of nsqlookupd, then one Response per command.
ClientEvent = Union[Identity, Response]


class LookupdClientProtocol:
    """nsqd's end of one connection.

    It begins with the magic and IDENTIFY to send. Commands may be sent before earlier ones
    have their responses; :attr:`pending` counts those without.

    Args:
        identity: of this nsqd.
        max_body_size: the largest response, in bytes.
    """

    def __init__(self, identity: Identity, max_body_size: int = DEFAULT_MAX_BODY_SIZE) -> None:
        body = identity.to_json()
        self._max_body_size = max_body_size
        self._state = State.INIT
        self._buffer = bytearray()
        self._events: list[ClientEvent] = []
        self._out = [MAGIC_V1, b"IDENTIFY\n", _size.pack(len(body)), body]
        self._open: deque[str] = deque(["IDENTIFY"])

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    @property
    def pending(self) -> int:
        """How many commands have no response yet."""
        return len(self._open)

    def send_ping(self) -> None:
        """PING: this nsqd is alive."""
        self._send("PING")

    def send_register(self, topic: str, channel: str | None = None) -> None:
        """REGISTER: this nsqd has the topic, or the channel."""
        self._send("REGISTER", topic, channel)

    def send_unregister(self, topic: str, channel: str | None = None) -> None:
        """UNREGISTER: this nsqd no longer has the topic, or the channel."""
        self._send("UNREGISTER", topic, channel)

    def receive_data(self, data: bytes) -> None:
        """Take bytes from nsqlookupd.

        Raises:
            NotNSQError: the bytes are an HTTP response.
            RemoteProtocolError: an invalid size, or a response without a command.
        """
        self._buffer += data
        while self._state is not State.CLOSED and len(self._buffer) >= 4:
            size = _size.unpack_from(self._buffer)[0]
            if size == _HTTP_AS_SIZE:
                raise NotNSQError(
                    "the answer is HTTP: this looks like nsqlookupd's HTTP port (4161 by"
                    " default), not its TCP port (4160)"
                )
            if not 0 <= size <= self._max_body_size:
                raise RemoteProtocolError(
                    f"nsqlookupd announced an answer of {size} bytes (limit"
                    f" {self._max_body_size})"
                )
            if len(self._buffer) < 4 + size:
                return
            answer = bytes(self._buffer[4:4 + size])
            del self._buffer[:4 + size]
            self._read_response(answer)

    def receive_eof(self) -> None:
        """Take the end of nsqlookupd's bytes; open commands get no response."""
        self._state = State.CLOSED

    def take_events(self) -> list[ClientEvent]:
        """Remove and return what happened, in order."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> bytes:
        """Remove and return the bytes to write."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _send(self, command: str, topic: str | None = None, channel: str | None = None) -> None:
        if self._state is State.CLOSED:
            raise LocalProtocolError(f"{command} on a closed connection to nsqlookupd")
        if topic is not None:
            command += f" {check_topic(topic)}"
        if channel is not None:
            command += f" {check_channel(channel)}"
        self._out.append(command.encode() + b"\n")
        self._open.append(command)

    def _read_response(self, answer: bytes) -> None:
        if not self._open:
            raise RemoteProtocolError(f"nsqlookupd answered unasked: {answer[:64]!r}")
        command = self._open.popleft()
        if answer.startswith(b"E_"):
            self._events.append(Response(command, server_error(answer)))
            self._state = State.CLOSED
        elif command == "IDENTIFY":
            self._events.append(_read_peer(answer))
            self._state = State.IDENTIFIED
        elif answer == b"OK":
            self._events.append(Response(command, None))
        else:
            raise RemoteProtocolError(f"nsqlookupd answered {command} with {answer[:64]!r}")


def _read_peer(answer: bytes) -> Identity:
    """Read nsqlookupd's identity; old versions may leave fields out."""
    try:
        given: Mapping[str, Any] = peer_json.read_json(answer)
        return Identity(
            broadcast_address=str(given.get("broadcast_address", "")),
            hostname=str(given.get("hostname", "")),
            http_port=int(given.get("http_port", 0)),
            tcp_port=int(given.get("tcp_port", 0)),
            version=str(given.get("version", "")),
        )
    except (ValueError, TypeError, AttributeError) as exc:
        raise RemoteProtocolError(
            f"nsqlookupd answered IDENTIFY with {answer[:64]!r}, not with JSON"
        ) from exc
