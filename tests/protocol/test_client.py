"""The client core: permitted commands in each state, and nsqd's answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.errors import (
    ClosedError, LocalProtocolError, NSQError, RemoteProtocolError,
)
from nsqclient.protocol import commands
from nsqclient.protocol.client import ClientProtocol, State
from nsqclient.protocol.events import (
    CommandFailed, Authenticated, FatalError, Heartbeat, Identified, Messages, Published,
    ServerSettings, Subscribed, Upgraded,
)
from nsqclient.protocol.frames import FrameType, encode_frame, encode_message
from nsqclient.protocol.layers import ByteLayer
from tests.support.fuzz import fuzz

ID = b"0123456789abcdef"
MESSAGE = encode_message(5, 1, ID, b"body")
RAW = (5, 1, ID, b"body")
PUB = commands.pub("t", b"x")


class XorLayer(ByteLayer):
    """Combines every byte with ``key``, which also decodes it."""

    def __init__(self, key):
        self._table = bytes(byte ^ key for byte in range(256))

    def decode(self, data):
        return data.translate(self._table)

    def encode(self, data):
        return data.translate(self._table)


def response(data):
    return encode_frame(FrameType.RESPONSE, data)


def error(text):
    return encode_frame(FrameType.ERROR, text)


def answer(**fields):
    return response(json.dumps(fields).encode())


OK = response(b"OK")
BEAT = response(b"_heartbeat_")

#: How to bring a fresh core into each state: calls and input, in order.
_IDENTIFY = [lambda core: core.send_identify({})]
_READY = [*_IDENTIFY, answer()]
_SUBSCRIBING = [*_READY, lambda core: core.send_sub("t", "c")]
_SUBSCRIBED = [*_SUBSCRIBING, OK]
_CLOSING = [*_SUBSCRIBED, lambda core: core.send_cls()]
PATHS = {
    State.NEW: [],
    State.IDENTIFYING: _IDENTIFY,
    State.UPGRADING: [*_IDENTIFY, answer(tls_v1=True)],
    State.AUTHENTICATING: [*_READY, lambda core: core.send_auth("secret")],
    State.READY: _READY,
    State.SUBSCRIBING: _SUBSCRIBING,
    State.SUBSCRIBED: _SUBSCRIBED,
    State.CLOSING: _CLOSING,
    State.DRAINING: [*_CLOSING, response(b"CLOSE_WAIT")],
    State.CLOSED: [*_READY, lambda core: core.receive_eof()],
}


def core_in(state):
    """Return a core in this state, without events or bytes to send."""
    core = ClientProtocol()
    for step in PATHS[state]:
        if isinstance(step, bytes):
            core.receive_data(step)
        else:
            step(core)
    assert core.state is state
    core.data_to_send()
    core.take_events()
    return core


#: Every call that sends: the states in which it is legal, and the bytes then.
_OPEN = {State.READY, State.SUBSCRIBING, State.SUBSCRIBED, State.CLOSING, State.DRAINING}
_WITH_SUB = {State.SUBSCRIBED, State.CLOSING, State.DRAINING}
SENDS = {
    "identify": (lambda core: core.send_identify({}), {State.NEW},
                 b"  V2IDENTIFY\n\0\0\0\2{}"),
    "auth": (lambda core: core.send_auth("x"), {State.READY}, b"AUTH\n\0\0\0\1x"),
    "sub": (lambda core: core.send_sub("t", "c"), {State.READY}, b"SUB t c\n"),
    "cls": (lambda core: core.send_cls(), {State.SUBSCRIBED}, b"CLS\n"),
    "publish": (lambda core: core.send_publish(PUB, 1), _OPEN, PUB),
    "nop": (lambda core: core.send_nop(), _OPEN, b"NOP\n"),
    "rdy": (lambda core: core.send_rdy(5), _WITH_SUB, b"RDY 5\n"),
    "fin": (lambda core: core.send_fin([ID]), _WITH_SUB, b"FIN %b\n" % ID),
    "fin of two": (lambda core: core.send_fin([ID, ID]), _WITH_SUB, b"FIN %b\n" % ID * 2),
    "fin of none": (lambda core: core.send_fin([]), _WITH_SUB, b""),
    "req": (lambda core: core.send_req(ID, 90), _WITH_SUB, b"REQ %b 90\n" % ID),
    "touch": (lambda core: core.send_touch(ID), _WITH_SUB, b"TOUCH %b\n" % ID),
    "layer": (lambda core: core.push_layer(XorLayer(1)), {State.UPGRADING}, b""),
}


@pytest.mark.parametrize("name", SENDS)
@pytest.mark.parametrize("state", State)
def test_what_may_be_sent(name, state):
    send, legal, wire = SENDS[name]
    core = core_in(state)
    if state in legal:
        send(core)
        assert core.data_to_send() == wire
        return
    with pytest.raises(ClosedError if state is State.CLOSED else LocalProtocolError):
        send(core)
    assert (core.data_to_send(), core.unanswered(), core.state) == (b"", [], state)


def test_half_a_frame_does_not_outlive_the_stream():
    core = core_in(State.SUBSCRIBED)
    core.receive_data(encode_message(5, 1, ID, b"x" * 2**20)[:-1])
    assert core._reader.buffered > 2**20
    core.receive_eof()
    assert core._reader.buffered == 0


@pytest.mark.parametrize("send", [
    lambda core: core.send_sub("bad name", "c"),
    lambda core: core.send_auth(""),
])
def test_bad_values_change_nothing(send):
    core = core_in(State.READY)
    with pytest.raises(LocalProtocolError):
        send(core)
    assert core.state is State.READY
    assert core.data_to_send() == b""
    core.send_sub("t", "c")


# -- answers


def test_the_identify_response_becomes_settings():
    core = core_in(State.IDENTIFYING)
    core.receive_data(answer(
        version="1.3.0", max_rdy_count=10, msg_timeout=1000, max_msg_timeout=2000,
        output_buffer_timeout=30, auth_required=True, deflate_level=3, something_new=[1],
    ))
    [event] = core.take_events()
    assert event == Identified(core.settings)
    assert core.settings[1:] == ("1.3.0", 10, 1000, 2000, 30, True, False, False, False, 3)
    assert core.settings.raw["something_new"] == [1]
    assert core.state is State.READY
    core.send_sub("t", "c")
    core.receive_data(OK)
    with pytest.raises(LocalProtocolError):
        core.send_rdy(11)


def test_plain_ok_to_identify():
    """An nsqd without negotiation answers OK, and nsqd's defaults apply."""
    core = core_in(State.IDENTIFYING)
    core.receive_data(OK)
    assert core.take_events() == [Identified(ServerSettings())]
    assert core.settings.max_rdy_count == 2500


@pytest.mark.parametrize("state, data", [
    (State.IDENTIFYING, b"ok"), (State.IDENTIFYING, b"[]"), (State.AUTHENTICATING, b"OK"),
    (State.AUTHENTICATING, b"[]"), (State.IDENTIFYING, b'{"x": "%s"}' % (b"x" * 2**20)),
    *((State.IDENTIFYING, data) for data in (
        b'{"max_rdy_count": "2500"}', b'{"max_rdy_count": true}', b'{"max_rdy_count": null}',
        b'{"max_rdy_count": 2.5}', b'{"max_rdy_count": 0}', b'{"max_rdy_count": %d}' % 2**63,
        b'{"msg_timeout": -1}', b'{"msg_timeout": %d}' % 10**13, b'{"max_msg_timeout": NaN}',
        b'{"max_msg_timeout": %s}' % (b"9" * 4299), b'{"output_buffer_timeout": %d}' % 2**63,
    )),
], ids=lambda value: value.value if isinstance(value, State) else value[:30])
def test_json_that_cannot_be_read_is_a_protocol_error(state, data):
    with pytest.raises(RemoteProtocolError):
        core_in(state).receive_data(response(data))


def test_truth_is_true():
    """Only JSON's ``true`` grants or requires a feature."""
    core = core_in(State.IDENTIFYING)
    core.receive_data(answer(tls_v1=1, snappy="yes", deflate=None, auth_required=1))
    assert core.state is State.READY
    assert not core.settings.auth_required


def test_the_auth_response_is_reported():
    core = core_in(State.AUTHENTICATING)
    core.receive_data(answer(identity="me", permission_count=1))
    assert core.take_events() == [Authenticated({"identity": "me", "permission_count": 1})]
    assert core.state is State.READY


@pytest.mark.parametrize("state, wrong", [
    (State.SUBSCRIBING, b"CLOSE_WAIT"), (State.SUBSCRIBING, b""), (State.SUBSCRIBING, b"{}"),
    (State.CLOSING, b"OK"), (State.CLOSING, b"CLOSE"),
])
def test_an_unexpected_response_is_a_protocol_error(state, wrong):
    with pytest.raises(RemoteProtocolError, match="expected b'(OK|CLOSE_WAIT)'"):
        core_in(state).receive_data(response(wrong))


@pytest.mark.parametrize("data", [b"OK", b"CLOSE_WAIT", b"", b"{}"])
@pytest.mark.parametrize("state", [State.NEW, State.READY, State.SUBSCRIBED, State.DRAINING])
def test_a_response_without_command_is_a_protocol_error(state, data):
    with pytest.raises(RemoteProtocolError, match="without a question"):
        core_in(state).receive_data(response(data))


@pytest.mark.parametrize("state", sorted(set(State) - _WITH_SUB - {State.CLOSED, State.UPGRADING},
                                         key=str))
def test_messages_before_sub_are_a_protocol_error(state):
    with pytest.raises(RemoteProtocolError, match="message while"):
        core_in(state).receive_data(MESSAGE)


@pytest.mark.parametrize("state", sorted(_WITH_SUB, key=str))
def test_messages_of_one_read_are_one_event(state):
    """Responses between them divide them into several events."""
    core = core_in(state)
    core.receive_data(MESSAGE * 3 + BEAT + MESSAGE)
    assert core.take_events() == [Messages([RAW] * 3), Heartbeat(), Messages([RAW])]


# -- heartbeats


_NEGOTIATING = {State.NEW, State.IDENTIFYING, State.UPGRADING}


@pytest.mark.parametrize("state", sorted(set(State) - {State.CLOSED} - _NEGOTIATING, key=str))
def test_a_heartbeat_is_answered_with_nop(state):
    core = core_in(state)
    core.receive_data(BEAT)
    assert core.take_events() == [Heartbeat()]
    assert core.data_to_send() == b"NOP\n"
    assert core.state is state


@pytest.mark.parametrize("granted, layers", [
    ({}, 0), ({"tls_v1": True}, 1), ({"tls_v1": True, "snappy": True}, 2),
])
def test_heartbeat_before_the_answer_to_identify(granted, layers):
    """The NOP waits, because nsqd reads all bytes after IDENTIFY through the layers."""
    core = core_in(State.IDENTIFYING)
    core.receive_data(BEAT)
    assert core.take_events() == [Heartbeat()]
    assert core.data_to_send() == b""
    core.receive_data(answer(**granted))
    wire = b"NOP\n"
    for key in range(layers):
        assert core.data_to_send() == b""
        core.push_layer(XorLayer(key))
        wire = XorLayer(key).encode(wire)
        if key < layers - 1:
            core.receive_data(XorLayer(key).encode(OK))
    assert core.data_to_send() == wire


# -- outcomes of publishes


def test_answers_come_in_the_order_of_the_publishes():
    core = core_in(State.READY)
    core.send_publish(PUB, 1)
    core.send_sub("t", "c")
    core.send_publish(PUB, None)
    core.receive_data(OK + BEAT + OK + error(b"E_FIN_FAILED late") + OK)
    events = core.take_events()
    assert [type(event) for event in events] == [
        Published, Heartbeat, Subscribed, CommandFailed, Published,
    ]
    assert (events[0].token, events[-1].token) == (1, None)
    assert core.unanswered() == []


def test_refused_is_for_the_oldest_publish():
    core = core_in(State.READY)
    for token in "abc":
        core.send_publish(PUB, token)
    core.receive_data(OK + error(b"E_BAD_TOPIC PUB topic name"))
    stored, refused = core.take_events()
    assert stored == Published("a")
    assert (refused.token, refused.error.code) == ("b", "E_BAD_TOPIC")
    assert core.state is State.CLOSED
    assert core.unanswered() == ["c"]
    assert core.unanswered() == []


def test_a_rejected_sub_is_a_fatal_error():
    """It does not fail the publishes under way."""
    core = core_in(State.SUBSCRIBING)
    core.send_publish(PUB, "a")
    core.receive_data(error(b"E_SUB_FAILED too many"))
    [refused] = core.take_events()
    assert isinstance(refused, FatalError)
    assert (refused.token, refused.error.code) == (None, "E_SUB_FAILED")
    assert core.unanswered() == ["a"]


@pytest.mark.parametrize("code", ["E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"])
def test_a_late_command_is_reported_and_not_fatal(code):
    """It fails no publish."""
    core = core_in(State.SUBSCRIBED)
    core.send_publish(PUB, "a")
    core.receive_data(error(code.encode() + b" FIN 0123456789abcdef failed"))
    [event] = core.take_events()
    assert isinstance(event, CommandFailed)
    assert event.error.code == code
    assert core.state is State.SUBSCRIBED
    assert core.unanswered() == ["a"]


@pytest.mark.parametrize("behind", [OK, MESSAGE, BEAT, error(b"E_INVALID again"),
                                    b"\xff" * 40, response(b"CLOSE_WAIT"), OK * 5])
@pytest.mark.parametrize("state", [State.SUBSCRIBING, State.SUBSCRIBED, State.CLOSING])
def test_nothing_counts_after_a_fatal_error(state, behind):
    """What stands behind a fatal error, in its segment or a later one, has no meaning.

    nsqd's two goroutines may well write messages behind the error of the other.
    """
    core = core_in(state)
    core.send_publish(PUB, "a")
    core.data_to_send()
    core.receive_data(error(b"E_INVALID bad") + behind)
    core.receive_data(behind)
    [event] = core.take_events()
    assert (type(event), core.state) == (FatalError, State.CLOSED)
    assert core.data_to_send() == b""


def test_what_came_before_an_error_is_kept():
    """A garbled answer leaves its publish unanswered."""
    core = core_in(State.READY)
    core.send_publish(PUB, "a")
    core.send_publish(PUB, "b")
    with pytest.raises(RemoteProtocolError):
        core.receive_data(OK + response(b"KO"))
    assert core.take_events() == [Published("a")]
    assert core.unanswered() == ["b"]


# -- byte layers


def test_nothing_is_read_before_the_layer():
    core = core_in(State.UPGRADING)
    for byte in XorLayer(5).encode(OK):
        core.receive_data(bytes([byte]))
    assert core.take_events() == []
    core.push_layer(XorLayer(5))
    assert core.take_events() == [Upgraded()]


@pytest.mark.parametrize("inner", [response(b"FINE"), response(b"{}"), MESSAGE])
def test_a_layer_answered_wrongly_is_a_protocol_error(inner):
    core = core_in(State.UPGRADING)
    core.push_layer(XorLayer(5))
    with pytest.raises(RemoteProtocolError):
        core.receive_data(XorLayer(5).encode(inner))


def test_a_layer_is_pushed_only_where_it_is_due():
    core = core_in(State.UPGRADING)
    core.push_layer(XorLayer(5))
    with pytest.raises(LocalProtocolError, match="a byte layer"):
        core.push_layer(XorLayer(7))


# -- whatever comes


_PIECES = st.lists(st.one_of(
    st.sampled_from([
        OK, BEAT, MESSAGE, response(b"CLOSE_WAIT"), answer(), answer(tls_v1=True), response(b"{"),
        error(b"E_FIN_FAILED x"), error(b"E_INVALID x"),
    ]),
    st.binary(max_size=20),
), max_size=6)


@fuzz
@given(st.sampled_from(sorted(PATHS, key=str)), _PIECES)
def test_any_frames_in_any_state(state, pieces):
    core = core_in(state)
    try:
        for piece in pieces:
            core.receive_data(piece)
    except NSQError as exc:
        assert isinstance(exc, RemoteProtocolError)
    core.receive_eof()
    assert core.state is State.CLOSED
