"""The protocol between nsqd and nsqlookupd over TCP: what both ends read and write.

nsqd opens with the magic, then sends lines; every command gets one response, in order::

    nsqd > nsqlookupd   [  V1] [IDENTIFY\\n][4 B size][JSON]   [REGISTER topic channel\\n]  ...
    nsqlookupd > nsqd   [4 B size][data]                       data: JSON, OK, or E_CODE text

Unlike nsqd's frames, a response comes without a type: data that starts with ``E_`` is an error, and
nsqlookupd closes the connection after every error. Texts are nsqlookupd 1.3.0's.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, NamedTuple

from nsqclient.devserver.protocol import go_compat
from nsqclient.devserver.protocol.commands import CommandError
from nsqclient.errors import NotNSQError, RemoteProtocolError, server_error
from nsqclient.protocol import peer_json
from nsqclient.protocol.names import is_valid_name

MAGIC_V1 = b"  V1"

#: nsqd's identity is a few hundred bytes. The real nsqlookupd has none, and a negative size
#: ends its process; here both are errors before memory is allocated.
MAX_BODY_SIZE = 1024 * 1024
#: A longer command line can be no valid REGISTER (64 + 64 characters of names).
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
    """Return a response, or the body of IDENTIFY, as it goes on the wire."""
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
    """Read the body of IDENTIFY; only the host's name may be missing or empty.

    Raises:
        CommandError: it is not valid, or not complete.
    """
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
        found = go_compat.decode_json(body, kinds)
    except go_compat.InvalidJSON:
        raise CommandError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
    fields: dict[str, Any] = {name: found.get(name, kind()) for name, kind in kinds.items()}
    if not all(fields[name] for name in Identity._fields if name != "hostname"):
        raise CommandError("E_BAD_BODY", "IDENTIFY missing fields")
    return Identity(**fields)


def topic_and_channel(command: str, params: list[str]) -> tuple[str, str | None]:
    """Return the names of REGISTER or UNREGISTER, checked.

    Raises:
        CommandError: the topic is missing, or a name is not valid.
    """
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
    """Return the first bytes of a connection."""
    return MAGIC_V1 + b"IDENTIFY\n" + sized(identity.to_json())


def command_line(command: str, topic: str, channel: str | None) -> bytes:
    """Return REGISTER or UNREGISTER of a topic, or of a channel."""
    return " ".join([command, topic, *([] if channel is None else [channel])]).encode() + b"\n"


def read_response(stream: BinaryIO) -> bytes:
    """Read the response to one command.

    Raises:
        NotNSQError: it is an HTTP response.
        ServerError: nsqlookupd's error.
        RemoteProtocolError: an invalid size, or the connection ended.
    """
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
    """Read nsqlookupd's identity; old versions may leave fields out.

    Raises as :func:`read_response`.
    """
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
