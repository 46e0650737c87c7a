"""The dialogue between nsqd and nsqlookupd over TCP: what both ends share, and nsqlookupd's.

nsqd's end is in :mod:`nsqclient.protocol.lookupd_client`. nsqd opens with the magic, then sends
lines; every command gets one answer, in order::

    nsqd > nsqlookupd   [  V1] [IDENTIFY\\n][4 B size][JSON]   [REGISTER topic channel\\n]  ...
    nsqlookupd > nsqd   [4 B size][data]                       data: JSON, OK, or E_CODE text

Unlike nsqd's frames an answer has no type: what starts with ``E_`` is an error, and every error
is the last thing nsqlookupd says on the connection. Texts are nsqlookupd 1.3.0's, byte for byte.
No socket, thread or clock lives here.
"""

from __future__ import annotations

import json
import struct
from enum import Enum
from typing import Any, NamedTuple, Union

from nsqclient.protocol import go_json
from nsqclient.protocol.names import is_valid_name

MAGIC_V1 = b"  V1"

#: nsqd's identity is a few hundred bytes. The real nsqlookupd has no limit, and a negative size
#: ends its process; ours refuses both before memory is taken.
DEFAULT_MAX_BODY_SIZE = 1024 * 1024
#: A longer command line can be no valid REGISTER (64 + 64 characters of names).
MAX_LINE_SIZE = 16 * 1024

_size = struct.Struct(">i")
# What Go's strings.TrimSpace takes off, as far as ASCII goes.
_SPACE = b" \t\n\v\f\r"


class State(Enum):
    """Where one connection stands; the same words on both ends."""

    MAGIC = "magic"  # nothing said yet
    INIT = "init"  # V1 agreed, nobody identified
    IDENTIFIED = "identified"
    CLOSED = "closed"


#: The server's table: in which state a command is allowed, and which state follows. What is
#: missing here is refused with the text of _REFUSALS, and the connection closes.
TRANSITIONS: dict[tuple[State, str], State] = {
    (State.INIT, "PING"): State.INIT,
    (State.INIT, "IDENTIFY"): State.IDENTIFIED,
    (State.IDENTIFIED, "PING"): State.IDENTIFIED,
    (State.IDENTIFIED, "REGISTER"): State.IDENTIFIED,
    (State.IDENTIFIED, "UNREGISTER"): State.IDENTIFIED,
}
_REFUSALS = {
    (State.IDENTIFIED, "IDENTIFY"): "cannot IDENTIFY again",
    (State.INIT, "REGISTER"): "client must IDENTIFY",
    (State.INIT, "UNREGISTER"): "client must IDENTIFY",
}


class Identity(NamedTuple):
    """Who speaks: what nsqd and nsqlookupd tell each other in IDENTIFY."""

    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    version: str

    def to_json(self) -> bytes:
        """Return the compact JSON that goes on the wire, keys in alphabetical order."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()


class Registered(NamedTuple):
    """nsqd has this topic, or this channel of it (which implies the topic)."""

    topic: str
    channel: str | None


class Unregistered(NamedTuple):
    """nsqd has it no longer; without channel, the topic and all its channels."""

    topic: str
    channel: str | None


class Pinged(NamedTuple):
    """nsqd is alive."""


#: What the server core reports, in order; Identity comes first and once.
ServerEvent = Union[Identity, Registered, Unregistered, Pinged]


class _Refused(Exception):
    """A command that ends the connection; carries the answer."""


class LookupdServerCore:
    """nsqlookupd's end of one connection.

    Feed it with :meth:`receive_data` and :meth:`receive_eof`; after each, apply
    :meth:`take_events` to the registry and only then write :meth:`data_to_send`, so that a
    producer which read its OK can be looked up. When :attr:`is_closed`, write and close.

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
        """Tell whether the connection is to be closed once all output is written."""
        return self._state is State.CLOSED

    def receive_data(self, data: bytes) -> None:
        """Take bytes from nsqd; whatever follows a fatal error is dropped."""
        if self.is_closed:
            return
        self._buffer += data
        try:
            while not self.is_closed and self._step():
                pass
        except _Refused as refused:
            self._close(refused.args[0])

    def receive_eof(self) -> None:
        """Take the end of nsqd's bytes; a command cut in half gets its error."""
        if self._in_identify and not self.is_closed:
            what = "body size" if len(self._buffer) < 4 else "body"
            self._close(f"E_BAD_BODY IDENTIFY failed to read {what}")
        self._state = State.CLOSED

    def take_events(self) -> list[ServerEvent]:
        """Remove and return what happened, in order."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> bytes:
        """Remove and return the answers to write."""
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
            # As nsqd does it: no answer. The real nsqlookupd would read on for ever.
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
            raise _Refused("E_BAD_PROTOCOL")
        self._state = State.INIT
        return True

    def _execute(self, command: str, *params: str) -> None:
        refusal = _REFUSALS.get((self._state, command))
        if refusal is not None:
            raise _Refused(f"E_INVALID {refusal}")
        following = TRANSITIONS.get((self._state, command))
        if following is None:
            raise _Refused(f"E_INVALID invalid command {command}")
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
        self._answer(b"OK")

    def _read_identity(self) -> bool:
        if len(self._buffer) < 4:
            return False
        size = _size.unpack_from(self._buffer)[0]
        if size < 0:
            raise _Refused(f"E_BAD_BODY IDENTIFY invalid body size {size}")
        if size > self._max_body_size:
            limit = self._max_body_size
            raise _Refused(f"E_BAD_BODY IDENTIFY body too big {size} > {limit}")
        if len(self._buffer) < 4 + size:
            return False
        body = bytes(self._buffer[4:4 + size])
        del self._buffer[:4 + size]
        self._events.append(_parse_identity(body))
        self._in_identify = False
        self._state = TRANSITIONS[self._state, "IDENTIFY"]
        self._answer(self._identity.to_json())
        return True

    def _answer(self, data: bytes) -> None:
        self._out.append(_size.pack(len(data)) + data)

    def _close(self, answer: str | None) -> None:
        if answer is not None:
            self._answer(answer.encode("utf-8", "surrogateescape"))
        self._buffer.clear()
        self._state = State.CLOSED


def _topic_and_channel(command: str, params: tuple[str, ...]) -> tuple[str, str | None]:
    if not params:
        raise _Refused(f"E_INVALID {command} insufficient number of params")
    topic, channel = params[0], params[1] if len(params) > 1 else ""
    if not is_valid_name(topic):
        raise _Refused(f"E_BAD_TOPIC {command} topic name '{topic}' is not valid")
    if channel and not is_valid_name(channel):
        raise _Refused(f"E_BAD_CHANNEL {command} channel name '{channel}' is not valid")
    return topic, channel or None


def _parse_identity(body: bytes) -> Identity:
    """Read IDENTIFY's JSON; what is missing is empty, which only the host's name may be."""
    kinds = {name: int if name.endswith("_port") else str for name in Identity._fields}
    try:
        found = go_json.decode(body, kinds)
    except go_json.NotDecodable:
        raise _Refused("E_BAD_BODY IDENTIFY failed to decode JSON body") from None
    fields: dict[str, Any] = {name: found.get(name, kind()) for name, kind in kinds.items()}
    if not all(fields[name] for name in Identity._fields if name != "hostname"):
        raise _Refused("E_BAD_BODY IDENTIFY missing fields")
    return Identity(**fields)
