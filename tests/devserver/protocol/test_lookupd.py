"""Both ends of the protocol between nsqd and nsqlookupd, byte for byte."""

import json
import struct

import pytest

from nsqclient.devserver.protocol.lookupd import (
    MAGIC_V1,
    MAX_LINE_SIZE,
    Identity,
    LookupdClientProtocol,
    LookupdServerProtocol,
    Pinged,
    Registered,
    Response,
    State,
    Unregistered,
)
from nsqclient.errors import (
    BadTopicError,
    InvalidTopicError,
    LocalProtocolError,
    NotNSQError,
    RemoteProtocolError,
)

ME = Identity("127.0.0.1", "here", 4161, 4160, "1.3.0")
NSQD = Identity("10.0.0.1", "there", 4151, 4150, "1.3.0")


def sized(data: bytes) -> bytes:
    """Four bytes of size, then the data."""
    return struct.pack(">i", len(data)) + data


def identify(**changes: object) -> bytes:
    """IDENTIFY with a good body, save for the changes; None leaves a key out."""
    body = {**NSQD._asdict(), **changes}
    text = json.dumps({key: value for key, value in body.items() if value is not None})
    return b"IDENTIFY\n" + sized(text.encode())


def talk(data: bytes) -> LookupdServerProtocol:
    """A core that was sent the magic and ``data`` at once."""
    core = LookupdServerProtocol(ME)
    core.receive_data(MAGIC_V1 + data)
    return core


def answers(core: LookupdServerProtocol) -> list[bytes]:
    """Cut what the core sends into answers."""
    data, found = core.data_to_send(), []
    while data:
        size = struct.unpack(">i", data[:4])[0]
        found.append(data[4:4 + size])
        data = data[4 + size:]
    return found


def test_identify_response_is_nsqlookupds_byte_for_byte():
    """The keys are in alphabetical order, without spaces."""
    core = talk(identify())
    assert core.take_events() == [NSQD]
    assert core.data_to_send() == sized(
        b'{"broadcast_address":"127.0.0.1","hostname":"here","http_port":4161,"tcp_port":4160,'
        b'"version":"1.3.0"}'
    )
    assert core.state is State.IDENTIFIED


def test_commands_are_reported_in_order():
    """REGISTER, UNREGISTER and PING are answered OK."""
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


def test_events_do_not_depend_on_how_bytes_are_cut():
    """However the bytes are cut, the events and responses are the same."""
    data = MAGIC_V1 + identify() + b"REGISTER t c\nPING\nFOO\nPING\n"
    whole, slow = LookupdServerProtocol(ME), LookupdServerProtocol(ME)
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
def test_connection_closes_after_an_error(data, answer):
    """Every error has nsqlookupd's text; bytes after it are not read."""
    core = talk(data + b"PING\n")
    assert answers(core)[-1] == answer
    assert core.is_closed


def test_the_hostname_may_be_missing_and_keys_may_be_in_capitals():
    """nsqlookupd requires all fields but the hostname, and accepts keys in any case."""
    assert talk(identify(hostname=None)).take_events() == [NSQD._replace(hostname="")]
    shouted = json.dumps({key.upper(): value for key, value in NSQD._asdict().items()})
    assert talk(b"IDENTIFY\n" + sized(shouted.encode())).take_events() == [NSQD]


def test_ping_before_identify_is_answered():
    """A PING needs no IDENTIFY."""
    core = talk(b"PING\n")
    assert (core.take_events(), answers(core)) == ([Pinged()], [b"OK"])


@pytest.mark.parametrize("magic", [b"  V2", b"GET / HTTP/1.1\r\n\r\n"])
def test_other_magic_is_e_bad_protocol(magic):
    """nsqd's magic and HTTP get E_BAD_PROTOCOL, without a frame type."""
    core = LookupdServerProtocol(ME)
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
def test_stream_that_ends_inside_a_body_is_an_error(data, expected):
    """An incomplete line is no error."""
    core = talk(data)
    core.receive_eof()
    assert (answers(core), core.is_closed) == (expected, True)


def test_line_over_the_limit_closes_without_a_response():
    """It takes no more memory."""
    core = talk(b"A" * (MAX_LINE_SIZE + 1))
    assert (answers(core), core.is_closed) == ([], True)


@pytest.fixture
def core():
    """A core whose IDENTIFY was sent and answered."""
    core = LookupdClientProtocol(NSQD)
    core.data_to_send()
    core.receive_data(sized(ME.to_json()))
    assert core.take_events() == [ME]
    return core


def test_both_ends_understand_each_other():
    """nsqlookupd's end reads the commands of nsqd's end, and the other way round."""
    nsqd, lookupd = LookupdClientProtocol(NSQD), LookupdServerProtocol(ME)
    nsqd.send_register("t", "c")
    nsqd.send_register("u")
    nsqd.send_ping()
    lookupd.receive_data(nsqd.data_to_send())
    assert lookupd.take_events()[:3] == [NSQD, Registered("t", "c"), Registered("u", None)]
    nsqd.receive_data(lookupd.data_to_send())
    assert nsqd.take_events() == [
        ME,
        Response("REGISTER t c", None),
        Response("REGISTER u", None),
        Response("PING", None),
    ]
    assert (nsqd.pending, nsqd.state) == (0, State.IDENTIFIED)


def test_client_begins_with_magic_and_identity():
    """A new core sends its identity, as captured from nsqd."""
    assert LookupdClientProtocol(NSQD).data_to_send() == b"  V1IDENTIFY\n" + sized(
        b'{"broadcast_address":"10.0.0.1","hostname":"there","http_port":4151,"tcp_port":4150,'
        b'"version":"1.3.0"}'
    )


def test_commands_have_topic_and_channel(core):
    """REGISTER and UNREGISTER have the topic, then the channel."""
    core.send_unregister("t", "c")
    core.send_unregister("t")
    assert core.data_to_send() == b"UNREGISTER t c\nUNREGISTER t\n"
    assert core.pending == 2


def test_error_response_closes_the_client(core):
    """E_ becomes the error of this code; nothing may be sent after it."""
    core.send_register("t")
    core.receive_data(sized(b"E_BAD_TOPIC REGISTER topic name 't' is not valid"))
    (answer,) = core.take_events()
    assert isinstance(answer.error, BadTopicError)
    with pytest.raises(LocalProtocolError):
        core.send_ping()


def test_responses_may_arrive_byte_by_byte(core):
    """A response is read when its last byte is there."""
    core.send_ping()
    for byte in sized(b"OK"):
        assert core.take_events() == []
        core.receive_data(bytes([byte]))
    assert core.take_events() == [Response("PING", None)]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 400 Bad Request", NotNSQError),
        (b"\xff\xff\xff\xff", RemoteProtocolError),
        (b"\x7f\xff\xff\xff", RemoteProtocolError),
        (sized(b"OK"), RemoteProtocolError),
        (sized(b"[1]"), RemoteProtocolError),
    ],
)
def test_response_of_another_server_is_an_error(data, error):
    """HTTP, impossible sizes and an IDENTIFY response without JSON are errors."""
    with pytest.raises(error):
        LookupdClientProtocol(NSQD).receive_data(data)


@pytest.mark.parametrize("data", [b"YES", b""])
def test_response_other_than_ok_is_an_error(core, data):
    """Any response but OK or E_ to REGISTER is an error."""
    core.send_register("t")
    with pytest.raises(RemoteProtocolError):
        core.receive_data(sized(data))


def test_response_without_a_command_is_an_error(core):
    """A response without a command is an error."""
    with pytest.raises(RemoteProtocolError):
        core.receive_data(sized(b"OK"))


def test_invalid_name_is_not_sent(core):
    """It would end the connection."""
    with pytest.raises(InvalidTopicError):
        core.send_register("no good")
    assert (core.pending, core.data_to_send()) == (0, b"")


def test_nothing_is_read_after_the_end(core):
    """After the end of the stream the core is closed."""
    core.receive_eof()
    core.receive_data(sized(b"OK"))
    assert core.state is State.CLOSED
