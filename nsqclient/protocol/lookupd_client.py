"""The dialogue between nsqd and nsqlookupd over TCP: nsqd's end.

The layout of the bytes is drawn in :mod:`nsqclient.protocol.lookupd`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Union

from nsqclient.errors import (
    LocalProtocolError,
    NotNSQError,
    RemoteProtocolError,
    ServerError,
    server_error,
)
from nsqclient.protocol import peer_json
from nsqclient.protocol.lookupd import DEFAULT_MAX_BODY_SIZE, MAGIC_V1, Identity, State
from nsqclient.protocol.names import check_channel, check_topic

_size = struct.Struct(">i")
# An HTTP server's "HTTP" read as the size of an answer.
_HTTP_AS_SIZE = _size.unpack(b"HTTP")[0]


class Answer(NamedTuple):
    """nsqlookupd's answer to ``command``; ``error`` is None when it said OK."""

    command: str
    error: ServerError | None


#: What the client core reports: the peer's Identity, then one Answer per command.
ClientEvent = Union[Identity, Answer]


class LookupdClientCore:
    """nsqd's end of one connection.

    A new core has the magic and IDENTIFY to send. Commands may be sent before the answers to
    earlier ones came; :attr:`pending` counts those that are still open.

    Args:
        identity: who this nsqd is.
        max_body_size: the largest answer, in bytes.
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
        """How many commands have no answer yet."""
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
            NotNSQError: the bytes are an HTTP answer.
            RemoteProtocolError: a size that cannot be, or an answer that nobody asked for.
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
            self._read_answer(answer)

    def receive_eof(self) -> None:
        """Take the end of nsqlookupd's bytes; open commands stay without answer."""
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

    def _read_answer(self, answer: bytes) -> None:
        if not self._open:
            raise RemoteProtocolError(f"nsqlookupd answered unasked: {answer[:64]!r}")
        command = self._open.popleft()
        if answer.startswith(b"E_"):
            self._events.append(Answer(command, server_error(answer)))
            self._state = State.CLOSED
        elif command == "IDENTIFY":
            self._events.append(_read_peer(answer))
            self._state = State.IDENTIFIED
        elif answer == b"OK":
            self._events.append(Answer(command, None))
        else:
            raise RemoteProtocolError(f"nsqlookupd answered {command} with {answer[:64]!r}")


def _read_peer(answer: bytes) -> Identity:
    """Read nsqlookupd's identity; old or foreign ones may leave fields out."""
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
