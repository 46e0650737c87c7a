"""nsqlookupd's end of the dialogue: answers byte for byte, and what the registry is told."""

import json
import struct

import pytest

from nsqclient.protocol.lookupd import (
    MAGIC_V1,
    MAX_LINE_SIZE,
    Identity,
    LookupdServerCore,
    Pinged,
    Registered,
    State,
    Unregistered,
)

ME = Identity("127.0.0.1", "here", 4161, 4160, "1.3.0")
NSQD = Identity("10.0.0.1", "there", 4151, 4150, "1.2.1")


def sized(data: bytes) -> bytes:
    """Four bytes of size, then the data."""
    return struct.pack(">i", len(data)) + data


def identify(**changes: object) -> bytes:
    """IDENTIFY with a good body, save for the changes; None leaves a key out."""
    body = {**NSQD._asdict(), **changes}
    text = json.dumps({key: value for key, value in body.items() if value is not None})
    return b"IDENTIFY\n" + sized(text.encode())


def talk(data: bytes) -> LookupdServerCore:
    """A core that was sent the magic and ``data`` at once."""
    core = LookupdServerCore(ME)
    core.receive_data(MAGIC_V1 + data)
    return core


def answers(core: LookupdServerCore) -> list[bytes]:
    """Cut what the core sends into answers."""
    data, found = core.data_to_send(), []
    while data:
        size = struct.unpack(">i", data[:4])[0]
        found.append(data[4:4 + size])
        data = data[4 + size:]
    return found


def test_identify_answers_with_our_identity_as_captured():
    """The answer's keys stand in alphabetical order, without blanks."""
    core = talk(identify())
    assert core.take_events() == [NSQD]
    assert core.data_to_send() == sized(
        b'{"broadcast_address":"127.0.0.1","hostname":"here","http_port":4161,"tcp_port":4160,'
        b'"version":"1.3.0"}'
    )
    assert core.state is State.IDENTIFIED


def test_a_whole_dialogue():
    """REGISTER, UNREGISTER and PING are reported in order and answered OK."""
    core = talk(identify() + b"REGISTER t\nREGISTER t c\r\nPING\nUNREGISTER t c\nUNREGISTER t\n")
    assert core.take_events()[1:] == [
        Registered("t", None),
        Registered("t", "c"),
        Pinged(),
        Unregistered("t", "c"),
        Unregistered("t", None),
    ]
    assert answers(core)[1:] == [b"OK"] * 5
    assert not core.is_closed


def test_byte_by_byte_gives_the_same():
    """However the bytes are cut, the same events and answers come out."""
    data = MAGIC_V1 + identify() + b"REGISTER t c\nPING\nFOO\nPING\n"
    whole, slow = LookupdServerCore(ME), LookupdServerCore(ME)
    whole.receive_data(data)
    for index in range(len(data)):
        slow.receive_data(data[index:index + 1])
    assert slow.take_events() == whole.take_events()
    assert slow.data_to_send() == whole.data_to_send()


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"FOO\n", b"E_INVALID invalid command FOO"),
        (b"ping\n", b"E_INVALID invalid command ping"),
        (b"\n", b"E_INVALID invalid command "),
        (identify() + identify(), b"E_INVALID cannot IDENTIFY again"),
        (b"REGISTER t\n", b"E_INVALID client must IDENTIFY"),
        (b"UNREGISTER t\n", b"E_INVALID client must IDENTIFY"),
        (identify() + b"REGISTER\n", b"E_INVALID REGISTER insufficient number of params"),
        (identify() + b"REGISTER  t\n", b"E_BAD_TOPIC REGISTER topic name '' is not valid"),
        (
            identify() + b"REGISTER b$d c\n",
            b"E_BAD_TOPIC REGISTER topic name 'b$d' is not valid",
        ),
        (
            identify() + b"UNREGISTER t \xff\n",
            b"E_BAD_CHANNEL UNREGISTER channel name '\xff' is not valid",
        ),
        (b"IDENTIFY\n" + sized(b"{nope"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"IDENTIFY\n" + sized(b"[]"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"IDENTIFY\n" + sized(b""), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"IDENTIFY\n" + sized(b"[" * 9999), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"IDENTIFY\n" + sized(b'{"a":NaN}'), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (identify(tcp_port="1"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (identify(tcp_port=1.5), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (identify(tcp_port=True), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (identify(tcp_port=2**63), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"IDENTIFY\n" + sized(b"null"), b"E_BAD_BODY IDENTIFY missing fields"),
        (identify(version=None), b"E_BAD_BODY IDENTIFY missing fields"),
        (identify(http_port=0), b"E_BAD_BODY IDENTIFY missing fields"),
        (b"IDENTIFY\n\xff\xff\xff\xff", b"E_BAD_BODY IDENTIFY invalid body size -1"),
        (
            b"IDENTIFY\n\x7f\xff\xff\xff",
            b"E_BAD_BODY IDENTIFY body too big 2147483647 > 1048576",
        ),
    ],
)
def test_errors_are_the_last_answer(data, answer):
    """Every error has nsqlookupd's text and closes; what follows is not read."""
    core = talk(data + b"PING\n")
    assert answers(core)[-1] == answer
    assert core.is_closed


def test_the_hostname_may_be_missing_and_keys_may_be_in_capitals():
    """nsqlookupd asks for all fields but the hostname, and takes keys in any case."""
    assert talk(identify(hostname=None)).take_events() == [NSQD._replace(hostname="")]
    shouted = json.dumps({key.upper(): value for key, value in NSQD._asdict().items()})
    assert talk(b"IDENTIFY\n" + sized(shouted.encode())).take_events() == [NSQD]


def test_ping_before_identify_is_fine():
    """A PING is answered before anybody identified."""
    core = talk(b"PING\n")
    assert (core.take_events(), answers(core)) == ([Pinged()], [b"OK"])


@pytest.mark.parametrize("magic", [b"  V2", b"GET / HTTP/1.1\r\n\r\n"])
def test_another_protocol_is_told_so(magic):
    """nsqd's magic and HTTP get E_BAD_PROTOCOL, without a frame type."""
    core = LookupdServerCore(ME)
    core.receive_data(magic)
    assert core.data_to_send() == b"\x00\x00\x00\x0eE_BAD_PROTOCOL"
    assert core.is_closed


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"IDENTIFY\n\x00\x00", [b"E_BAD_BODY IDENTIFY failed to read body size"]),
        (b"IDENTIFY\n\x00\x00\x00\x09{}", [b"E_BAD_BODY IDENTIFY failed to read body"]),
        (b"PIN", []),
    ],
)
def test_the_end_of_the_stream(data, expected):
    """A body cut short is an error, a line cut short is not."""
    core = talk(data)
    core.receive_eof()
    assert (answers(core), core.is_closed) == (expected, True)


def test_an_endless_line_closes_without_an_answer():
    """A line over the limit takes no more memory: the connection ends."""
    core = talk(b"A" * (MAX_LINE_SIZE + 1))
    assert (answers(core), core.is_closed) == ([], True)
