"""The server side of the partitioned dialect: only its differences from a stock nsqd.

Message ids are 16 raw bytes, and more errors leave the connection open. Behaviour of youzan/nsq
0.3.7-HA as measured.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable

from nsqclient.devserver.protocol import commands
from nsqclient.devserver.protocol.commands import (
    CommandError, Event, Identify, NewMessage, OpenPartition, PartitionPub, PartitionSub,
    ServerLimits,
)
from nsqclient.devserver.protocol.server import TRANSITIONS, ServerProtocol, ServerState
from nsqclient.errors import ConfigError
from nsqclient.protocol.frames import OK
from nsqclient.protocol.partitioned.extensions import EXT_JSON, EXT_NONE, TRACE_KEY
from nsqclient.protocol.partitioned.selection import StartPosition

#: The version of the embedded server.
PARTITIONED_VERSION = "0.3.7-HA.1.13.0"

#: The longest desired_tag, in bytes.
_MAX_TAG = 100
_PUBLISHES = (b"PUB_TRACE", b"PUB_EXT", b"MPUB_EXT")
#: Commands with an id of 16 raw bytes, and the length of the line up to the end of the id.
_WITH_ID = {b"FIN ": 20, b"REQ ": 20, b"TOUCH ": 22}
#: Errors that leave a connection open unless it has subscribed.
_FATAL_TO_CONSUMERS = frozenset({
    "E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE", "E_PUB_FAILED", "E_MPUB_FAILED",
    "E_EXT_NOT_SUPPORT", "E_INVALID_JSON_HEADER", "INVALID_TRACE_ID",
})
_NEVER_FATAL = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"})

_trace = struct.Struct(">Q")
_length = struct.Struct(">H")
_detail = struct.Struct(">QI")

#: Splits the payload of a message.
_Parse = Callable[[bytes], NewMessage]


def _transitions() -> dict[ServerState, dict[bytes, ServerState]]:
    rows = {state: dict(row) for state, row in TRANSITIONS.items()}
    for state, row in rows.items():
        row.pop(b"DPUB", None)
        if b"PUB" in row:
            row.update(dict.fromkeys(_PUBLISHES, state))
    first = rows[ServerState.INIT]
    first.update(dict.fromkeys((b"SUB_ORDERED", b"SUB_ADVANCED"), ServerState.SUBSCRIBED))
    return rows


PARTITION_TRANSITIONS = _transitions()


class PartitionServerProtocol(ServerProtocol):
    """One connection of a partitioned server. Driven as :class:`ServerProtocol`."""

    _transitions = PARTITION_TRANSITIONS

    def __init__(self, limits: ServerLimits | None = None) -> None:
        super().__init__(limits)
        #: Fields of IDENTIFY.
        self.extend_support: bool = False
        self.desired_tag: str = ""
        self.ext_filter: object = None
        self._has_survived_error = False  # there may be more to read
        del self._commands[b"DPUB"]
        self._commands |= {
            b"SUB_ORDERED": self._sub, b"SUB_ADVANCED": self._sub,
            b"PUB_TRACE": self._publish_one, b"PUB_EXT": self._publish_one,
            b"MPUB_EXT": self._publish_many,
        }

    def take_events(self) -> list[Event]:
        """Unlike the stock core, continue after errors that are not fatal."""
        events = super().take_events()
        while not events and self._has_survived_error:
            self._has_survived_error = False
            events = super().take_events()
        return events

    def _line(self) -> bytes | None:
        head = self._reader.peek(6)
        if not head:
            return None
        for name, size in _WITH_ID.items():
            if head.startswith(name):
                return self._reader.line(size)
        return super()._line()

    def _split(self, line: bytes) -> list[bytes]:
        for name, size in _WITH_ID.items():
            if line.startswith(name):
                rest = line[size:].split(b" ")[1:]
                return [name[:-1], line[len(name):size], *rest]
        return super()._split(line)

    def _send_error(self, error: CommandError) -> None:
        # A space follows the code even without a text.
        super()._send_error(CommandError(error.code + " " * (not error.text), error.text))
        if not self.is_closed:
            self._has_survived_error = True

    def _is_fatal(self, code: str) -> bool:
        code = code.rstrip()
        if code in _FATAL_TO_CONSUMERS:
            return self.state is not ServerState.INIT
        return code not in _NEVER_FATAL

    def _take_identify(self, body: bytes) -> None:
        super()._take_identify(body)
        fields = json.loads(body.decode("utf-8", "replace"))
        if not isinstance(fields, dict):
            fields = {}
        tag = fields.get("desired_tag")
        try:
            is_tag = not isinstance(tag, str) or len(tag.encode()) <= _MAX_TAG
        except UnicodeEncodeError:  # a lone surrogate
            is_tag = False
        if not is_tag:
            self._events.pop()
            raise CommandError("E_BAD_BODY", "IDENTIFY desired tag is too long or no UTF-8")
        self.extend_support = fields.get("extend_support") is True
        self.desired_tag = tag if isinstance(tag, str) else ""
        self.ext_filter = fields.get("ext_filter")
        event = self._events[-1]
        if self.desired_tag and isinstance(event, Identify) and event.response != OK:
            answer = {**json.loads(event.response), "desired_tag": self.desired_tag}
            self._events[-1] = event._replace(response=json.dumps(answer).encode())

    def _fin(self, params: list[bytes]) -> None:
        _check_id("FIN", params)
        super()._fin(params)

    def _req(self, params: list[bytes]) -> None:
        _check_id("REQ", params)
        super()._req(params)

    def _touch(self, params: list[bytes]) -> None:
        _check_id("TOUCH", params)
        super()._touch(params)

    def _sub(self, params: list[bytes]) -> None:
        if self.settings.heartbeat_interval <= 0:
            raise CommandError("E_INVALID", "cannot SUB with heartbeats disabled")
        checked = commands.read_sub(params)
        name = params[0].decode()
        if name != "SUB" and self.settings.sample_rate > 0:
            raise CommandError("E_INVALID", f"{name} can not use sample rate")
        partition = _partition(params[3]) if len(params) == 4 else None
        self._events.append(PartitionSub(name, checked.topic, checked.channel, partition))

    def _pub(self, params: list[bytes]) -> None:
        self._publish_one(params)

    def _mpub(self, params: list[bytes]) -> None:
        self._publish_many(params)

    def _open(self, params: list[bytes]) -> tuple[str, str, int | None]:
        """Read command, topic and partition, and append OpenPartition.

        The partition is read only from a line of three words.
        """
        command = params[0].decode()
        if len(params) < 2:
            raise CommandError("E_INVALID", f"{command} insufficient number of parameters")
        topic = params[1].decode("ascii", "replace")
        partition = _partition(params[2]) if len(params) == 3 else None
        self._events.append(OpenPartition(command, topic, partition))
        return command, topic, partition

    def _publish_one(self, params: list[bytes]) -> None:
        command, topic, partition = self._open(params)
        parse = _PARSERS[command]

        def take_size(data: bytes) -> None:
            size = int.from_bytes(data, "big", signed=True)
            # A size of 0 is a bad body here, and a bad message to a stock nsqd.
            if size <= _OVERHEAD[command]:
                raise CommandError("E_BAD_BODY", f"{command} invalid body size {size}")
            self.ends_with_reset = size > self._limits.max_msg_size
            commands.check_message_size(command, size, self._limits)
            self._expect(size, take)

        def take(data: bytes) -> None:
            self._events.append(PartitionPub(command, topic, partition, [parse(data)]))

        self._expect(4, take_size)

    def _publish_many(self, params: list[bytes]) -> None:
        command, topic, partition = self._open(params)
        self._messages(command, _PARSERS[command], lambda messages: self._events.append(
            PartitionPub(command, topic, partition, messages)))


def check_header(header: bytes) -> int:
    """Check a JSON header; return the trace id in it, or 0. Raises CommandError."""
    try:
        fields = json.loads(header)
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, list):
        return 0
    if not isinstance(fields, dict):
        raise CommandError("E_INVALID_JSON_HEADER", "fail to parse json header")
    trace = fields.get(TRACE_KEY)
    if trace is None:
        return 0
    # The trace id is a decimal string: a JSON number would lose digits.
    if not (isinstance(trace, str) and trace.isascii() and trace.isdigit()):
        raise CommandError("INVALID_TRACE_ID", "fail to parse trace id in json header")
    digits = trace.lstrip("0") or "0"
    # The length first: int() raises for thousands of digits.
    if len(digits) > 20 or int(digits) >= 2**64:
        raise CommandError("INVALID_TRACE_ID", "fail to parse trace id in json header")
    return int(digits)


def has_trace(header: bytes) -> bool:
    fields = json.loads(header) if header else None
    return isinstance(fields, dict) and TRACE_KEY in fields


def _check_id(command: str, params: list[bytes]) -> None:
    """Raise CommandError unless the first half of the id is a positive number."""
    if len(params) > 1 and int.from_bytes(params[1][:8], "big", signed=True) <= 0:
        raise CommandError("E_INVALID", f"{command} invalid message ID")


def _partition(word: bytes) -> int | None:
    """Read a partition; -1 is returned as None. Raises CommandError."""
    # As Go's Atoi, which accepts a sign, and no underscores or white space.
    number = int(word) if re.fullmatch(rb"[+-]?[0-9]{1,18}", word) else None
    if number is None or number < -1:
        text = f"topic partition is not valid: {word.decode('utf-8', 'replace')}"
        raise CommandError("E_BAD_PARTITION", text)
    return None if number == -1 else number


def _plain(data: bytes) -> NewMessage:
    return NewMessage(data)


def _traced(data: bytes) -> NewMessage:
    if len(data) <= _trace.size:
        raise CommandError("E_BAD_BODY", f"invalid body size {len(data)} for trace")
    return NewMessage(data[_trace.size:], _trace.unpack_from(data)[0])


def _extended(data: bytes) -> NewMessage:
    start = _length.size
    size = _length.unpack_from(data)[0] if len(data) >= start else 0
    header, body = data[start:start + size], data[start + size:]
    if len(header) < size or not body:
        raise CommandError("E_BAD_BODY", f"invalid body size {len(data)} for json header")
    return NewMessage(body, header=header)


_PARSERS: dict[str, _Parse] = {
    "PUB": _plain, "MPUB": _plain, "PUB_TRACE": _traced,
    "PUB_EXT": _extended, "MPUB_EXT": _extended,
}
#: Payloads of a single publish must be longer than this many bytes.
_OVERHEAD = {"PUB": 0, "PUB_TRACE": 8, "PUB_EXT": 2}


def encode_ext(header: bytes) -> bytes:
    """Encode the part between id and body of a message on an extended topic."""
    if not header:
        return bytes([EXT_NONE])
    return bytes([EXT_JSON]) + _length.pack(len(header)) + header


def encode_position(offset: int, size: int) -> bytes:
    """Encode the part before the body with SUB_ORDERED and SUB_ADVANCED."""
    return _detail.pack(offset, size)


def read_start(text: str) -> StartPosition:
    """Read ``kind:number``. Raises ConfigError."""
    kind, _, number = text.partition(":")
    # The length first: int() raises ValueError for thousands of digits.
    if number == "-1" or len(number) < 20 and number.isascii() and number.isdigit():
        return StartPosition(kind, int(number))
    raise ConfigError(f"invalid start position {text!r}: give kind:number")
