"""The server side of the protocol: bytes in, events out, bytes to write out.

The life of a connection, drawn from :data:`TRANSITIONS`::

    INIT --SUB--> SUBSCRIBED --CLS--> CLOSING
      any of them --fatal error or end of stream--> CLOSED

How to drive it, always in this order::

    core.receive_data(data)                    # or receive_eof()
    while events := core.take_events():
        for event in events:                   # answer each: respond() or fail()
            ...                                # leave the loop when core.is_closed
    write(core.data_to_send())                 # then close the socket if core.is_closed

Source: TCP protocol spec, "Commands"; texts, order of checks and limits as in nsqd 1.3.0.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from nsqclient.errors import SERVER_ERRORS, RemoteProtocolError, TLSError
from nsqclient.protocol import server_commands as commands
from nsqclient.protocol import server_identify
from nsqclient.protocol.layers import ByteLayer, LayerStack
from nsqclient.protocol.server_commands import Refused
from nsqclient.protocol.server_events import (
    Auth,
    Cls,
    Dpub,
    Event,
    Identify,
    Ignored,
    Mpub,
    OpenTopic,
    Pub,
)
from nsqclient.protocol.server_identify import ClientSettings, InvalidIdentify, ServerLimits
from nsqclient.protocol.server_reader import CommandReader
from nsqclient.protocol.server_values import tls_reason
from nsqclient.protocol.wire import (
    HEARTBEAT,
    MAGIC_V2,
    FrameType,
    encode_frame,
    encode_message,
)

#: Commands handed over at once, so that one busy client does not hold up the others.
_MAX_EVENTS = 500


class ServerState(Enum):
    """Where a connection stands, seen from the server."""

    INIT = "init"
    SUBSCRIBED = "subscribed"
    CLOSING = "closing"
    CLOSED = "closed"


_ANY_TIME = (b"PUB", b"MPUB", b"DPUB", b"NOP")
_IN_FLIGHT = (b"FIN", b"REQ", b"TOUCH")

#: state -> command -> state after it. A command that is missing in a state is refused there.
TRANSITIONS: dict[ServerState, dict[bytes, ServerState]] = {
    ServerState.INIT: {
        **dict.fromkeys((*_ANY_TIME, b"IDENTIFY", b"AUTH"), ServerState.INIT),
        b"SUB": ServerState.SUBSCRIBED,
    },
    ServerState.SUBSCRIBED: {
        **dict.fromkeys((*_ANY_TIME, *_IN_FLIGHT, b"RDY"), ServerState.SUBSCRIBED),
        b"CLS": ServerState.CLOSING,
    },
    # RDY is legal here and without effect: a client may have sent it before CLOSE_WAIT came.
    ServerState.CLOSING: dict.fromkeys((*_ANY_TIME, *_IN_FLIGHT, b"RDY"), ServerState.CLOSING),
    ServerState.CLOSED: {},
}


class ServerProtocol:
    """One connection of a server. Not thread-safe: its owner serialises the calls."""

    _transitions = TRANSITIONS
    _pauses_after: tuple[type, ...] = (Identify,)  # events to be answered before the next byte

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self._limits = ServerLimits() if limits is None else limits
        self.state = ServerState.INIT
        #: What the client negotiated so far; replaced by each IDENTIFY.
        self.settings = ClientSettings(
            self._limits.heartbeat_interval,
            self._limits.msg_timeout,
            self._limits.output_buffer_size,
            self._limits.output_buffer_timeout,
        )
        self._layers = LayerStack()
        self._is_secure = False  # TLS was agreed on, so what is read has come through it
        self._reader = CommandReader()
        self._eof = False
        self._out: list[bytes] = []
        self._wire: list[bytes] = []  # already encoded by the layers that were there then
        self._events: list[Event] = []
        self._held: Refused | None = None  # an error that waits for the answers before it
        # What is read next: _need bytes for _take, or a line when _take is None.
        self._need = len(MAGIC_V2)
        self._take: Callable[[bytes], None] | None = self._take_magic
        self._at_eof: Refused | None = None  # what nsqd says when the stream ends here
        self._commands: dict[bytes, Callable[[list[bytes]], None]] = {
            b"IDENTIFY": self._identify, b"AUTH": self._auth, b"SUB": self._sub,
            b"RDY": self._rdy, b"FIN": self._fin, b"REQ": self._req, b"TOUCH": self._touch,
            b"CLS": self._cls, b"NOP": self._nop,
            b"PUB": self._pub, b"DPUB": self._dpub, b"MPUB": self._mpub,
        }

    # -- the four verbs

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the socket. Call ``take_events()`` next."""
        if len(self._layers):
            self._reader.feed_later(self._layers.decode(data))
        else:
            self._reader.feed(data)

    def receive_eof(self) -> None:
        """Note the end of the stream. Call ``take_events()`` next; the core closes after it."""
        self._eof = True

    def take_events(self) -> list[Event]:
        """Read what is there and return the commands in it that need an outcome.

        Answer all of them, then call again, until the list is empty: an error of the core's
        own is held back until what came before it is answered, so that the order is kept. The
        bytes after an IDENTIFY are not read before it is answered.
        """
        held, self._held = self._held, None
        if held is not None and not self.is_closed:
            self._refuse(held)
        events = self._events = []
        try:
            self._read()
        except Refused as refused:
            if not events:
                self._refuse(refused)
            else:
                self._held = refused
        except TLSError as exc:
            self.fail_handshake(tls_reason(exc.reason))
        except RemoteProtocolError:
            self.close()  # a broken stream: nsqd drops the connection without a frame
        return events

    def data_to_send(self) -> bytes:
        """Return the bytes to write to the socket, and forget them."""
        self._encode()
        wire, self._wire = self._wire, []
        return b"".join(wire)

    def _encode(self) -> None:
        out, self._out = self._out, []
        data = self._layers.encode(b"".join(out))
        if data:
            self._wire.append(data)

    # -- answers of the I/O side

    def respond(self, data: bytes) -> None:
        """Answer a command with a response frame."""
        self._out.append(encode_frame(FrameType.RESPONSE, data))

    def fail(self, code: str, text: str | bytes = b"") -> None:
        """Answer a command with an error frame; the connection ends unless the code spares it."""
        self._refuse(Refused(code, text))

    def send_message(self, timestamp: int, attempts: int, message_id: bytes, body: bytes) -> None:
        """Push a message to the client."""
        self._out.append(encode_message(timestamp, attempts, message_id, body))

    def send_heartbeat(self) -> None:
        """Ask the client for a sign of life."""
        self.respond(HEARTBEAT)

    def start_layer(self, layer: ByteLayer) -> None:
        """Put TLS or a compression under the frames; the client's unread bytes go through it.

        Only on an Identify event. What was answered before goes out without it, and nsqd
        answers OK inside it next.
        """
        self._encode()
        self._reader.feed_later(self._layers.push(layer, self._reader.take_all()))
        self._is_secure = self._is_secure or self.settings.tls

    def fail_handshake(self, reason: str) -> None:
        """Give up TLS: its last words, then nsqd's error in plain, then the end."""
        last_words = self._layers.encode(b"")
        if last_words:
            self._wire.append(last_words)
        self._layers = LayerStack()
        self._out.clear()
        self.fail("E_IDENTIFY_FAILED", f"IDENTIFY failed {reason}")

    def close(self) -> None:
        """End the connection without a frame, as nsqd does when a topic is deleted."""
        self.state = ServerState.CLOSED
        self._reader.take_all()

    @property
    def is_closed(self) -> bool:
        """Whether the socket is to be closed once ``data_to_send()`` is written."""
        return self.state is ServerState.CLOSED

    # -- reading

    def _read(self) -> None:
        """Read commands until bytes are missing, or until an IDENTIFY waits for its answer."""
        reader = self._reader
        events = self._events
        while self.state is not ServerState.CLOSED:
            if len(events) >= _MAX_EVENTS:
                return
            if self._take is not None:
                block = reader.block(self._need)
                if block is None:
                    break
                take, self._take = self._take, None
                take(block)
                if events and type(events[-1]) in self._pauses_after:
                    return
                continue
            line = self._line()
            if line is None:
                break
            self._command(line)
        if reader.line_too_long:
            self.close()  # nsqd's read buffer is full: it drops the connection without a frame
        if self._eof and not self.is_closed:
            if self._take is not None and self._at_eof is not None:
                raise self._at_eof
            if not events:
                self.close()

    def _line(self) -> bytes | None:
        return self._reader.line()

    def _split(self, line: bytes) -> list[bytes]:
        return line.split(b" ")

    def _unknown(self, name: bytes, line: bytes) -> Refused:
        return Refused("E_INVALID", b"invalid command " + name)

    def _is_fatal(self, code: str) -> bool:
        return SERVER_ERRORS.get(code, (None, True))[1]

    def _command(self, line: bytes) -> None:
        params = self._split(line)
        name = params[0]
        if self._limits.tls_required and not self._is_secure and name != b"IDENTIFY":
            raise Refused("E_INVALID", b"cannot %b in current state (TLS required)" % name)
        command = self._commands.get(name)
        if command is None:
            raise self._unknown(name, line)
        after = self._transitions[self.state].get(name)
        if after is None:
            raise Refused("E_INVALID", b"cannot %b in current state" % name)
        command(params)
        self.state = after

    def _refuse(self, refused: Refused) -> None:
        code, text = refused.code, refused.text
        data = code.encode() + (b" " + text if text else b"")
        self._out.append(encode_frame(FrameType.ERROR, data))
        if self._is_fatal(code):
            self.close()

    def _expect(self, size: int, take: Callable[[bytes], None], code: str, missing: str) -> None:
        """Read ``size`` bytes next; ``code`` and ``missing`` are nsqd's words if they miss."""
        self._need = size
        self._take = take
        self._at_eof = Refused(code, missing)

    def _take_magic(self, magic: bytes) -> None:
        if magic != MAGIC_V2:
            raise Refused("E_BAD_PROTOCOL")

    # -- one line

    def _sub(self, params: list[bytes]) -> None:
        if self.settings.heartbeat_interval <= 0:
            raise Refused("E_INVALID", "cannot SUB with heartbeats disabled")
        self._events.append(commands.read_sub(params))

    def _rdy(self, params: list[bytes]) -> None:
        if self.state is ServerState.CLOSING:
            self._events.append(Ignored(b" ".join(params)))
        else:
            self._events.append(commands.read_rdy(params, self._limits))

    def _fin(self, params: list[bytes]) -> None:
        self._events.append(commands.read_fin(params))

    def _req(self, params: list[bytes]) -> None:
        self._events.append(commands.read_req(params, self._limits))

    def _touch(self, params: list[bytes]) -> None:
        self._events.append(commands.read_touch(params))

    def _cls(self, params: list[bytes]) -> None:
        self._events.append(Cls())

    def _nop(self, params: list[bytes]) -> None:
        self._events.append(Ignored(b" ".join(params)))

    # -- commands with a body: [line][4 B size][body]

    def _identify(self, params: list[bytes]) -> None:
        self._body("IDENTIFY", self._take_identify)

    def _take_identify(self, body: bytes) -> None:
        try:
            fields = server_identify.decode(body)
            self.settings = server_identify.negotiate(fields, self.settings, self._limits)
        except InvalidIdentify as exc:
            raise Refused(exc.code, exc.text) from exc
        answer = server_identify.response(self.settings, self._limits)
        self._events.append(Identify(self.settings, answer))

    def _auth(self, params: list[bytes]) -> None:
        if len(params) != 1:
            raise Refused("E_INVALID", "AUTH invalid number of parameters")
        self._body("AUTH", lambda secret: self._events.append(Auth(secret)))

    def _body(self, command: str, take: Callable[[bytes], None]) -> None:
        def take_size(data: bytes) -> None:
            size = _int32(data)
            commands.check_body_size(command, size, self._limits)
            self._expect(size, take, "E_BAD_BODY", f"{command} failed to read body")

        self._expect(4, take_size, "E_BAD_BODY", f"{command} failed to read body size")

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
            missing = f"{command} failed to read message body"
            self._expect(size, take, "E_BAD_MESSAGE", missing)

        missing = f"{command} failed to read message body size"
        self._expect(4, take_size, "E_BAD_MESSAGE", missing)

    # -- MPUB: [line][4 B body size][4 B count] then count times [4 B size][body].
    # nsqd only checks that the body size is in range; what it reads follows the inner sizes.

    def _mpub(self, params: list[bytes]) -> None:
        topic = commands.read_topic(b"MPUB", params)
        self._events.append(OpenTopic(topic))
        bodies: list[bytes] = []
        count = 0

        def take_size(data: bytes) -> None:
            commands.check_body_size("MPUB", _int32(data), self._limits)
            self._expect(4, take_count, "E_BAD_BODY", "MPUB failed to read message count")

        def take_count(data: bytes) -> None:
            nonlocal count
            count = _int32(data)
            commands.check_mpub_count(count, self._limits)
            expect_message()

        def expect_message() -> None:
            missing = f"MPUB failed to read message({len(bodies)}) body size"
            self._expect(4, take_message_size, "E_BAD_MESSAGE", missing)

        def take_message_size(data: bytes) -> None:
            size = _int32(data)
            commands.check_message_size("MPUB", size, self._limits, len(bodies))
            self._expect(size, take_body, "E_BAD_MESSAGE", "MPUB failed to read message body")

        def take_body(body: bytes) -> None:
            bodies.append(body)
            if len(bodies) == count:
                self._events.append(Mpub(topic, bodies))
            else:
                expect_message()

        self._expect(4, take_size, "E_BAD_BODY", "MPUB failed to read body size")


def _int32(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)
