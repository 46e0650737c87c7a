"""Both ends of the protocol between nsqd and nsqlookupd, byte for byte."""

import io

import pytest

from nsqclient.devserver.protocol.commands import CommandError
from nsqclient.devserver.protocol.lookupd import (
    MAX_LINE_SIZE, Identity, identify, read_command, read_identity, read_ok,
    read_peer, read_response, sized, )
from nsqclient.errors import NotNSQError, RemoteProtocolError, ServerError

NSQD = Identity("10.0.0.1", "there", 4151, 4150, "1.3.0")


def test_a_connection_begins_with_magic_and_identity():
    """As captured from nsqd: the keys are in alphabetical order, without spaces."""
    assert identify(NSQD) == b"  V1IDENTIFY\n" + sized(
        b'{"broadcast_address":"10.0.0.1","hostname":"there","http_port":4151,"tcp_port":4150,'
        b'"version":"1.3.0"}'
    )


@pytest.mark.parametrize("data", [b"", b"PIN", b"A" * (MAX_LINE_SIZE + 1) + b"\n"])
def test_an_incomplete_or_endless_line_is_the_end(data):
    """The reader stops buffering."""
    assert read_command(io.BytesIO(data)) is None


@pytest.mark.parametrize(("size", "text"), [
    (b"\xff\xff\xff\xff", "invalid body size -1"),
    (b"\x7f\xff\xff\xff", "body too big 2147483647 > 1048576"),
])
def test_an_identity_of_an_impossible_size_is_an_error(size, text):
    """A real nsqlookupd crashes, or takes the memory; other errors stand in test_registration."""
    with pytest.raises(CommandError, match=f"^E_BAD_BODY IDENTIFY {text}"):
        read_identity(io.BytesIO(size))


def test_responses_are_read_in_order():
    stream = io.BytesIO(
        sized(NSQD.to_json()) + sized(b"OK") + sized(b"E_BAD_TOPIC REGISTER topic name"))
    assert read_peer(stream) == NSQD
    read_ok(stream)
    with pytest.raises(ServerError, match="E_BAD_TOPIC"):
        read_ok(stream)


@pytest.mark.parametrize(("read", "data", "error"), [
    (read_response, b"HTTP/1.1 400 Bad Request", NotNSQError),
    (read_response, b"\xff\xff\xff\xff", RemoteProtocolError),
    (read_response, b"", RemoteProtocolError),
    (read_response, b"\0\0\0\x02O", RemoteProtocolError),
    (read_peer, sized(b"OK"), RemoteProtocolError),
    (read_peer, sized(b"[1]"), RemoteProtocolError),
    (read_ok, sized(b"YES"), RemoteProtocolError),
    (read_ok, sized(b""), RemoteProtocolError),
])
def test_a_response_of_another_server_is_an_error(read, data, error):
    with pytest.raises(error):
        read(io.BytesIO(data))
