"""The server core: every row of nsqd's error table by value, and the order of answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqclient.devserver.protocol.commands import (
    Cls,
    Dpub,
    Fin,
    Identify,
    Ignored,
    Mpub,
    OpenTopic,
    Pub,
    Rdy,
    Req,
    ServerLimits,
    Sub,
    Touch,
)
from nsqclient.devserver.protocol.server import TRANSITIONS, ServerProtocol, ServerState
from nsqclient.protocol.frames import FrameReader

ID = b"0123456789abcdef"
SUBSCRIBE = b"SUB t1 c1\n"


def answer(core, event):
    """Answer as a broker does in which no message is in flight."""
    if isinstance(event, Identify):
        core.respond(event.response)
    elif isinstance(event, (Sub, Pub, Dpub, Mpub)):
        core.respond(b"OK")
    elif isinstance(event, Cls):
        core.respond(b"CLOSE_WAIT")
    elif isinstance(event, (Fin, Req, Touch)):
        name = type(event).__name__.upper()
        text = b"%b %b failed ID not in flight" % (name.encode(), event.message_id)
        core.fail(f"E_{name}_FAILED", text)


def play(data, step=None, core=None, magic=b"  V2"):
    """Feed bytes; return (events, the data of the frames, is it closed)."""
    core = ServerProtocol() if core is None else core
    data = magic + data
    step = step or max(1, len(data))
    events = []
    for start in range(0, len(data), step):
        core.receive_data(data[start:start + step])
        while batch := core.take_events():
            for event in batch:
                events.append(event)
                answer(core, event)
    frames = [frame.data for frame in FrameReader().feed(core.data_to_send())]
    return events, frames, core.is_closed


def sized(data):
    return len(data).to_bytes(4, "big") + data


ROWS = [
    # (bytes, data of the frames, closed)
    (b"FOO bar\n", [b"E_INVALID invalid command FOO"], True),
    (b"nop\n", [b"E_INVALID invalid command nop"], True),
    (b"\n", [b"E_INVALID invalid command "], True),
    (b" NOP\n", [b"E_INVALID invalid command "], True),
    (b"NOP\nNOP x y\r\n", [], False),
    (b"A" * 16_384, [], True),
    (b"IDENTIFY foo\n" + sized(b"{}") + b"IDENTIFY\r\n" + sized(b"null"), [b"OK", b"OK"], False),
    (b"IDENTIFY\n" + sized(b"[]"), [b"E_BAD_BODY IDENTIFY failed to decode JSON body"], True),
    (b"IDENTIFY\n\0\0\0\0", [b"E_BAD_BODY IDENTIFY invalid body size 0"], True),
    (b"IDENTIFY\n\xff\xff\xff\xff", [b"E_BAD_BODY IDENTIFY invalid body size -1"], True),
    (b"IDENTIFY\n\0P\0\1", [b"E_BAD_BODY IDENTIFY body too big 5242881 > 5242880"], True),
    (SUBSCRIBE + b"IDENTIFY\n", [b"OK", b"E_INVALID cannot IDENTIFY in current state"], True),
    (b"AUTH x\n", [b"E_INVALID AUTH invalid number of parameters"], True),
    (b"AUTH\n\0\0\0\0", [b"E_BAD_BODY AUTH invalid body size 0"], True),
    (SUBSCRIBE + b"AUTH\n", [b"OK", b"E_INVALID cannot AUTH in current state"], True),
    (b"SUB t1 c1 extra\n", [b"OK"], False),
    (b"SUB t1\n", [b"E_INVALID SUB insufficient number of parameters"], True),
    (b"SUB  c1\n", [b'E_BAD_TOPIC SUB topic name "" is not valid'], True),
    (b"SUB t1 \xc3\xa9\n", ['E_BAD_CHANNEL SUB channel name "é" is not valid'.encode()], True),
    (b'SUB t"\xff c\n', [b'E_BAD_TOPIC SUB topic name "t\\"\\\\xff" is not valid'], True),
    (SUBSCRIBE * 2, [b"OK", b"E_INVALID cannot SUB in current state"], True),
    (
        b"IDENTIFY\n" + sized(b'{"heartbeat_interval":-1}') + SUBSCRIBE,
        [b"OK", b"E_INVALID cannot SUB with heartbeats disabled"],
        True,
    ),
    (b"RDY 1\n", [b"E_INVALID cannot RDY in current state"], True),
    (SUBSCRIBE + b"RDY\nRDY 2500\nRDY 1 2\n", [b"OK"], False),
    (SUBSCRIBE + b"RDY 2501\n", [b"OK", b"E_INVALID RDY count 2501 out of range 0-2500"], True),
    (SUBSCRIBE + b"RDY -1\n", [b"OK", b"E_INVALID RDY could not parse count -1"], True),
    (
        SUBSCRIBE + b"RDY 999999999999999999999\n",
        [b"OK", b"E_INVALID RDY could not parse count 999999999999999999999"],
        True,
    ),
    (SUBSCRIBE + b"CLS\nRDY 99999\n", [b"OK", b"CLOSE_WAIT"], False),
    (
        SUBSCRIBE + b"CLS\nCLS\n",
        [b"OK", b"CLOSE_WAIT", b"E_INVALID cannot CLS in current state"],
        True,
    ),
    (b"FIN " + ID + b"\n", [b"E_INVALID cannot FIN in current state"], True),
    (SUBSCRIBE + b"FIN\n", [b"OK", b"E_INVALID FIN insufficient number of params"], True),
    (SUBSCRIBE + b"FIN " + ID + b"0\n", [b"OK", b"E_INVALID invalid message ID"], True),
    (
        SUBSCRIBE + b"CLS\nFIN " + ID + b"\nNOP\n",
        [b"OK", b"CLOSE_WAIT", b"E_FIN_FAILED FIN " + ID + b" failed ID not in flight"],
        False,
    ),
    (
        SUBSCRIBE + b"REQ " + ID + b" 99999999\n",
        [b"OK", b"E_REQ_FAILED REQ " + ID + b" failed ID not in flight"],
        False,
    ),
    (
        SUBSCRIBE + b"REQ " + ID + b" x\n",
        [b"OK", b"E_INVALID REQ could not parse timeout x"],
        True,
    ),
    (SUBSCRIBE + b"REQ abc 0\n", [b"OK", b"E_INVALID invalid message ID"], True),
    (
        SUBSCRIBE + b"TOUCH " + ID + b"\n",
        [b"OK", b"E_TOUCH_FAILED TOUCH " + ID + b" failed ID not in flight"],
        False,
    ),
    (b"PUB t1 foo\n" + sized(b"x"), [b"OK"], False),
    (b"PUB\n", [b"E_INVALID PUB insufficient number of parameters"], True),
    (b"PUB bad$t\n", [b'E_BAD_TOPIC PUB topic name "bad$t" is not valid'], True),
    (b"PUB t1\n\0\0\0\0", [b"E_BAD_MESSAGE PUB invalid message body size 0"], True),
    (b"PUB t1\n\0\x10\0\1", [b"E_BAD_MESSAGE PUB message too big 1048577 > 1048576"], True),
    (SUBSCRIBE + b"PUB t2\n" + sized(b"x"), [b"OK", b"OK"], False),
    (b"MPUB b$d\n", [b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "b$d" is not valid'], True),
    (b"MPUB t1\n\0\0\0\0", [b"E_BAD_BODY MPUB invalid body size 0"], True),
    (b"MPUB t1\n\0P\0\1", [b"E_BAD_BODY MPUB body too big 5242881 > 5242880"], True),
    (b"MPUB t1\n\0\0\0\4\0\0\0\0", [b"E_BAD_BODY MPUB invalid message count 0"], True),
    (b"MPUB t1\n\0\0\0d\0\x10\0\0", [b"E_BAD_BODY MPUB invalid message count 1048576"], True),
    (b"MPUB t1\n\0\0\0d\0\x0f\xff\xff", [], False),
    (
        b"MPUB t1\n\0\0\0\r\0\0\0\2\0\0\0\1a\0\0\0\0",
        [b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"],
        True,
    ),
    (
        b"MPUB t1\n\0\0\0d\0\0\0\1\0\x10\0\1",
        [b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"],
        True,
    ),
    (b"MPUB t1\n\0\0\0\4\0\0\0\1" + sized(b"a"), [b"OK"], False),
    (b"MPUB t1\n\0\0\1\x90\0\0\0\1" + sized(b"a") + b"NOP\n", [b"OK"], False),
    (b"DPUB t1 0\n" + sized(b"x") + b"DPUB t1 3600000\n" + sized(b"x"), [b"OK", b"OK"], False),
    (b"DPUB t1\n", [b"E_INVALID DPUB insufficient number of parameters"], True),
    (b"DPUB t1 -1\n", [b"E_INVALID DPUB could not parse timeout -1"], True),
    (
        b"DPUB t1 3600001\n",
        [b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"],
        True,
    ),
    (b"DPUB t1 100\n\0\x10\0\1", [b"E_BAD_MESSAGE DPUB message too big 1048577 > 1048576"], True),
]


@pytest.mark.parametrize("step", [None, 1, 3])
@pytest.mark.parametrize("data, frames, closed", ROWS)
def test_answer_does_not_depend_on_how_bytes_are_cut(data, frames, closed, step):
    """Each row gets nsqd's frames, whole and byte by byte."""
    assert play(data, step)[1:] == (frames, closed)


@pytest.mark.parametrize("magic", [b"  V1", b"GET ", b"\0\0\0\0"])
def test_other_magic_is_e_bad_protocol(magic):
    """Any magic but V2's gets the code without a text, and closes."""
    assert play(b"", magic=magic) == ([], [b"E_BAD_PROTOCOL"], True)


def test_events_carry_checked_values():
    """A command becomes a value, with delays already within the limits."""
    data = SUBSCRIBE + b"RDY\nREQ " + ID + b" 9999999\nTOUCH " + ID + b"\nNOP x\nCLS\nRDY 7\n"
    assert play(data)[0] == [
        Sub("t1", "c1"), Rdy(1), Req(ID, 3_600_000), Touch(ID), Ignored(b"NOP x"), Cls(),
        Ignored(b"RDY 7"),
    ]
    data = b"DPUB t 5\n" + sized(b"x") + b"MPUB t\n\0\0\0\x0e\0\0\0\2" + sized(b"a") + sized(b"b")
    assert play(data)[0] == [Dpub("t", 5, b"x"), OpenTopic("t"), Mpub("t", [b"a", b"b"])]


def test_error_of_the_core_follows_earlier_answers():
    """It is sent after the answers to the commands pipelined before it."""
    core = ServerProtocol()
    core.receive_data(b"  V2PUB t\n" + sized(b"x") + b"FOO\n")
    assert core.take_events() == [Pub("t", b"x")]
    assert not core.data_to_send() and not core.is_closed
    core.respond(b"OK")
    assert core.take_events() == []
    assert core.data_to_send().endswith(b"E_INVALID invalid command FOO") and core.is_closed


def test_nothing_follows_a_fatal_error():
    """After a fatal error the error of the next command is not sent."""
    core = ServerProtocol()
    core.receive_data(b"  V2PUB t\n" + sized(b"x") + b"FOO\n")
    core.take_events()
    core.fail("E_PUB_FAILED", "exiting")
    assert core.take_events() == []
    assert core.data_to_send().endswith(b"E_PUB_FAILED exiting")


def test_nothing_is_read_after_identify_before_its_answer():
    """IDENTIFY ends a batch, because a new byte layer may begin right behind it."""
    core = ServerProtocol()
    core.receive_data(b"  V2IDENTIFY\n" + sized(b"{}") + b"NOP\n")
    assert [type(event) for event in core.take_events()] == [Identify]
    assert core.take_events() == [Ignored(b"NOP")]


def test_new_layer_gets_the_unread_bytes():
    """A layer that starts on an Identify event decodes what was already received."""

    class Upper:
        def decode(self, data):
            yield data.upper()

        def encode(self, data):
            return data.lower()

        def has_output(self):
            return False

        def wire_output(self):
            return b""

    core = ServerProtocol()
    core.receive_data(b"  V2IDENTIFY\n" + sized(b"{}") + b"nop\n")
    core.take_events()
    core.start_layer(Upper())
    core.respond(b"OK")
    assert core.take_events() == [Ignored(b"NOP")]
    assert core.data_to_send().endswith(b"ok")


@pytest.mark.parametrize(
    "data, frames",
    [
        (b"", []),
        (b"NO", []),
        (b"PUB t\n\0\0", [b"E_BAD_MESSAGE PUB failed to read message body size"]),
        (b"PUB t\n\0\0\0\2x", [b"E_BAD_MESSAGE PUB failed to read message body"]),
        (b"DPUB t 1\n", [b"E_BAD_MESSAGE DPUB failed to read message body size"]),
        (b"IDENTIFY\n", [b"E_BAD_BODY IDENTIFY failed to read body size"]),
        (b"AUTH\n\0\0\0\2x", [b"E_BAD_BODY AUTH failed to read body"]),
        (b"MPUB t\n", [b"E_BAD_BODY MPUB failed to read body size"]),
        (b"MPUB t\n\0\0\0\5", [b"E_BAD_BODY MPUB failed to read message count"]),
        (b"MPUB t\n\0\0\0\5\0\0\0\1", [b"E_BAD_MESSAGE MPUB failed to read message(0) body size"]),
    ],
)
def test_stream_that_ends_inside_a_body_gets_an_error(data, frames):
    """A stream that ends elsewhere gets no frame."""
    core = ServerProtocol()
    play(data, core=core)
    core.receive_eof()
    assert core.take_events() == []
    assert [frame.data for frame in FrameReader().feed(core.data_to_send())] == frames
    assert core.is_closed


def test_limits_are_those_of_the_server():
    """Sizes and ranges come from the server's options."""
    limits = ServerLimits(max_msg_size=2, max_body_size=9, max_rdy_count=3, max_req_timeout=5)
    for data, text in [
        (b"PUB t\n\0\0\0\3", b"E_BAD_MESSAGE PUB message too big 3 > 2"),
        (b"MPUB t\n\0\0\0\n", b"E_BAD_BODY MPUB body too big 10 > 9"),
        (b"MPUB t\n\0\0\0\t\0\0\0\2", b"E_BAD_BODY MPUB invalid message count 2"),
        (b"DPUB t 6\n", b"E_INVALID DPUB timeout 6 out of range 0-5"),
        (SUBSCRIBE + b"RDY 4\n", b"E_INVALID RDY count 4 out of range 0-3"),
    ]:
        assert play(data, core=ServerProtocol(limits))[1][-1] == text


def test_many_commands_are_returned_in_batches():
    """Many pipelined commands are returned in several lists."""
    core = ServerProtocol()
    core.receive_data(b"  V2" + b"NOP\n" * 1200)
    assert [len(core.take_events()) for _ in range(4)] == [500, 500, 200, 0]


def test_unknown_code_is_fatal():
    """A code that is not in the table ends the connection; nsqd's three exceptions do not."""
    core = ServerProtocol()
    core.fail("E_TOUCH_FAILED", "x")
    assert not core.is_closed
    core.fail("E_NEW")
    assert core.is_closed and core.data_to_send().endswith(b"E_NEW")


def test_transition_table_is_complete():
    """Every command is allowed in some state, none once closed, and states exist."""
    commands = {name for row in TRANSITIONS.values() for name in row}
    assert len(commands) == 12
    assert TRANSITIONS[ServerState.CLOSED] == {}
    assert set(TRANSITIONS) == set(ServerState)


WORDS = st.sampled_from(
    [b"  V2", b"IDENTIFY", b"SUB", b"t", b"c", b"RDY", b"FIN", ID, b"PUB", b"MPUB", b"DPUB", b"CLS",
     b" ", b"\n", b"\r\n", b"\0\0\0\1", b"\0\0\0\2{}", b"x", b"\xff", b"1", b"99999"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=30), st.integers(1, 40))
def test_any_bytes_give_the_same_events_however_cut(words, step):
    """Any bytes give events and frames, the same ones however they are cut."""
    data = b"".join(words)
    assert play(data, step) == play(data)
