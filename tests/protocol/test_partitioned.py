"""The partitioned dialect: bytes measured on real servers, read and written by both cores."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.devserver.protocol.commands import (
    Fin, Ignored, NewMessage, OpenPartition, PartitionPub, PartitionSub, Rdy, Req, ServerLimits,
    Touch,
)
from nsqclient.devserver.protocol.partitioned import (
    PARTITIONED_VERSION, PartitionServerProtocol, encode_ext, encode_position,
)
from nsqclient.errors import InvalidMessageError, LocalProtocolError, RemoteProtocolError
from nsqclient.protocol import commands
from nsqclient.protocol.partitioned import extensions
from nsqclient.protocol.client import State
from nsqclient.protocol.events import FatalError, Messages, PublishFailed, Published
from nsqclient.protocol.partitioned.extensions import (
    MessageExtension, MessageFormat, MessageIds, StoredPosition, make_header, make_internal_id,
    read_header, read_stored,
)
from nsqclient.protocol.frames import FrameType, encode_frame, encode_message
from tests.protocol.ends import Ends
from tests.support.fuzz import fuzz

#: Frames measured on a real server, from the time stamp on, with what each means.
PLAIN = bytes.fromhex("18e9e6d2f028c86a 0001 0000000000000010 0000000000000000 6d30")
ORDERED = bytes.fromhex(
    "18e9e6d3c38c199a 0001 0000000000000004 0000000000000000 0000000000000040 00000022 73657130"
)
_HEADER = b'{"##trace_id":"77","k":"v"}'
EXT = bytes.fromhex(
    "18e9e6d8644d4010 0001 0000000000000008 000000000000004d 04 001b"
) + _HEADER + b"body"
EXT_DETAIL = bytes.fromhex(
    "18e9e6d8644d4010 0001 000000000000000b 000000000000004d 04 001b"
) + _HEADER + bytes.fromhex("00000000000001b7 00000040") + b"body"
EXT_EMPTY = bytes.fromhex("18e9e6d8644d4010 0001 0000000000000008 0000000000000000 00") + b"body"

FRAMES = {
    "plain": (PLAIN, False, False, MessageIds(0x10, 0), b"m0", MessageExtension()),
    "ordered": (ORDERED, False, True, MessageIds(4, 0), b"seq0", MessageExtension(b"", 0x40, 0x22)),
    "ext": (EXT, True, False, MessageIds(8, 77), b"body", MessageExtension(_HEADER)),
    "ext and detail": (
        EXT_DETAIL, True, True, MessageIds(11, 77), b"body", MessageExtension(_HEADER, 0x1b7, 0x40)
    ),
    "ext without header": (EXT_EMPTY, True, False, MessageIds(8, 0), b"body", MessageExtension()),
}
TRACE_ANSWER = bytes.fromhex("4f4b 0000000000000007 1122334455667788 00000000000000c3 00000029")
#: An id whose trace half is full of newlines and spaces: served by a real server.
WILD_ID = bytes.fromhex("0004000000000002 0a0a0a0a0a200a0a")
STEPS = pytest.mark.parametrize("step", [0, 1, 7])
LIMITS = ServerLimits(version=PARTITIONED_VERSION)


class Pair(Ends):
    """Both ends after IDENTIFY. ``step`` bytes are sent at once; 0: all."""

    def __init__(self, step=0, extend=False):
        super().__init__((step,), PartitionServerProtocol(LIMITS))
        self.client.send_identify({"feature_negotiation": True, "extend_support": extend})
        self.run()

    def subscribe(self, ordered=False):
        self.client.send_sub_command(extensions.sub("t", "c", 3, ordered=ordered))
        self.run()

    def publish(self, command):
        self.client.send_publish(command, "token")
        self.run()


@STEPS
@pytest.mark.parametrize("name", FRAMES)
def test_client_reads_measured_frames(name, step):
    data, ext, detail, ids, body, extensions = FRAMES[name]
    pair = Pair(step, extend=ext)
    pair.subscribe(ordered=detail)
    pair.events.clear()
    pair.to_client(encode_frame(FrameType.MESSAGE, data))
    event, = pair.events
    assert isinstance(event, Messages)
    (timestamp, attempts, message_id, got), = event.batch
    assert (timestamp, attempts) == (int.from_bytes(data[:8], "big"), 1)
    assert MessageIds.unpack(message_id) == ids
    if ext or detail:
        assert MessageFormat(ext, detail).read(got) == (body, extensions)
    else:
        assert got == body


@pytest.mark.parametrize("name", FRAMES)
def test_server_writes_measured_frames(name):
    data, ext, detail, ids, body, extensions = FRAMES[name]
    payload = (encode_ext(extensions.header) if ext else b"") + (
        encode_position(extensions.offset, extensions.size) if detail else b"") + body
    timestamp = int.from_bytes(data[:8], "big")
    frame = encode_message(timestamp, 1, ids.pack(), payload)
    assert frame == encode_frame(FrameType.MESSAGE, data)


def test_trace_answer_is_what_was_measured():
    """Its 30 bytes have two ids, an offset and a size. The next message follows there."""
    stored = StoredPosition(7, 0x1122334455667788, 0xc3, 0x29)
    assert stored.pack() == TRACE_ANSWER
    assert read_stored(TRACE_ANSWER) == stored
    assert read_stored(TRACE_ANSWER + b"later addition") == stored
    assert read_stored(b"OK") is None


@pytest.mark.parametrize("data", [b"", b"O", b"OK+", TRACE_ANSWER[:-1], b"KO" + TRACE_ANSWER[2:]])
def test_other_trace_answers_are_refused(data):
    with pytest.raises(RemoteProtocolError):
        read_stored(data)


def test_internal_id_names_its_partition():
    """The partition is above the fifty bits of the count."""
    assert make_internal_id(1, 2) == 0x0004000000000002
    assert StoredPosition(make_internal_id(1, 2), 0, 0, 0).partition == 1


@STEPS
def test_sub_names_the_partition(step):
    for ordered, name in ((False, "SUB"), (True, "SUB_ORDERED")):
        pair = Pair(step)
        pair.subscribe(ordered)
        assert pair.heard[-1] == PartitionSub(name, "t", "c", 3)
        assert pair.client.state is State.SUBSCRIBED


@STEPS
@pytest.mark.parametrize(("command", "expected"), [
    (commands.pub("t 2", b"x"), PartitionPub("PUB", "t", 2, [NewMessage(b"x")])),
    (commands.mpub("t 2", [b"x", b"y"]),
     PartitionPub("MPUB", "t", 2, [NewMessage(b"x"), NewMessage(b"y")])),
    (extensions.pub_trace("t", 0, 2**64 - 1, b"x"),
     PartitionPub("PUB_TRACE", "t", 0, [NewMessage(b"x", 2**64 - 1)])),
    (extensions.pub_ext("t", 9, _HEADER, b"body"),
     PartitionPub("PUB_EXT", "t", 9, [NewMessage(b"body", header=_HEADER)])),
    (extensions.mpub_ext("t", 9, [(_HEADER, b"x"), (b"", b"y")]),
     PartitionPub("MPUB_EXT", "t", 9, [NewMessage(b"x", header=_HEADER), NewMessage(b"y")])),
    (commands.pub("t", b"x"), PartitionPub("PUB", "t", None, [NewMessage(b"x")])),
])
def test_publishes_reach_the_server_as_meant(command, expected, step):
    pair = Pair(step)
    pair.publish(command)
    assert pair.heard[-1] == expected
    assert pair.events[-1] == Published("token")


_ID = make_internal_id(3, 7).to_bytes(8, "big") + bytes(8)


@pytest.mark.parametrize("data", [
    commands.pub("t 2", b"x") + commands.mpub("u 0", [b"x", b"\n"]) + b"NOP\n",
    b"PUB t 0\n" + (2**20 + 1).to_bytes(4, "big") + b"x",
    b"PUB t 0\n" + (0).to_bytes(4, "big") + b"x",
    b"PUB t 0\n" + (-1).to_bytes(4, "big", signed=True) + b"x",
    b"PUB t 99999999\n\0\0\0\1x",
    b"PUB t -1\n\0\0\0\1x",
    b"PUB t\n\0\0\0\1x",
    b"PUB t 0\r\n\0\0\0\1x",
    b"PUB " + b"t" * 65 + b" 0\n\0\0\0\1x",
    b"MPUB t 0\n\0\0\0\x0e\0\0\0\2\0\0\0\1x\0\0\0\1y",
    b"MPUB t 0\n\0\0\0\x0e\0\0\0\1\0\0\0\1x\0\0\0\1y",
    b"MPUB t 0\n\0\0\0\x0e\0\0\0\2\0\0\0\1x\0\0\0\0y",
    b"MPUB t 0\n\0\0\0\4\0\0\0\0",
    b"MPUB t 0\n\0\0\0\1\0\0\0\1\0\0\0\1x",
    b"MPUB t 0\n" + (6 * 2**20).to_bytes(4, "big") + b"x",
    b"FIN " + _ID + b"\n",
], ids=range(16))
@pytest.mark.parametrize("is_subscribed", [False, True])
def test_whole_commands_are_read_as_their_bytes(data, is_subscribed):
    def read(step):
        pair = Pair(step)
        if is_subscribed:
            pair.subscribe()
        pair.heard.clear()
        pair.to_server(data)
        pair.server.receive_eof()
        pair.server.take_events()
        events = [event for event in pair.heard if not isinstance(event, OpenPartition)]
        return events, pair.server.data_to_send(), pair.server.is_closed

    assert read(0) == read(1)


@STEPS
def test_ids_may_hold_newlines_and_spaces(step):
    pair = Pair(step)
    pair.subscribe()
    pair.client.send_rdy(1)
    pair.client.send_touch(WILD_ID)
    pair.client.send_req(WILD_ID, 1500)
    pair.client.send_fin([WILD_ID, b"\r" * 16])
    pair.client.send_nop()
    heard, _ = pair.run()
    assert heard == [
        Rdy(1), Touch(WILD_ID), Req(WILD_ID, 1500), Fin(WILD_ID), Fin(b"\r" * 16),
        Ignored(b"NOP"),
    ]


def test_binary_ids_are_only_for_partitioned_servers():
    """A stock nsqd would take a newline in an id for the end of the command."""
    with pytest.raises(LocalProtocolError, match="without a space"):
        commands.touch(WILD_ID)
    with pytest.raises(LocalProtocolError, match="16 bytes"):
        commands.touch(WILD_ID + b"x", binary=True)
    assert commands.touch(WILD_ID, binary=True) == b"TOUCH " + WILD_ID + b"\n"


@pytest.mark.parametrize("data, heard", [
    (b"PUB t 3 more\n\x00\x00\x00\x01x", PartitionPub("PUB", "t", None, [NewMessage(b"x")])),
    (b"SUB_ADVANCED t c 3 msgcount:10\n", PartitionSub("SUB_ADVANCED", "t", "c", None)),
])
def test_a_word_more_hides_the_partition(data, heard):
    """As in the real server, which has this bug."""
    pair = Pair()
    pair.to_server(data)
    assert pair.heard[-1] == heard


@STEPS
@pytest.mark.parametrize("code", ["E_FAILED_ON_NOT_LEADER", "E_PUB_FAILED"])
def test_some_refusals_spare_a_publisher(code, step):
    pair = Pair(step)
    pair.refuse[PartitionPub] = (code, "")
    pair.publish(commands.pub("t 0", b"x"))
    failed = pair.events[-1]
    assert isinstance(failed, PublishFailed)
    assert (failed.token, failed.error.code) == ("token", code)
    pair.refuse.clear()
    pair.publish(commands.pub("t 0", b"x"))
    assert pair.events[-1] == Published("token")


@pytest.mark.parametrize("code", ["E_FAILED_ON_NOT_LEADER", "E_SUB_ORDER_IS_MUST"])
def test_the_same_refusals_end_a_subscriber(code):
    """After an error to SUB, the server closes the connection."""
    pair = Pair()
    pair.refuse[PartitionSub] = (code, "")
    pair.subscribe()
    assert isinstance(pair.events[-1], FatalError) and pair.events[-1].error.code == code
    assert pair.client.state is State.CLOSED and pair.server.is_closed


@STEPS
def test_unknown_topic_is_refused_before_the_body(step):
    """The client is still sending the body."""
    pair = Pair(step)
    pair.refuse[OpenPartition] = ("E_TOPIC_NOT_EXIST", "")
    pair.to_server(b"PUB t 0\n\x00\x00\x00\x01")
    assert pair.server.is_closed
    assert b"E_TOPIC_NOT_EXIST " in pair.server.data_to_send()


@pytest.mark.parametrize("line", [
    b"PUB t 0\n\x00\x00\x00\x00", b"PUB_TRACE t 0\n\x00\x00\x00\x08" + b"x" * 8,
    b"PUB_EXT t 0\n\x00\x00\x00\x04\x00\x02{}", b"PUB_EXT t 0\n\x00\x00\x00\x03\x00\x09x",
])
def test_empty_bodies_are_bad(line):
    pair = Pair()
    pair.to_server(line)
    assert b"E_BAD_BODY " in pair.server.data_to_send() and pair.server.is_closed


@pytest.mark.parametrize("build", [
    lambda: extensions.check_partition(-1),
    lambda: extensions.check_partition(1024),
    lambda: extensions.check_partition(True),
    lambda: extensions.sub("t", "c", "0"),
    lambda: extensions.check_trace_id(-1),
    lambda: extensions.check_trace_id(2**64),
    lambda: make_header({"##x": "y"}),
    lambda: make_header({1: "y"}),
    lambda: make_header({"k": object()}),
    lambda: make_header({"k": float("nan")}),
    lambda: make_header({"k": "\ud800"}),
    lambda: make_header({"k": "x" * 70_000}),
])
def test_what_cannot_be_right_is_not_built(build):
    with pytest.raises(LocalProtocolError):
        build()


def test_header_carries_the_trace_id_as_a_string():
    """The server accepts only decimal strings, because numbers in JSON lose digits."""
    header = make_header({"k": "v"}, trace_id=77)
    assert header == _HEADER
    assert read_header(header) == {"##trace_id": "77", "k": "v"}
    assert read_header(b"") == read_header(b"nonsense") == read_header(b"[1]") == {}


@given(st.binary(max_size=60), st.booleans(), st.booleans())
@fuzz
def test_any_bytes_are_a_message_or_one_error(data, ext, detail):
    try:
        body, _ = MessageFormat(ext, detail).read(data)
    except RemoteProtocolError:
        return
    assert data.endswith(body)


@given(st.binary(max_size=200))
@fuzz
def test_any_bytes_leave_the_server_standing(data):
    server = PartitionServerProtocol(LIMITS)
    server.receive_data(b"  V2" + data)
    for _ in range(50):
        if not server.take_events():
            break
    server.data_to_send()


def test_the_longest_header_is_what_the_server_stores():
    """The real server closes the connection after a longer header."""
    header = make_header({"k": "x" * 65_525})
    assert encode_ext(header)[:3] == b"\x04" + struct.pack(">H", 65_533)
    with pytest.raises(InvalidMessageError, match="headers of 65534 bytes .* limit of 65533"):
        make_header({"k": "x" * 65_526})
