"""What partitioned NSQ adds to the protocol: ids, traces, headers of messages, commands.

Commands take checked values. Each publish has a partition; otherwise the server would choose one.
Source: "How we redesign the NSQ smart client", and the server (0.3.7-HA) where the two differ.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

from nsqclient.errors import InvalidMessageError, RemoteProtocolError
from nsqclient.protocol.frames import OK
from nsqclient.protocol.names import check_channel, check_topic

#: The key of the JSON header that carries a trace id; its value is a decimal string.
TRACE_KEY = "##trace_id"
#: Prefix of the server's keys in a JSON header.
RESERVED_PREFIX = "##"
#: Bits of an internal id below its partition.
_PARTITION_SHIFT = 50
MAX_TRACE_ID = 2**64 - 1
#: Partitions have ten bits of a message's id.
MAX_PARTITION = 1023

_ids = struct.Struct(">QQ")
# "OK", internal id, trace id, queue offset, raw size
_answer = struct.Struct(">2sQQQI")
_detail = struct.Struct(">QI")
_length = struct.Struct(">H")
_size = struct.Struct(">I")
_trace = struct.Struct(">Q")

#: Kinds of extension between a message's id and its body on an extended topic.
EXT_NONE, EXT_JSON = 0, 4
#: Limit of the server on a header, in bytes.
MAX_HEADER = 65533

#: The leader of the partition is moving: ask the nsqlookupds, and wait longer.
LEADER_CODES = frozenset({
    "E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE", "E_TOPIC_NOT_EXIST",
})
#: Refusal of a subscription -> the ``extend_support`` that it needs.
EXTEND_CODES = {"E_SUB_EXTEND_NEED": True, "E_SUB_EXTEND_FORBIDDON": False}
#: The topic is ordered: subscribe with SUB_ORDERED.
ORDER_CODE = "E_SUB_ORDER_IS_MUST"


class MessageIds(NamedTuple):
    """The two halves of a 16-byte message id; ``trace_id`` 0 means that it is not traced."""

    internal_id: int
    trace_id: int

    @classmethod
    def unpack(cls, message_id: bytes) -> MessageIds:
        return cls(*_ids.unpack(message_id))

    def pack(self) -> bytes:
        return _ids.pack(*self)


def make_internal_id(partition: int, count: int) -> int:
    """Build the internal id of a partition's ``count``-th entry."""
    return partition << _PARTITION_SHIFT | count


class StoredPosition(NamedTuple):
    """Where a traced publish was stored. The next message is at ``offset + size``.

    For several messages: the ids and offset of the first, trace id 0, and the sum of the sizes.
    """

    internal_id: int
    trace_id: int
    offset: int  #: bytes from the start of the partition's queue
    size: int  #: bytes in that queue

    @property
    def partition(self) -> int:
        return self.internal_id >> _PARTITION_SHIFT

    def pack(self) -> bytes:
        return _answer.pack(OK, *self)


class Stored(StoredPosition):
    """The result of a traced publish: the position, and the nsqd."""

    #: ``host:port`` of the nsqd that stored it. Not an item of the tuple.
    nsqd: str = ""

    @classmethod
    def by(cls, position: StoredPosition, nsqd: str) -> Stored:
        stored = cls(*position)
        stored.nsqd = nsqd
        return stored

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, partition={self.partition}, nsqd={self.nsqd!r})"


def read_stored(data: bytes) -> StoredPosition | None:
    """Read the answer to a traced publish; None for a plain ``OK``. Raises RemoteProtocolError."""
    if data == OK:
        return None
    if len(data) < _answer.size or data[:2] != OK:
        raise RemoteProtocolError(
            f"expected {OK!r} and {_answer.size - 2} bytes, nsqd answered {data[:64]!r}")
    _, *values = _answer.unpack_from(data)
    return StoredPosition(*values)


class MessageExtension(NamedTuple):
    """The fields that a partitioned nsqd adds to a message."""

    header: bytes = b""  #: the JSON header as received; empty if missing
    offset: int | None = None  #: bytes from the start of the queue; SUB_ORDERED, SUB_ADVANCED
    size: int | None = None  #: bytes in the queue; likewise


class MessageFormat(NamedTuple):
    """The extra fields between id and body on one connection: a header, a position, or both."""

    has_ext: bool  #: the topic is extended, and IDENTIFY said ``extend_support``
    has_detail: bool  #: the subscription is SUB_ORDERED or SUB_ADVANCED

    def read(self, data: bytes) -> tuple[bytes, MessageExtension]:
        """Split the bytes after the id into body and extensions::

            [1 B version] [2 B length] [header]    with ext; length and header only if version != 0
            [8 B offset] [4 B size]                with detail
            [body]

        Raises:
            RemoteProtocolError: the message is too short for these fields.
        """
        pos, header, offset, size = 0, b"", None, None
        try:
            if self.has_ext:
                version, pos = data[0], 1
                if version != EXT_NONE:
                    length, = _length.unpack_from(data, 1)
                    pos = 3 + length
                    header = data[3:pos] if version == EXT_JSON else b""
            if self.has_detail:
                offset, size = _detail.unpack_from(data, pos)
                pos += _detail.size
        except (IndexError, struct.error):
            pos = len(data) + 1
        if pos > len(data):
            raise RemoteProtocolError(
                f"a message of {len(data)} bytes is too short for its headers: {data[:32]!r}"
            )
        return data[pos:], MessageExtension(header, offset, size)


def extended_size(body_size: int, header: bytes = b"") -> int:
    """Return the bytes that nsqd's max_msg_size limits on an extended topic."""
    return body_size + (3 + len(header) if header else 1)


def make_header(headers: Mapping[str, Any], trace_id: int | None = None) -> bytes:
    """Build the JSON header of a PUB_EXT. Raises InvalidMessageError."""
    fields: dict[str, Any] = {}
    if trace_id is not None:
        fields[TRACE_KEY] = str(check_trace_id(trace_id))
    for key, value in headers.items():
        if not isinstance(key, str):
            raise InvalidMessageError(f"a header's key must be a string, not {key!r}")
        if key.startswith(RESERVED_PREFIX) and key != "##client_dispatch_tag":
            raise InvalidMessageError(
                f"header {key!r}: keys that begin with {RESERVED_PREFIX!r} are the server's"
            )
        fields[key] = value
    try:
        text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        data = text.encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidMessageError(f"headers cannot be written as JSON: {exc}") from exc
    if len(data) > MAX_HEADER:
        raise InvalidMessageError(
            f"headers of {len(data)} bytes as JSON are over nsqd's limit of {MAX_HEADER}")
    return data


def read_header(header: bytes) -> dict[str, Any]:
    """Read the JSON header of a message; returns an empty dict if it is not a JSON object."""
    if not header:
        return {}
    try:
        fields = json.loads(header)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def check_trace_id(trace_id: object) -> int:
    """Return ``trace_id``; raise InvalidMessageError unless it is a number of 64 bits."""
    if not is_whole_number(trace_id, MAX_TRACE_ID):
        raise InvalidMessageError(
            f"trace_id must be a whole number from 0 to 2^64-1, not {trace_id!r}")
    return trace_id


def check_partition(partition: object) -> int:
    """Return ``partition``; raise InvalidMessageError if it is out of range."""
    if not is_whole_number(partition, MAX_PARTITION):
        raise InvalidMessageError(
            f"partition {partition!r}: a whole number from 0 to {MAX_PARTITION}")
    return partition


def is_whole_number(value: object, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


# -- commands


def partition_name(topic: str, partition: int) -> str:
    return f"{topic} {partition}"


def sub(
    topic: str, channel: str, partition: int, *, ordered: bool = False, with_offsets: bool = False,
) -> bytes:
    """Consume one partition. The server answers OK.

    SUB_ORDERED is SUB_ORDER in the article. SUB_ADVANCED adds the position in the queue to each
    message. It is sent without a start position, with which the server would ignore the partition.
    """
    name = "SUB_ORDERED" if ordered else "SUB_ADVANCED" if with_offsets else "SUB"
    words = f"{name} {check_topic(topic)} {check_channel(channel)} {check_partition(partition)}\n"
    return words.encode()


def pub_trace(topic: str, partition: int, trace_id: int, body: bytes) -> bytes:
    """PUB_TRACE: ``[4 B size][8 B trace id][body]``. The server answers 30 bytes."""
    return _publish("PUB_TRACE", topic, partition, _trace.pack(trace_id) + body)


def pub_ext(topic: str, partition: int, header: bytes, body: bytes) -> bytes:
    """PUB_EXT: ``[4 B size][2 B length][JSON header][body]``; ``header`` from ``make_header``.

    The server answers OK, or 30 bytes when the header has a trace id.
    """
    return _publish("PUB_EXT", topic, partition, _with_header(header, body))


def mpub_ext(topic: str, partition: int, messages: Iterable[tuple[bytes, bytes]]) -> bytes:
    """MPUB_EXT of (JSON header or empty, body). The server answers OK.

    If the server refuses it, it reads the rest of the body as commands, so the connection is lost.
    """
    sized = [_sized(_with_header(header, body)) for header, body in messages]
    return _publish("MPUB_EXT", topic, partition, _size.pack(len(sized)) + b"".join(sized))


def _publish(name: str, topic: str, partition: int, body: bytes) -> bytes:
    return f"{name} {partition_name(topic, partition)}\n".encode() + _sized(body)


def _sized(body: bytes) -> bytes:
    return _size.pack(len(body)) + body


def _with_header(header: bytes, body: bytes) -> bytes:
    return _length.pack(len(header)) + header + body
