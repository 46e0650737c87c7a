"""The server side of the protocol: bytes in, events out, bytes to write out.

The states of a connection, from :data:`TRANSITIONS`::

    INIT --SUB--> SUBSCRIBED --CLS--> CLOSING
      any of them --fatal error or end of stream--> CLOSED

Call it in this order::

    core.receive_data(data)                    # or receive_eof()
    while events := core.take_events():
        for event in events:                   # answer each: respond() or fail()
            ...                                # leave the loop when core.is_closed
    write(core.data_to_send())                 # then close the socket if core.is_closed

Source: TCP protocol spec, "Commands"; texts, order of checks and limits as in nsqd 1.3.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain
from typing import TypeVar

from nsqclient.devserver.protocol import commands
from nsqclient.devserver.protocol.commands import (
    Auth, ClientSettings, Cls, CommandError, Dpub, Event, Fin, Identify, Ignored, Mpub, OpenTopic,
    Pub, ServerLimits, Touch,
)
from nsqclient.errors import RemoteProtocolError, ServerError, TLSError
from nsqclient.protocol.frames import HEARTBEAT, MAGIC_V2, FrameType, encode_frame, encode_message
from nsqclient.protocol.layers import ByteLayer, LayerStack

M = TypeVar("M")

#: A command line, its newline included, must fit nsqd's read buffer.
MAX_LINE_SIZE = 16 * 1024


class CommandReader:
    """Cuts received bytes into lines, and blocks of known size; returns None if bytes are missing.

    Chunks are joined only when a block is complete, so a large body is copied once.
    """

    def __init__(self) -> None:
        self._buf = b""
        self._pos = 0
        self._chunks: list[bytes] = []  # received after _buf
        self._have = 0  # unread bytes in all
        self._later: deque[Iterator[bytes]] = deque()  # read when the chunks do not suffice
        #: True once a line is longer than nsqd reads.
        self.line_too_long: bool = False

    def __len__(self) -> int:
        return self._have

    def feed(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
            self._have += len(data)

    def feed_later(self, pieces: Iterator[bytes]) -> None:
        """Add bytes that the iterator produces piece by piece, when they are read."""
        self._later.append(pieces)

    def peek(self, size: int) -> bytes:
        """Return up to ``size`` bytes without taking them."""
        while self._have < size and self._fetch():
            pass
        if self._chunks:
            self._join()
        return self._buf[self._pos:self._pos + size]

    def line(self, fixed: int = 0) -> bytes | None:
        """Take one line without its end. The first ``fixed`` bytes may contain newlines."""
        while True:
            if self._chunks:
                self._join()
            start = self._pos
            stop = self._buf.find(b"\n", start + fixed, start + MAX_LINE_SIZE)
            if stop >= 0:
                break
            if self._have >= MAX_LINE_SIZE:
                self.line_too_long = True
                return None
            if not self._fetch():
                return None
        self._pos = stop + 1
        self._have -= stop + 1 - start
        line = self._buf[start:stop]
        return line[:-1] if line.endswith(b"\r") and len(line) > fixed else line

    def block(self, size: int) -> bytes | None:
        while self._have < size:
            if not self._fetch():
                return None
        if self._chunks and len(self._buf) - self._pos < size:
            self._join()
        start = self._pos
        self._pos = start + size
        self._have -= size
        return self._buf[start:self._pos]

    def take_all(self) -> Iterator[bytes]:
        """Take all bytes, also from ``feed_later()`` (for the next byte layer)."""
        if self._chunks:
            self._join()
        rest, later = self._buf[self._pos:], self._later
        self._buf, self._pos, self._have, self._later = b"", 0, 0, deque()
        return chain((rest,), *later)

    def _fetch(self) -> bool:
        while self._later:
            for piece in self._later[0]:
                self.feed(piece)
                return True
            self._later.popleft()
        return False

    def _join(self) -> None:
        if self._pos < len(self._buf):
            self._chunks.insert(0, self._buf[self._pos:])
        self._buf = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._pos = 0
        self._chunks = []


#: Commands returned at once: a small compressed block may hold millions.
MAX_EVENTS = 500


class ServerState(Enum):
    """The state of a connection on the server's side."""

    INIT = "init"
    SUBSCRIBED = "subscribed"
    CLOSING = "closing"
    CLOSED = "closed"


_ANY_TIME = (b"PUB", b"MPUB", b"DPUB", b"NOP")
_IN_FLIGHT = (b"FIN", b"REQ", b"TOUCH")

#: state -> command -> state after it. A command missing in a state is an error there.
TRANSITIONS: dict[ServerState, dict[bytes, ServerState]] = {
    ServerState.INIT: {
        **dict.fromkeys((*_ANY_TIME, b"IDENTIFY", b"AUTH"), ServerState.INIT),
        b"SUB": ServerState.SUBSCRIBED,
    },
    ServerState.SUBSCRIBED: {
        **dict.fromkeys((*_ANY_TIME, *_IN_FLIGHT, b"RDY"), ServerState.SUBSCRIBED),
        b"CLS": ServerState.CLOSING,
    },
    # RDY is allowed here without effect: a client may send it before it receives CLOSE_WAIT.
    ServerState.CLOSING: dict.fromkeys((*_ANY_TIME, *_IN_FLIGHT, b"RDY"), ServerState.CLOSING),
    ServerState.CLOSED: {},
}


class ServerProtocol:
    """One connection of a server. Not thread-safe: its owner serialises the calls."""

    _transitions = TRANSITIONS

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self._limits = ServerLimits() if limits is None else limits
        self.state: ServerState = ServerState.INIT
        #: The connection ends with a TCP reset.
        self.ends_with_reset = False
        #: The negotiated settings; replaced by each IDENTIFY.
        self.settings: ClientSettings = ClientSettings(
            self._limits.heartbeat_interval,
            self._limits.msg_timeout,
            self._limits.output_buffer_size,
            self._limits.output_buffer_timeout,
        )
        #: The errors that were sent, for the log; the owner removes them.
        self.sent_errors: list[bytes] = []
        self._layers = LayerStack()
        self._is_secure = False  # the bytes that are read came through TLS
        self._reader = CommandReader()
        self._eof = False
        self._out: list[bytes] = []
        self._wire: list[bytes] = []  # already encoded by the layers
        self._events: list[Event] = []
        # To be sent once the commands before it are answered.
        self._pending_error: CommandError | None = None
        # Read next: _need bytes for _take, or a line if _take is None.
        self._need = len(MAGIC_V2)
        self._take: Callable[[bytes], None] | None = self._take_magic
        self._commands: dict[bytes, Callable[[list[bytes]], None]] = {
            b"IDENTIFY": self._identify, b"AUTH": self._auth, b"SUB": self._sub,
            b"RDY": self._rdy, b"FIN": self._fin, b"REQ": self._req, b"TOUCH": self._touch,
            b"CLS": self._cls, b"NOP": self._nop,
            b"PUB": self._pub, b"DPUB": self._dpub, b"MPUB": self._mpub,
        }

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the socket. Call ``take_events()`` next."""
        if self._layers.stack:
            self._reader.feed_later(map(self._layers.decode, [data]))
        else:
            self._reader.feed(data)

    def receive_eof(self) -> None:
        """Take the end of the stream. Call ``take_events()`` next; then the core closes."""
        self._eof = True

    def take_events(self) -> list[Event]:
        """Return the commands in the bytes received so far.

        Answer all of them, then call again, until the list is empty. An error that the core finds
        itself is sent after these answers. Bytes after an IDENTIFY are read once it is answered.
        """
        pending, self._pending_error = self._pending_error, None
        if pending is not None and not self.is_closed:
            self._send_error(pending)
        events = self._events = []
        try:
            self._read()
        except CommandError as error:
            if not events:
                self._send_error(error)
            else:
                self._pending_error = error
        except TLSError as exc:
            self.fail_handshake(f"tls: {exc.reason}")
        except RemoteProtocolError:
            self.close()  # a broken stream: nsqd drops the connection without a frame
        return events

    def data_to_send(self) -> bytes:
        self._encode()
        wire, self._wire = self._wire, []
        return b"".join(wire)

    def _encode(self) -> None:
        out, self._out = self._out, []
        data = self._layers.encode(b"".join(out))
        if data:
            self._wire.append(data)

    def respond(self, data: bytes) -> None:
        self._out.append(encode_frame(FrameType.RESPONSE, data))

    def fail(self, code: str, text: str | bytes = b"") -> None:
        self._send_error(CommandError(code, text))

    def send_message(self, timestamp: int, attempts: int, message_id: bytes, body: bytes) -> None:
        self._out.append(encode_message(timestamp, attempts, message_id, body))

    def send_heartbeat(self) -> None:
        self.respond(HEARTBEAT)

    def start_layer(self, layer: ByteLayer) -> None:
        """Put TLS or a compression under the frames; the client's unread bytes go through it.

        Call it only for an Identify event. Earlier answers are sent without the layer.
        """
        self._encode()
        self._layers.push(layer)
        self._reader.feed_later(map(layer.decode, self._reader.take_all()))
        self._is_secure = self._is_secure or self.settings.tls

    def fail_handshake(self, reason: str) -> None:
        """End the connection: send the last bytes of TLS, then nsqd's error in plain text."""
        alert = self._layers.encode(b"")
        if alert:
            self._wire.append(alert)
        self._layers = LayerStack()
        self._out.clear()
        self.fail("E_IDENTIFY_FAILED", f"IDENTIFY failed {reason}")

    def close(self) -> None:
        """End the connection without a frame, as nsqd does when a topic is deleted."""
        self.state = ServerState.CLOSED
        self._reader.take_all()

    @property
    def is_closed(self) -> bool:
        return self.state is ServerState.CLOSED

    def _read(self) -> None:
        """Read commands until bytes are missing or an IDENTIFY waits for its answer."""
        reader = self._reader
        events = self._events
        while self.state is not ServerState.CLOSED:
            if len(events) >= MAX_EVENTS:
                return
            if self._take is not None:
                block = reader.block(self._need)
                if block is None:
                    break
                take, self._take = self._take, None
                take(block)
                if events and isinstance(events[-1], Identify):
                    return  # it is answered before the next byte is read
                continue
            line = self._line()
            if line is None:
                break
            self._command(line)
        if reader.line_too_long:
            self.close()  # nsqd's read buffer is full: it drops the connection without a frame
        if self._eof and not self.is_closed and not events:
            self.close()

    def _line(self) -> bytes | None:
        return self._reader.line()

    def _split(self, line: bytes) -> list[bytes]:
        return line.split(b" ")

    def _is_fatal(self, code: str) -> bool:
        return ServerError(code).fatal

    def _command(self, line: bytes) -> None:
        params = self._split(line)
        name = params[0]
        if self._limits.tls_required and not self._is_secure and name != b"IDENTIFY":
            raise CommandError("E_INVALID", b"cannot %b in current state (TLS required)" % name)
        command = self._commands.get(name)
        if command is None:
            raise CommandError("E_INVALID", b"invalid command " + name)
        after = self._transitions[self.state].get(name)
        if after is None:
            raise CommandError("E_INVALID", b"cannot %b in current state" % name)
        command(params)
        self.state = after

    def _send_error(self, error: CommandError) -> None:
        code, text = error.code, error.text
        data = code.encode() + (b" " + text if text else b"")
        self._out.append(encode_frame(FrameType.ERROR, data))
        self.sent_errors.append(data)
        if self._is_fatal(code):
            self.close()

    def _expect(self, size: int, take: Callable[[bytes], None]) -> None:
        self._need = size
        self._take = take

    def _take_magic(self, magic: bytes) -> None:
        if magic != MAGIC_V2:
            raise CommandError("E_BAD_PROTOCOL")

    def _sub(self, params: list[bytes]) -> None:
        if self.settings.heartbeat_interval <= 0:
            raise CommandError("E_INVALID", "cannot SUB with heartbeats disabled")
        self._events.append(commands.read_sub(params))

    def _rdy(self, params: list[bytes]) -> None:
        if self.state is ServerState.CLOSING:
            self._events.append(Ignored(b" ".join(params)))
        else:
            self._events.append(commands.read_rdy(params, self._limits))

    def _fin(self, params: list[bytes]) -> None:
        self._events.append(Fin(commands.read_message_id(b"FIN", params)))

    def _req(self, params: list[bytes]) -> None:
        self._events.append(commands.read_req(params, self._limits))

    def _touch(self, params: list[bytes]) -> None:
        self._events.append(Touch(commands.read_message_id(b"TOUCH", params)))

    def _cls(self, params: list[bytes]) -> None:
        self._events.append(Cls())

    def _nop(self, params: list[bytes]) -> None:
        self._events.append(Ignored(b" ".join(params)))

    def _identify(self, params: list[bytes]) -> None:
        self._body("IDENTIFY", self._take_identify)

    def _take_identify(self, body: bytes) -> None:
        fields = commands.decode_identify(body)
        self.settings = commands.negotiate(fields, self.settings, self._limits)
        answer = commands.identify_response(self.settings, self._limits)
        self._events.append(Identify(self.settings, answer))

    def _auth(self, params: list[bytes]) -> None:
        if len(params) != 1:
            raise CommandError("E_INVALID", "AUTH invalid number of parameters")
        self._body("AUTH", lambda secret: self._events.append(Auth(secret)))

    def _body(self, command: str, take: Callable[[bytes], None]) -> None:
        def take_size(data: bytes) -> None:
            size = _int32(data)
            commands.check_body_size(command, size, self._limits)
            self._expect(size, take)

        self._expect(4, take_size)

    def _pub(self, params: list[bytes]) -> None:
        topic = commands.read_topic(b"PUB", params)
        self._message("PUB", lambda body: self._events.append(Pub(topic, body)))

    def _dpub(self, params: list[bytes]) -> None:
        topic, delay = commands.read_dpub(params, self._limits)
        self._message("DPUB", lambda body: self._events.append(Dpub(topic, delay, body)))

    def _message(self, command: str, take: Callable[[bytes], None]) -> None:
        def take_size(data: bytes) -> None:
            size = _int32(data)
            commands.check_message_size(command, size, self._limits)
            self._expect(size, take)

        self._expect(4, take_size)

    # -- MPUB: [line][4 B body size][4 B count] then count times [4 B size][body].
    # nsqd only checks that the body size is in range, and then reads by the inner sizes.

    def _mpub(self, params: list[bytes]) -> None:
        topic = commands.read_topic(b"MPUB", params)
        self._events.append(OpenTopic(topic))
        self._messages("MPUB", bytes, lambda bodies: self._events.append(Mpub(topic, bodies)))

    def _messages(
        self,
        command: str,
        parse: Callable[[bytes], M],
        take: Callable[[list[M]], None],
    ) -> None:
        messages: list[M] = []
        count = 0

        def take_size(data: bytes) -> None:
            commands.check_body_size(command, _int32(data), self._limits)
            self._expect(4, take_count)

        def take_count(data: bytes) -> None:
            nonlocal count
            count = _int32(data)
            commands.check_mpub_count(count, self._limits)
            expect_message()

        def expect_message() -> None:
            self._expect(4, take_message_size)

        def take_message_size(data: bytes) -> None:
            size = _int32(data)
            commands.check_message_size(command, size, self._limits, len(messages))
            self._expect(size, take_message)

        def take_message(data: bytes) -> None:
            messages.append(parse(data))
            if len(messages) == count:
                take(messages)
            else:
                expect_message()

        self._expect(4, take_size)


def _int32(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)
