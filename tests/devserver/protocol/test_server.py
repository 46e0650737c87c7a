"""The server core: every row of nsqd's error table by value, and the order of answers."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqclient.devserver.protocol.commands import (
    Auth, Cls, Dpub, Fin, Identify, Ignored, Mpub, OpenTopic, Pub, Rdy, Req, ServerLimits, Sub,
    Touch,
)
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.protocol.frames import FrameReader
from tests.integration.error_table import TABLE, Row

ID = b"0123456789abcdef"
SUBSCRIBE = b"SUB t1 c1\n"


def answer(core, event):
    """Answer as a broker does in which no message is in flight, and without an auth server."""
    if isinstance(event, Identify):
        core.respond(event.response)
    elif isinstance(event, (Sub, Pub, Dpub, Mpub)):
        core.respond(b"OK")
    elif isinstance(event, Cls):
        core.respond(b"CLOSE_WAIT")
    elif isinstance(event, Auth):
        core.fail("E_AUTH_DISABLED", "AUTH disabled")
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


#: The captured table, without rows that are too long to send byte by byte.
ROWS = [row for rows in TABLE.values() for row in rows if len(row.sent) < 100_000]
ROWS.append(Row(16_384 * b"A", (), closed=True))  # the shortest line that is too long


@pytest.mark.parametrize("step", [None, 1, 3])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: repr(row.sent[:50]))
def test_answer_does_not_depend_on_how_bytes_are_cut(row, step):
    core = ServerProtocol(ServerLimits(deflate=True, snappy=True))
    data = (SUBSCRIBE if row.after_sub else b"") + row.sent
    expected = [b"OK"] if row.after_sub else []
    for _, text in row.frames:
        if text is None:
            text = json.dumps(row.identified, separators=(",", ":")).encode()
        expected.append(text)
    assert play(data, step, core, row.magic)[1:] == (expected, row.closed)


def test_events_carry_checked_values():
    data = SUBSCRIBE + b"RDY\nREQ " + ID + b" 9999999\nTOUCH " + ID + b"\nNOP x\nCLS\nRDY 7\n"
    assert play(data)[0] == [
        Sub("t1", "c1"), Rdy(1), Req(ID, 3_600_000), Touch(ID), Ignored(b"NOP x"), Cls(),
        Ignored(b"RDY 7"),
    ]
    data = b"DPUB t 5\n" + sized(b"x") + b"MPUB t\n\0\0\0\x0e\0\0\0\2" + sized(b"a") + sized(b"b")
    assert play(data)[0] == [Dpub("t", 5, b"x"), OpenTopic("t"), Mpub("t", [b"a", b"b"])]


def test_error_of_the_core_follows_earlier_answers():
    core = ServerProtocol()
    core.receive_data(b"  V2PUB t\n" + sized(b"x") + b"FOO\n")
    assert core.take_events() == [Pub("t", b"x")]
    assert not core.data_to_send() and not core.is_closed
    core.respond(b"OK")
    assert core.take_events() == []
    assert core.data_to_send().endswith(b"E_INVALID invalid command FOO") and core.is_closed


def test_nothing_follows_a_fatal_error():
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


@pytest.mark.parametrize("data", [b"", b"NO", b"PUB t\n\0\0\0\2x", b"MPUB t\n\0\0\0\5"])
def test_a_stream_that_ends_in_a_command_gets_no_frame(data):
    core = ServerProtocol()
    play(data, core=core)
    core.receive_eof()
    assert core.take_events() == []
    assert core.data_to_send() == b""
    assert core.is_closed


def test_limits_are_those_of_the_server():
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
    core = ServerProtocol()
    core.receive_data(b"  V2" + b"NOP\n" * 1200)
    assert [len(core.take_events()) for _ in range(4)] == [500, 500, 200, 0]


WORDS = st.sampled_from(
    [b"  V2", b"IDENTIFY", b"SUB", b"t", b"c", b"RDY", b"FIN", ID, b"PUB", b"MPUB", b"DPUB", b"CLS",
     b" ", b"\n", b"\r\n", b"\0\0\0\1", b"\0\0\0\2{}", b"x", b"\xff", b"1", b"99999"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=30), st.integers(1, 40))
def test_any_bytes_give_the_same_events_however_cut(words, step):
    data = b"".join(words)
    assert play(data, step) == play(data)
