"""The server side of the partitioned dialect: what differs from a stock nsqd, and only that.

Ids are read as 16 bytes whatever they are, publishes name partitions and may carry trace ids
and headers, and some errors spare the connection. Behaviour of youzan/nsq 0.3.7-HA as measured:
``docs/topics/partitions.rst``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

from nsqclient.protocol import server_commands
from nsqclient.protocol.extended import TRACE_KEY
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.partition_events import (
    CheckExt,
    CreateTopic,
    NewMessage,
    OpenPartition,
    PartitionPub,
    PartitionSub,
)
from nsqclient.protocol.server import TRANSITIONS, ServerProtocol, ServerState
from nsqclient.protocol.server_commands import Refused
from nsqclient.protocol.server_events import Event, Identify
from nsqclient.protocol.server_identify import ServerLimits

#: The version that the embedded server says it has.
PARTITIONED_VERSION = "0.3.7-HA.1.13.0"

_PUBLISHES = (b"PUB_TRACE", b"PUB_EXT", b"MPUB_TRACE", b"MPUB_EXT")
#: Commands with an id of 16 raw bytes, and how long the line is up to its end.
_WITH_ID = {b"FIN ": 20, b"REQ ": 20, b"TOUCH ": 22}
#: Errors that spare a connection that has not subscribed.
_SPARES_PUBLISHERS = frozenset({
    "E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE", "E_PUB_FAILED", "E_MPUB_FAILED",
    "E_EXT_NOT_SUPPORT", "E_INVALID_JSON_HEADER", "INVALID_TRACE_ID", "E_CREATE_TOPIC_FAILED",
})
_SPARES_ALL = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"})

_trace = struct.Struct(">Q")
_length = struct.Struct(">H")

#: Called with a message's payload; returns it taken apart.
_Parse = Callable[[bytes], NewMessage]


def _transitions() -> dict[ServerState, dict[bytes, ServerState]]:
    rows = {state: dict(row) for state, row in TRANSITIONS.items()}
    for state, row in rows.items():
        row.pop(b"DPUB", None)
        if b"PUB" in row:
            row.update(dict.fromkeys(_PUBLISHES, state))
    first = rows[ServerState.INIT]
    first.update(dict.fromkeys((b"SUB_ORDERED", b"SUB_ADVANCED"), ServerState.SUBSCRIBED))
    first[b"INTERNAL_CREATE_TOPIC"] = ServerState.INIT
    return rows


PARTITION_TRANSITIONS = _transitions()


class PartitionServerProtocol(ServerProtocol):
    """One connection of a partitioned server. Driven as :class:`ServerProtocol`."""

    _transitions = PARTITION_TRANSITIONS
    _pauses_after = (Identify, CheckExt)

    def __init__(self, limits: ServerLimits | None = None) -> None:
        super().__init__(limits)
        #: The client said so in IDENTIFY.
        self.extend_support = False
        self._has_spared = False  # an error did not end the connection: there may be more to read
        del self._commands[b"DPUB"]
        self._commands |= {
            b"SUB_ORDERED": self._sub, b"SUB_ADVANCED": self._sub,
            b"PUB_TRACE": self._publish_one, b"PUB_EXT": self._publish_one,
            b"MPUB_TRACE": self._publish_many, b"MPUB_EXT": self._publish_many,
            b"INTERNAL_CREATE_TOPIC": self._create_topic,
        }

    def take_events(self) -> list[Event]:
        """As in the stock core; reading goes on after errors that spare the connection."""
        events = super().take_events()
        while not events and self._has_spared:
            self._has_spared = False
            events = super().take_events()
        return events

    def desynchronise(self) -> None:
        """Read what is left of a command's body as commands, as the server does."""
        self._take = None

    # -- lines

    def _line(self) -> bytes | None:
        head = self._reader.peek(6)
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

    def _unknown(self, name: bytes, line: bytes) -> Refused:
        words = " ".join("[%s]" % " ".join(str(byte) for byte in word) for word in line.split(b" "))
        return Refused("E_INVALID", f"invalid command [{words}]")

    def _refuse(self, refused: Refused) -> None:
        # Code and text are always parted by a space, also where there is no text.
        super()._refuse(Refused(refused.code + " " * (not refused.text), refused.text))
        if not self.is_closed:
            self._has_spared = True

    def _is_fatal(self, code: str) -> bool:
        code = code.rstrip()
        if code in _SPARES_PUBLISHERS:
            return self.state is not ServerState.INIT
        return code not in _SPARES_ALL

    # -- commands

    def _take_identify(self, body: bytes) -> None:
        super()._take_identify(body)
        fields = json.loads(body.decode("utf-8", "replace"))
        self.extend_support = isinstance(fields, dict) and fields.get("extend_support") is True

    def _sub(self, params: list[bytes]) -> None:
        if self.settings.heartbeat_interval <= 0:
            raise Refused("E_INVALID", "cannot SUB with heartbeats disabled")
        checked = server_commands.read_sub(params)
        name = params[0].decode()
        if name != "SUB" and self.settings.sample_rate > 0:
            raise Refused("E_INVALID", f"{name} can not use sample rate")
        # With a start to read from, the server forgets to read the partition.
        partition = _partition(params[3]) if len(params) == 4 else None
        start = params[4].decode("ascii", "replace") if len(params) > 4 else ""
        self._events.append(
            PartitionSub(name, checked.topic, checked.channel, partition, start)
        )

    def _create_topic(self, params: list[bytes]) -> None:
        if len(params) < 3:
            raise Refused("E_INVALID", "CREATE_TOPIC insufficient number of parameters")
        topic = params[1].decode("ascii", "replace")
        if not is_valid_name(topic):
            raise Refused("E_BAD_TOPIC", f"CREATE_TOPIC topic name {topic!r} is not valid")
        partition = _partition(params[2])
        self._events.append(CreateTopic("INTERNAL_CREATE_TOPIC", topic, partition))

    def _pub(self, params: list[bytes]) -> None:
        self._publish_one(params)

    def _mpub(self, params: list[bytes]) -> None:
        self._publish_many(params)

    def _open(self, params: list[bytes]) -> tuple[str, str, int | None]:
        """Read command, topic and partition, which counts only as the last of three words."""
        command = params[0].decode()
        if len(params) < 2:
            raise Refused("E_INVALID", f"{command} insufficient number of parameters")
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
            if size <= _SMALLEST[command]:
                raise Refused("E_BAD_BODY", f"{command} invalid body size {size}")
            server_commands.check_message_size(command, size, self._limits)
            self._expect(size, take, "E_BAD_MESSAGE", f"{command} failed to read message body")

        def take(data: bytes) -> None:
            self._events.append(PartitionPub(command, topic, partition, [parse(data)]))

        self._expect(4, take_size, "E_BAD_MESSAGE", f"{command} failed to read message body size")

    def _publish_many(self, params: list[bytes]) -> None:
        command, topic, partition = self._open(params)
        parse = _PARSERS[command]
        messages: list[NewMessage] = []
        left = 0

        def take_size(data: bytes) -> None:
            size = int.from_bytes(data, "big", signed=True)
            server_commands.check_body_size(command, size, self._limits)
            self._expect(4, take_count, "E_BAD_BODY", f"{command} failed to read message count")

        def take_count(data: bytes) -> None:
            nonlocal left
            left = int.from_bytes(data, "big", signed=True)
            server_commands.check_mpub_count(left, self._limits)
            expect_message()
            if command == "MPUB_EXT":
                self._events.append(CheckExt(command, topic, partition))

        def expect_message() -> None:
            missing = f"{command} failed to read message({len(messages)}) body size"
            self._expect(4, take_message_size, "E_BAD_MESSAGE", missing)

        def take_message_size(data: bytes) -> None:
            size = int.from_bytes(data, "big", signed=True)
            server_commands.check_message_size(command, size, self._limits, len(messages))
            self._expect(size, take, "E_BAD_MESSAGE", f"{command} failed to read message body")

        def take(data: bytes) -> None:
            message = parse(data)
            if message.header:
                check_header(message.header)  # in the middle of the body: the rest stays unread
            messages.append(message)
            if len(messages) < left:
                expect_message()
            else:
                self._events.append(PartitionPub(command, topic, partition, messages))

        self._expect(4, take_size, "E_BAD_BODY", f"{command} failed to read body size")


def check_header(header: bytes) -> int:
    """Check a JSON header; return the trace id in it, 0 where there is none.

    Raises:
        Refused: E_INVALID_JSON_HEADER or INVALID_TRACE_ID.
    """
    try:
        fields = json.loads(header)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise Refused("E_INVALID_JSON_HEADER", "fail to parse json header")
    trace = fields.get(TRACE_KEY)
    if trace is None:
        return 0
    # A decimal string; a number of JSON would lose digits.
    if not (isinstance(trace, str) and trace.isascii() and trace.isdigit()):
        raise Refused("INVALID_TRACE_ID", "fail to parse trace id in json header")
    digits = trace.lstrip("0") or "0"
    # The length first: int() refuses thousands of digits.
    if len(digits) > 20 or int(digits) >= 2**64:
        raise Refused("INVALID_TRACE_ID", "fail to parse trace id in json header")
    return int(digits)


def has_trace(header: bytes) -> bool:
    """Tell whether a checked header asks for the 30-byte answer."""
    return bool(header) and TRACE_KEY in json.loads(header)


def _partition(word: bytes) -> int | None:
    """Read a partition; -1 stands for none.

    Raises:
        Refused: E_BAD_PARTITION.
    """
    try:
        number = int(word) if word.isascii() else None
    except ValueError:
        number = None
    if number is None or number < -1:
        text = f"topic partition is not valid: {word.decode('utf-8', 'replace')}"
        raise Refused("E_BAD_PARTITION", text)
    return None if number == -1 else number


def _plain(data: bytes) -> NewMessage:
    return NewMessage(data)


def _traced(data: bytes) -> NewMessage:
    if len(data) <= _trace.size:
        raise Refused("E_BAD_BODY", f"invalid body size {len(data)} for trace")
    return NewMessage(data[_trace.size:], _trace.unpack_from(data)[0])


def _extended(data: bytes) -> NewMessage:
    start = _length.size
    size = _length.unpack_from(data)[0] if len(data) >= start else 0
    header, body = data[start:start + size], data[start + size:]
    if len(header) < size or not body:
        raise Refused("E_BAD_BODY", f"invalid body size {len(data)} for json header")
    return NewMessage(body, header=header)


_PARSERS: dict[str, _Parse] = {
    "PUB": _plain, "MPUB": _plain, "PUB_TRACE": _traced, "MPUB_TRACE": _traced,
    "PUB_EXT": _extended, "MPUB_EXT": _extended,
}
#: Payloads of a single publish must be longer than this many bytes.
_SMALLEST = {"PUB": 0, "PUB_TRACE": 8, "PUB_EXT": 2}
