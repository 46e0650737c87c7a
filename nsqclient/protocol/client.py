"""The client's side of the protocol, as a state machine without I/O.

``receive_data`` and ``receive_eof`` take input from the socket; ``take_events`` returns what it
means. ``data_to_send`` returns the bytes to write. Call the last two after each call of the first
two, and of any ``send_...`` method. While a connection ``has_layers``, pass few bytes at a time,
because deflate may expand them a thousandfold.

Source: TCP protocol spec; client guide, "Feature Negotiation" and "Data Flow and Heartbeats".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from nsqclient.errors import (
    ClosedError,
    LocalProtocolError,
    RemoteProtocolError,
    ServerError,
    server_error,
)
from nsqclient.protocol import commands
from nsqclient.protocol.events import (
    CommandFailed,
    Authenticated,
    CloseWait,
    Event,
    Heartbeat,
    Identified,
    Messages,
    PublishFailed,
    Published,
    FatalError,
    ServerSettings,
    Subscribed,
    Upgraded,
    read_json,
    read_settings,
)
from nsqclient.protocol.frames import (
    CLOSE_WAIT,
    DEFAULT_MAX_FRAME_SIZE,
    HEARTBEAT,
    MAGIC_V2,
    OK,
    Frame,
    FrameReader,
    FrameType,
)
from nsqclient.protocol.layers import ByteLayer, LayerStack


class State(Enum):
    """The state of a connection."""

    NEW = "new"  #: nothing sent
    IDENTIFYING = "identifying"  #: IDENTIFY sent, its answer awaited
    UPGRADING = "upgrading"  #: a byte layer must be pushed, or was pushed and its OK is awaited
    AUTHENTICATING = "authenticating"  #: AUTH sent, its answer awaited
    READY = "ready"  #: may publish, may subscribe
    SUBSCRIBING = "subscribing"  #: SUB sent, its answer awaited
    SUBSCRIBED = "subscribed"  #: messages flow while RDY > 0
    CLOSING = "closing"  #: CLS sent; messages may still arrive
    DRAINING = "draining"  #: CLOSE_WAIT received; no more messages arrive
    CLOSED = "closed"  #: EOF, or a fatal error


class Transition(Enum):
    """An input that changes the state."""

    SEND_IDENTIFY = "send IDENTIFY"
    GET_IDENTIFY = "answer to IDENTIFY"
    GRANT_LAYERS = "answer to IDENTIFY that grants TLS or compression"
    UPGRADED = "OK of the last layer"
    SEND_AUTH = "send AUTH"
    GET_AUTH = "answer to AUTH"
    SEND_SUB = "send SUB"
    GET_SUB = "answer to SUB"
    SEND_CLS = "send CLS"
    GET_CLS = "answer to CLS"
    END = "end of the stream or fatal error"


#: Every legal transition; ``docs/topics/architecture.rst`` shows this table.
TRANSITIONS: dict[tuple[State, Transition], State] = {
    (State.NEW, Transition.SEND_IDENTIFY): State.IDENTIFYING,
    (State.IDENTIFYING, Transition.GET_IDENTIFY): State.READY,
    (State.IDENTIFYING, Transition.GRANT_LAYERS): State.UPGRADING,
    (State.UPGRADING, Transition.UPGRADED): State.READY,
    (State.READY, Transition.SEND_AUTH): State.AUTHENTICATING,
    (State.AUTHENTICATING, Transition.GET_AUTH): State.READY,
    (State.READY, Transition.SEND_SUB): State.SUBSCRIBING,
    (State.SUBSCRIBING, Transition.GET_SUB): State.SUBSCRIBED,
    (State.SUBSCRIBED, Transition.SEND_CLS): State.CLOSING,
    (State.CLOSING, Transition.GET_CLS): State.DRAINING,
    **{(state, Transition.END): State.CLOSED for state in State},
}


# Tuples, the common state first: an Enum's hash is computed in Python, for every message.
_HANDSHAKE = (State.NEW, State.IDENTIFYING, State.UPGRADING)
_MAY_ANSWER = (State.SUBSCRIBED, State.CLOSING, State.DRAINING)
_MAY_PUBLISH = (State.READY, *_MAY_ANSWER, State.SUBSCRIBING)

#: Errors to a publish after which a partitioned nsqd keeps the connection open; except to MPUB_EXT,
#: because nsqd then reads the rest of its body as commands, and closes.
_SPARES_PUBLISHERS = frozenset({
    "E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE", "E_PUB_FAILED", "E_MPUB_FAILED",
    "E_EXT_NOT_SUPPORT", "E_INVALID_JSON_HEADER", "INVALID_TRACE_ID",
})


class ExpectedResponse(Enum):
    IDENTIFY = "IDENTIFY"
    LAYER = "byte layer"
    AUTH = "AUTH"
    SUB = "SUB"
    CLS = "CLS"
    PUBLISH = "publish"


def expect_ok(data: bytes) -> None:
    """Read the response to a publish. Raises RemoteProtocolError unless it is ``OK``."""
    _expect(data, OK)


class ClientProtocol:
    """The protocol of one connection. Not thread-safe.

    Args:
        max_frame_size: limit on the frames that nsqd sends.
    """

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        self.state: State = State.NEW
        self.settings: ServerSettings = ServerSettings()
        self._reader = FrameReader(max_frame_size)
        self._layers = LayerStack()
        self._layers_due = 0  # granted in the answer to IDENTIFY, not yet pushed
        #: Oldest first. The caller removes the events that it takes.
        self.events: deque[Event] = deque()
        self._out: list[bytes] = []
        self._wire: list[bytes] = []  # already encoded by the layers
        self._nop_is_due = False  # a heartbeat is not answered yet
        # Unanswered commands, oldest first; nsqd answers in order. A publish has a token and a
        # function that reads its answer.
        self._awaited: deque[tuple[ExpectedResponse, Any, Callable[[bytes], Any]]] = deque()

    # -- from the socket

    def receive_data(self, data: bytes) -> None:
        """Process received bytes.

        Raises:
            RemoteProtocolError: the peer violates the protocol; take the earlier events, and close.
            TLSError: the handshake failed; send ``data_to_send()``, which has TLS's alert, and
                close.
        """
        if self.state is State.CLOSED:
            return  # bytes after a fatal error are meaningless
        self._parse(self._layers.decode(data) if self._layers.stack else data)

    @property
    def has_layers(self) -> bool:
        """True if TLS or compression is active."""
        return bool(self._layers.stack)

    def _parse(self, data: bytes) -> None:
        while True:
            # During the handshake, read one frame at a time: an answer may announce a byte layer,
            # to which the next bytes belong, even in the same segment.
            careful = self.state in _HANDSHAKE
            if careful and self._layers_due and not self._awaited:
                self._reader.hold(data)  # until push_layer
                return
            items = self._reader.feed(data, single=careful)
            for item in items:
                if isinstance(item, Frame):
                    if item.type == FrameType.RESPONSE:
                        self._on_response(item.data)
                    else:
                        self._on_error(server_error(item.data))
                elif self.state in _MAY_ANSWER:
                    self.events.append(Messages(item))
                else:
                    raise RemoteProtocolError(f"message while {self.state.value}")
                if self.state is State.CLOSED:
                    return  # bytes after a fatal error are meaningless
            if not items or not (careful or self._reader.is_broken):
                return
            data = b""

    def receive_eof(self) -> None:
        self._reader.take_buffered()  # free an incomplete frame; messages refer to us
        self._move(Transition.END)

    def push_layer(self, layer: ByteLayer) -> None:
        """Add the next byte layer: TLS, then compression.

        Bytes that are queued already are sent without the layer. Bytes that were received after the
        announcing frame go through it. nsqd answers with an OK inside the layer: ``Upgraded``.
        """
        if self.state is not State.UPGRADING or not self._layers_due:
            raise self._misuse("a byte layer")
        self._encode()
        self._layers_due -= 1
        self._awaited.append((ExpectedResponse.LAYER, None, expect_ok))
        self._answer_heartbeat()
        self._layers.push(layer)
        self._parse(layer.decode(self._reader.take_buffered()))

    def _on_response(self, data: bytes) -> None:
        if data == HEARTBEAT:
            self._nop_is_due = True
            self._answer_heartbeat()
            self.events.append(Heartbeat())
            return
        if not self._awaited:
            raise RemoteProtocolError(f"response {data[:64]!r} without a question")
        awaited, token, read_answer = self._awaited[0]
        if awaited is ExpectedResponse.PUBLISH:
            # In this order, so that unanswered() has the token if read_answer raises.
            self.events.append(Published(token, read_answer(data)))
            self._awaited.popleft()
            return
        self._awaited.popleft()
        if awaited is ExpectedResponse.IDENTIFY:
            self.settings = settings = read_settings(data)
            self._layers_due = settings.tls_v1 + (settings.deflate or settings.snappy)
            self.events.append(Identified(settings))
            self._move(Transition.GRANT_LAYERS if self._layers_due else Transition.GET_IDENTIFY)
            self._answer_heartbeat()
        elif awaited is ExpectedResponse.LAYER:
            expect_ok(data)
            self.events.append(Upgraded())
            if not self._layers_due:
                self._move(Transition.UPGRADED)
        elif awaited is ExpectedResponse.AUTH:
            self.events.append(Authenticated(read_json(data)))
            self._move(Transition.GET_AUTH)
        elif awaited is ExpectedResponse.SUB:
            expect_ok(data)
            self.events.append(Subscribed())
            self._move(Transition.GET_SUB)
        else:
            _expect(data, CLOSE_WAIT)
            self.events.append(CloseWait())
            self._move(Transition.GET_CLS)

    def _answer_heartbeat(self) -> None:
        """Send the NOP that is due, unless a layer is still missing.

        nsqd reads all bytes after IDENTIFY through the layers that it grants. It would take a plain
        NOP for the start of the TLS handshake.
        """
        is_early = self._layers_due or self.state in (State.NEW, State.IDENTIFYING)
        if self._nop_is_due and not is_early:
            self._nop_is_due = False
            if self._out[-1:] != [commands.NOP]:  # one NOP answers several heartbeats
                self._out.append(commands.NOP)

    def _on_error(self, error: ServerError) -> None:
        if not error.fatal:
            self.events.append(CommandFailed(error))
            return
        # Answers come in order, so the error belongs to the oldest command. nsqd does not read the
        # later ones, so unanswered() returns publishes that were not stored.
        token = None
        if self._awaited and self._awaited[0][0] is ExpectedResponse.PUBLISH:
            token = self._awaited[0][1]
            if not self.settings.is_stock and error.code in _SPARES_PUBLISHERS:
                self.events.append(PublishFailed(error, token))
                self._awaited.popleft()
                return
        self.events.append(FatalError(error, token))
        if token is not None:
            self._awaited.popleft()
        self._move(Transition.END)

    # -- to the socket

    def take_events(self) -> list[Event]:
        """Remove and return the events, oldest first."""
        events = list(self.events)
        self.events.clear()
        return events

    def has_data_to_send(self) -> bool:
        if self._out or self._wire:
            return True
        return bool(self._layers.stack) and self._layers.has_output()

    def data_to_send(self) -> bytes:
        """Remove and return the bytes to write."""
        if self._layers.stack or self._wire:  # a layer may have its own bytes to send
            self._encode()
            wire, self._wire = self._wire, []
        else:
            wire, self._out = self._out, []
        return wire[0] if len(wire) == 1 else b"".join(wire)

    def _encode(self) -> None:
        out, self._out = self._out, []
        data = b"".join(out)
        if self._layers.stack:
            data = self._layers.encode(data)
        if data:
            self._wire.append(data)

    def awaits_answer(self) -> bool:
        return bool(self._awaited)

    def unanswered(self) -> list[Any]:
        """Remove and return the tokens of publishes without a response, oldest first."""
        tokens = [token for awaited, token, _ in self._awaited
                  if awaited is ExpectedResponse.PUBLISH]
        self._awaited.clear()
        return tokens

    def send_identify(self, payload: Mapping[str, Any]) -> None:
        command = MAGIC_V2 + commands.identify(payload)
        self._ask(Transition.SEND_IDENTIFY, ExpectedResponse.IDENTIFY, command)

    def send_auth(self, secret: str) -> None:
        self._ask(Transition.SEND_AUTH, ExpectedResponse.AUTH, commands.auth(secret))

    def send_sub(self, topic: str, channel: str) -> None:
        self.send_sub_command(commands.sub(topic, channel))

    def send_sub_command(self, command: bytes) -> None:
        """Send SUB, or the command of a partitioned nsqd that takes its place."""
        self._ask(Transition.SEND_SUB, ExpectedResponse.SUB, command)

    def send_cls(self) -> None:
        """Send CLS: nsqd sends no more messages and answers CLOSE_WAIT."""
        self._ask(Transition.SEND_CLS, ExpectedResponse.CLS, commands.CLS)

    def send_publish(
        self, command: bytes, token: Any, read_answer: Callable[[bytes], Any] = expect_ok
    ) -> None:
        """Send the command of a publish.

        Args:
            token: identifies the publish in the events of its outcome.
            read_answer: converts the response to ``Published.answer``, or raises
                RemoteProtocolError.
        """
        self._need(_MAY_PUBLISH, "publish")
        self._awaited.append((ExpectedResponse.PUBLISH, token, read_answer))
        self._out.append(command)

    def send_nop(self) -> None:
        self._need(_MAY_PUBLISH, "NOP")
        self._out.append(commands.NOP)

    def send_rdy(self, count: int) -> None:
        self._need(_MAY_ANSWER, "RDY")
        self._out.append(commands.rdy(count, self.settings.max_rdy_count))

    def send_fin(self, message_ids: Iterable[bytes]) -> None:
        """Send FIN for each of the messages. The ids are not checked, because nsqd sent them."""
        self._need(_MAY_ANSWER, "FIN")
        joined = b"\nFIN ".join(message_ids)
        self._out.append(b"FIN %b\n" % joined if joined else b"")

    def send_req(self, message_id: bytes, delay_ms: int) -> None:
        self._need(_MAY_ANSWER, "REQ")
        self._out.append(commands.req(message_id, delay_ms, binary=not self.settings.is_stock))

    def send_touch(self, message_id: bytes) -> None:
        self._need(_MAY_ANSWER, "TOUCH")
        self._out.append(commands.touch(message_id, binary=not self.settings.is_stock))

    def _ask(self, did: Transition, awaited: ExpectedResponse, data: bytes) -> None:
        self._move(did)
        self._awaited.append((awaited, None, expect_ok))
        self._out.append(data)

    def _need(self, states: tuple[State, ...], what: str) -> None:
        if self.state not in states:
            raise self._misuse(what)

    def _move(self, did: Transition) -> None:
        state = TRANSITIONS.get((self.state, did))
        if state is None:
            raise self._misuse(did.value)
        self.state = state

    def _misuse(self, what: str) -> Exception:
        if self.state is State.CLOSED:
            return ClosedError(f"{what}: the connection is closed")
        return LocalProtocolError(f"{what} is not possible while {self.state.value}")


def _expect(data: bytes, wanted: bytes) -> None:
    if data != wanted:
        raise RemoteProtocolError(f"expected {wanted!r}, nsqd answered {data[:64]!r}")
