"""Frames, the packets that nsqd sends: encoding, decoding, and limits on their sizes.

Source: TCP protocol spec, "Data Format".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Union

from nsqclient import hints, native
from nsqclient.errors import FrameTooLargeError, NotNSQError, RemoteProtocolError

MAGIC_V2 = b"  V2"
HEARTBEAT = b"_heartbeat_"
OK = b"OK"
CLOSE_WAIT = b"CLOSE_WAIT"

#: Length of a message id in bytes: 64 bits in ASCII hex.
MESSAGE_ID_SIZE = 16
#: Bytes of a message frame's data before the body: timestamp, attempts, id.
MESSAGE_HEADER_SIZE = 8 + 2 + MESSAGE_ID_SIZE
#: Limit on a frame if the user sets none. nsqd's --max-msg-size is 1 MiB by default.
DEFAULT_MAX_FRAME_SIZE = 64 * 1024 * 1024

# An HTTP server's "HTTP" read as a frame size.
_HTTP_AS_SIZE = struct.unpack(">i", b"HTTP")[0]

_frame_header = struct.Struct(">ii")
# size, type, then the head of a message: timestamp, attempts (unsigned), id.
_message_frame = struct.Struct(f">iiqH{MESSAGE_ID_SIZE}s")
_MESSAGE_FRAME_HEAD = _message_frame.size


class FrameType(IntEnum):
    RESPONSE = 0
    ERROR = 1
    MESSAGE = 2


class Frame(NamedTuple):
    """A response or error frame."""

    type: int
    data: bytes


#: A received message: (timestamp in ns, attempts, id, body). A plain tuple because one is
#: made for every message received, and a NamedTuple costs four times as much.
RawMessage = tuple[int, int, bytes, bytes]

#: Limit in bytes on a response or an error. nsqd's are far shorter, including the answer to AUTH.
MAX_ANSWER_SIZE = 1024 * 1024

#: Items that the reader yields: single frames, and runs of messages as one list.
Parsed = Union[Frame, list[RawMessage]]


def encode_frame(frame_type: int, data: bytes) -> bytes:
    """Build a frame: ``[4 B size = len(data) + 4][4 B type][data]``."""
    return _frame_header.pack(len(data) + 4, frame_type) + data


def encode_message(timestamp: int, attempts: int, message_id: bytes, body: bytes) -> bytes:
    """Build a message frame; ``timestamp`` in ns since the epoch, ``attempts`` modulo 2^16."""
    size = 4 + MESSAGE_HEADER_SIZE + len(body)
    head = _message_frame.pack(
        size, FrameType.MESSAGE, timestamp, attempts & 0xFFFF, message_id
    )
    return head + body


def parse_messages_in_python(
    data: bytes, start: int, max_frame_size: int
) -> tuple[list[RawMessage], int]:
    messages: list[RawMessage] = []
    end = len(data)
    unpack = _message_frame.unpack_from
    while end - start >= _MESSAGE_FRAME_HEAD:
        # If the frame is shorter, the last three fields are bytes of the next frame.
        size, frame_type, timestamp, attempts, message_id = unpack(data, start)
        stop = start + 4 + size
        if frame_type != 2 or stop > end or size < 4 + MESSAGE_HEADER_SIZE or size > max_frame_size:
            break
        messages.append((timestamp, attempts, message_id, data[start + _MESSAGE_FRAME_HEAD:stop]))
        start = stop
    return messages, start


#: Read message frames from ``data[start:]``; return the messages, and the position of the first
#: frame that is not a complete message frame.
parse_messages: Callable[[bytes, int, int], tuple[list[RawMessage], int]] = (
    parse_messages_in_python if native.compiled is None else native.compiled.parse_messages)


_MESSAGE_TYPE = b"\0\0\0\2"


class FrameReader:
    """Cuts a stream of bytes into frames.

    ``max_frame_size`` is checked as soon as the four bytes of the size have arrived, before memory
    is allocated for the frame.
    """

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        self._max = max_frame_size
        self._chunks: list[bytes] = []  # received, not yet parsed
        self._have = 0  # their total length
        self._need = 4  # bytes needed before parsing continues
        #: True if the next call of ``feed`` raises, because an invalid frame follows the last ones.
        self.is_broken: bool = False

    @property
    def buffered(self) -> int:
        return self._have

    def take_buffered(self) -> bytes:
        """Remove and return the unparsed bytes (for the next byte layer, on an upgrade)."""
        rest = b"".join(self._chunks)
        self._chunks, self._have, self._need = [], 0, 4
        return rest

    def hold(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
            self._have += len(data)

    def feed(self, data: bytes, *, single: bool = False) -> list[Parsed]:
        """Add ``data`` and return the complete frames, in order.

        If a frame is invalid, the frames before it are returned, and the next call raises. In this
        case, and with ``single``, call again with ``b""``.

        Args:
            single: return at most one response. For the handshake, in which a response may announce
                a byte layer.

        Raises:
            NotNSQError: the bytes are an HTTP answer.
            FrameTooLargeError, RemoteProtocolError: a size or type is invalid.
        """
        buf = data
        if self._have:
            self.hold(data)
            if self._have < self._need:
                return []
            # The chunks of a big frame are joined only once, when it is complete.
            buf = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks = [buf]  # frees the chunks before the body is copied
        end = len(buf)
        pos = 0
        parsed: list[Parsed] = []
        while pos < end and not (single and parsed):
            messages, pos = parse_messages(buf, pos, self._max)
            if messages:
                parsed.append(messages)
                continue
            after = self._other_frame(buf, pos, end, parsed) if end - pos >= 4 else -1
            if after < 0:
                break
            pos = after
        if pos < end or self._have:
            self._keep(buf, pos, end)
        return parsed

    def _other_frame(self, buf: bytes, pos: int, end: int, parsed: list[Parsed]) -> int:
        """Read a response or an error; return the new position.

        Returns -1 if the frame is incomplete, or if it is invalid and complete frames precede it.
        """
        try:
            return self._read_frame(buf, pos, end, parsed)
        except RemoteProtocolError:
            if parsed:
                self.is_broken = True
                return -1
            raise

    def _read_frame(self, buf: bytes, pos: int, end: int, parsed: list[Parsed]) -> int:
        size = int.from_bytes(buf[pos:pos + 4], "big", signed=True)
        self._check_size(size, buf[pos:pos + 16])
        stop = pos + 4 + size
        if size > MAX_ANSWER_SIZE and end - pos >= 8 and buf[pos + 4:pos + 8] != _MESSAGE_TYPE:
            raise FrameTooLargeError(f"a frame of {size} bytes that is not a message")
        if stop > end:
            return -1
        frame_type = int.from_bytes(buf[pos + 4:pos + 8], "big", signed=True)
        if buf[pos + 4:pos + 6] == b"E_":  # nsqlookupd's answers have no frame type
            raise NotNSQError(
                "the answer is nsqlookupd's: this looks like its TCP port (4160 by default), not"
                " nsqd's (4150)", hint=hints.LOOKUPD_PORT)
        if frame_type not in (FrameType.RESPONSE, FrameType.ERROR):
            raise RemoteProtocolError(
                f"message frame of {size} bytes is too short"
                if frame_type == FrameType.MESSAGE
                else f"unknown frame type {frame_type}"
            )
        parsed.append(Frame(frame_type, buf[pos + 8:stop]))
        return stop

    def _keep(self, buf: bytes, pos: int, end: int) -> None:
        """Keep the unparsed bytes, and compute how many are needed before parsing continues."""
        rest = buf[pos:] if pos else buf
        self._chunks = [rest] if pos < end else []
        self._have = end - pos
        self._need = 4
        if self._have >= 4:
            # Not checked yet: these bytes may belong to a byte layer.
            size = int.from_bytes(rest[:4], "big", signed=True)
            self._need = 4 + size if 4 <= size <= self._max else 4
            if MAX_ANSWER_SIZE < size <= self._max and rest[4:8] != _MESSAGE_TYPE:
                self._need = 8  # the limit depends on the type

    def _check_size(self, size: int, head: bytes) -> None:
        if size == _HTTP_AS_SIZE:
            raise NotNSQError(
                "the answer is HTTP: this looks like the HTTP port (4151 by default), not the"
                " TCP port (4150)"
            )
        if size < 4:
            raise RemoteProtocolError(f"frame size {size} is impossible (stream starts {head!r})")
        if size > self._max:
            raise FrameTooLargeError(
                f"frame of {size} bytes is over the limit of {self._max}: raise max_msg_size, or"
                f" this port does not speak NSQ's TCP protocol (stream starts {head!r})"
            )
