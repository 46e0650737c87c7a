"""nsqd's end of the dialogue with nsqlookupd."""

import struct

import pytest

from nsqclient.errors import (
    BadTopicError,
    InvalidTopicError,
    LocalProtocolError,
    NotNSQError,
    RemoteProtocolError,
)
from nsqclient.protocol.lookupd import Identity, LookupdServerCore, Registered, State
from nsqclient.protocol.lookupd_client import Answer, LookupdClientCore

NSQD = Identity("10.0.0.1", "there", 4151, 4150, "1.3.0")
LOOKUPD = Identity("127.0.0.1", "here", 4161, 4160, "1.3.0")


def sized(data: bytes) -> bytes:
    """Four bytes of size, then the data."""
    return struct.pack(">i", len(data)) + data


@pytest.fixture
def core():
    """A core whose IDENTIFY was sent and answered."""
    core = LookupdClientCore(NSQD)
    core.data_to_send()
    core.receive_data(sized(LOOKUPD.to_json()))
    assert core.take_events() == [LOOKUPD]
    return core


def test_both_ends_understand_each_other():
    """What nsqd's end says, nsqlookupd's end reads, and the other way round."""
    nsqd, lookupd = LookupdClientCore(NSQD), LookupdServerCore(LOOKUPD)
    nsqd.send_register("t", "c")
    nsqd.send_register("u")
    nsqd.send_ping()
    lookupd.receive_data(nsqd.data_to_send())
    assert lookupd.take_events()[:3] == [NSQD, Registered("t", "c"), Registered("u", None)]
    nsqd.receive_data(lookupd.data_to_send())
    assert nsqd.take_events() == [
        LOOKUPD, Answer("REGISTER t c", None), Answer("REGISTER u", None), Answer("PING", None)
    ]
    assert (nsqd.pending, nsqd.state) == (0, State.IDENTIFIED)


def test_opens_with_magic_and_identity():
    """A new core says who it is, as captured from nsqd."""
    assert LookupdClientCore(NSQD).data_to_send() == b"  V1IDENTIFY\n" + sized(
        b'{"broadcast_address":"10.0.0.1","hostname":"there","http_port":4151,"tcp_port":4150,'
        b'"version":"1.3.0"}'
    )


def test_commands_on_the_wire(core):
    """REGISTER and UNREGISTER name the topic, then the channel."""
    core.send_unregister("t", "c")
    core.send_unregister("t")
    assert core.data_to_send() == b"UNREGISTER t c\nUNREGISTER t\n"
    assert core.pending == 2


def test_an_error_answer_ends_the_dialogue(core):
    """An answer with E_ becomes the error it stands for; nothing may be sent after it."""
    core.send_register("t")
    core.receive_data(sized(b"E_BAD_TOPIC REGISTER topic name 't' is not valid"))
    (answer,) = core.take_events()
    assert isinstance(answer.error, BadTopicError)
    with pytest.raises(LocalProtocolError):
        core.send_ping()


def test_answers_may_come_byte_by_byte(core):
    """An answer is read when its last byte is there."""
    core.send_ping()
    for byte in sized(b"OK"):
        assert core.take_events() == []
        core.receive_data(bytes([byte]))
    assert core.take_events() == [Answer("PING", None)]


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
def test_what_is_no_nsqlookupd_is_recognised(data, error):
    """HTTP, impossible sizes and an IDENTIFY answer without JSON are errors."""
    with pytest.raises(error):
        LookupdClientCore(NSQD).receive_data(data)


@pytest.mark.parametrize("data", [b"YES", b""])
def test_an_answer_that_is_not_ok(core, data):
    """Anything but OK or E_ after REGISTER is an error."""
    core.send_register("t")
    with pytest.raises(RemoteProtocolError):
        core.receive_data(sized(data))


def test_an_answer_that_nobody_asked_for(core):
    """An answer without a command is an error."""
    with pytest.raises(RemoteProtocolError):
        core.receive_data(sized(b"OK"))


def test_names_are_checked_before_the_wire(core):
    """A bad name never leaves: it would cost the connection."""
    with pytest.raises(InvalidTopicError):
        core.send_register("no good")
    assert (core.pending, core.data_to_send()) == (0, b"")


def test_after_the_end_nothing_is_read(core):
    """After the end of the stream the core is closed."""
    core.receive_eof()
    core.receive_data(sized(b"OK"))
    assert core.state is State.CLOSED
