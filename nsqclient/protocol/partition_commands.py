"""Commands that only a partitioned nsqd knows: checked values in, bytes out.

As in :mod:`commands`, what cannot be right is not built. Each publish needs its partition: a
command without one goes to whichever partition the server likes. Source: "How we redesign the
NSQ smart client"; ``docs/topics/partitions.rst`` says where the server differs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from nsqclient.errors import InvalidMessageError, LocalProtocolError
from nsqclient.protocol.commands import (
    DEFAULT_MAX_BODY_SIZE,
    DEFAULT_MAX_MSG_SIZE,
    check_body,
)
from nsqclient.protocol.extended import check_trace_id
from nsqclient.protocol.names import check_channel, check_topic

#: The name on the wire; the article calls it SUB_ORDER, which the server does not know.
SUB_ORDERED = "SUB_ORDERED"
#: Partitions have ten bits of a message's id.
MAX_PARTITION = 1023

_size = struct.Struct(">I")
_trace = struct.Struct(">Q")
_length = struct.Struct(">H")


def check_partition(partition: object) -> int:
    """Return a partition number that can be.

    Raises:
        LocalProtocolError: it is no whole number from 0 to 1023.
    """
    if isinstance(partition, int) and not isinstance(partition, bool):
        if 0 <= partition <= MAX_PARTITION:
            return partition
    raise LocalProtocolError(f"partition {partition!r}: a whole number from 0 to {MAX_PARTITION}")


def sub(topic: str, channel: str, partition: int, *, ordered: bool = False) -> bytes:
    """SUB or SUB_ORDERED: consume one partition. The server answers OK."""
    name = SUB_ORDERED if ordered else "SUB"
    words = f"{name} {check_topic(topic)} {check_channel(channel)} {check_partition(partition)}\n"
    return words.encode()


def _line(name: str, topic: str, partition: int) -> bytes:
    return f"{name} {check_topic(topic)} {check_partition(partition)}\n".encode()


def _sized(body: bytes) -> bytes:
    return _size.pack(len(body)) + body


def pub(topic: str, partition: int, body: bytes, max_msg_size: int = DEFAULT_MAX_MSG_SIZE) -> bytes:
    """PUB: one message to one partition. The server answers OK."""
    return _line("PUB", topic, partition) + _sized(check_body(body, max_msg_size))


def pub_trace(
    topic: str, partition: int, trace_id: int, body: bytes,
    max_msg_size: int = DEFAULT_MAX_MSG_SIZE,
) -> bytes:
    """PUB_TRACE: ``[4 B size][8 B trace id][body]``. The server answers 30 bytes."""
    payload = _traced(trace_id, check_body(body, max_msg_size))
    return _line("PUB_TRACE", topic, partition) + _sized(payload)


def pub_ext(
    topic: str, partition: int, header: bytes, body: bytes,
    max_msg_size: int = DEFAULT_MAX_MSG_SIZE,
) -> bytes:
    """PUB_EXT: ``[4 B size][2 B length][JSON header][body]``; ``header`` from ``make_header``.

    The server answers OK, or 30 bytes when the header has a trace id.
    """
    if not header:
        raise InvalidMessageError("PUB_EXT needs a header: the server refuses an empty one")
    payload = _with_header(header, check_body(body, max_msg_size))
    return _line("PUB_EXT", topic, partition) + _sized(payload)


def mpub(
    topic: str, partition: int, bodies: Sequence[bytes],
    max_msg_size: int = DEFAULT_MAX_MSG_SIZE, max_body_size: int = DEFAULT_MAX_BODY_SIZE,
) -> bytes:
    """MPUB: several messages to one partition. The server answers OK."""
    checked = [check_body(body, max_msg_size) for body in bodies]
    return _line("MPUB", topic, partition) + _many(checked, max_body_size)


def mpub_trace(
    topic: str, partition: int, messages: Sequence[tuple[int, bytes]],
    max_msg_size: int = DEFAULT_MAX_MSG_SIZE, max_body_size: int = DEFAULT_MAX_BODY_SIZE,
) -> bytes:
    """MPUB_TRACE of (trace id, body). The server answers 30 bytes: see :class:`Stored`."""
    payloads = [_traced(trace_id, check_body(body, max_msg_size)) for trace_id, body in messages]
    return _line("MPUB_TRACE", topic, partition) + _many(payloads, max_body_size)


def mpub_ext(
    topic: str, partition: int, messages: Sequence[tuple[bytes, bytes]],
    max_msg_size: int = DEFAULT_MAX_MSG_SIZE, max_body_size: int = DEFAULT_MAX_BODY_SIZE,
) -> bytes:
    """MPUB_EXT of (JSON header or empty, body). The server answers OK.

    After an error to it the rest of its body is read as commands: the connection is lost.
    """
    payloads = [_with_header(header, check_body(body, max_msg_size)) for header, body in messages]
    return _line("MPUB_EXT", topic, partition) + _many(payloads, max_body_size)


def _traced(trace_id: int, body: bytes) -> bytes:
    return _trace.pack(check_trace_id(trace_id)) + body


def _with_header(header: bytes, body: bytes) -> bytes:
    return _length.pack(len(header)) + header + body


def _many(payloads: Sequence[bytes], max_body_size: int) -> bytes:
    if not payloads:
        raise InvalidMessageError("MPUB needs at least one message")
    body = _size.pack(len(payloads)) + b"".join([_sized(payload) for payload in payloads])
    if len(body) > max_body_size:
        raise InvalidMessageError(
            f"MPUB body of {len(body)} bytes is over nsqd's limit of {max_body_size}"
            " (nsqd --max-body-size, our option nsqd_max_body_size)"
        )
    return _sized(body)
