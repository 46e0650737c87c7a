"""TLS as a byte layer: two ends in memory."""

import pytest

from nsqclient.errors import RemoteProtocolError, TLSError
from nsqclient.protocol.tls import TLSLayer
from nsqclient.runtime.tls import client_context, server_context
from tests.support.certificates import Certificates

TEXT = b"a frame, and another frame. " * 40


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def make_client(certificates, name="127.0.0.1"):
    return TLSLayer(client_context(ca_file=certificates.ca), server_name=name)


def make_server(certificates, **options):
    context = server_context(
        cert=certificates.server, key=certificates.server_key, **options
    )
    return TLSLayer(context, server_side=True)


def carry(one, other):
    """Transfer the layers' own bytes until both are silent; return the decoded data."""
    got = b""
    while one.has_output() or other.has_output():
        for source, target in ((one, other), (other, one)):
            got += target.decode(source.wire_output())
    return got


def shake_hands(certificates):
    client, server = make_client(certificates), make_server(certificates)
    assert carry(client, server) == b""
    assert client.is_established and server.is_established
    return client, server


def test_data_in_the_segment_of_the_last_handshake_message(certificates):
    """Data may follow the end of the handshake in its segment, cut anywhere."""
    for at in (0, 1, 40, 80, -1):
        client, server = make_client(certificates), make_server(certificates)
        server.decode(client.wire_output())
        client.decode(server.wire_output())
        wire = client.wire_output() + client.encode(TEXT)
        assert server.decode(wire[:at]) + server.decode(wire[at:]) == TEXT


@pytest.mark.parametrize("wire", [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\6\0\0\0\0OK", b"\xff" * 50,
])
def test_bytes_that_are_not_tls_are_an_error(certificates, wire):
    with pytest.raises(TLSError) as caught:
        make_client(certificates).decode(wire)
    assert caught.value.reason and "_ssl.c" not in str(caught.value)


@pytest.mark.parametrize("name", ["nsqd.example", "10.0.0.1"])
def test_the_servers_name_counts(certificates, name):
    client, server = make_client(certificates, name), make_server(certificates)
    with pytest.raises(TLSError, match="certificate verify failed: .*" + name):
        carry(client, server)
    assert client.has_output()  # the alert that names the reason
    with pytest.raises(TLSError, match="alert"):
        server.decode(client.wire_output())


@pytest.mark.parametrize("name", ["", ".", "a" * 300, "a..b", "x\0y"])
def test_a_name_that_is_none(certificates, name):
    with pytest.raises(TLSError, match="server name"):
        make_client(certificates, name=name)


def test_a_missing_client_certificate_is_reported_afterwards(certificates):
    """With TLS 1.3, the alert comes instead of the first data."""
    client = make_client(certificates)
    server = make_server(certificates, ca_file=certificates.ca, verify_clients=True)
    server.decode(client.wire_output())
    client.decode(server.wire_output())
    assert client.is_established
    with pytest.raises(TLSError):
        server.decode(client.wire_output())
    with pytest.raises(TLSError, match="certificate required"):
        client.decode(server.wire_output())


@pytest.mark.parametrize("at", [0, 4, 5, 20, -1])
def test_a_changed_byte_is_an_error(certificates, at):
    client, server = shake_hands(certificates)
    assert server.decode(client.encode(b"early")) == b"early"
    wire = bytearray(client.encode(TEXT))
    wire[at] ^= 1
    # A length that grew by one (the byte at 4) makes the reader wait for it.
    wire += b"\0" * (at == 4)
    with pytest.raises(RemoteProtocolError, match="the TLS stream is broken"):
        server.decode(bytes(wire))


def test_what_came_before_a_fault_counts(certificates):
    client, server = shake_hands(certificates)
    wire = client.encode(b"early") + client.encode(TEXT)[:-1] + b"\0"
    assert server.decode(wire) == b"early"
    with pytest.raises(RemoteProtocolError):
        server.decode(b"")


def test_a_goodbye_is_no_fault(certificates):
    """After the peer's close_notify, the end of the stream follows."""
    client, server = shake_hands(certificates)
    last = server.encode(TEXT)
    with pytest.raises(Exception, match=r"want|read"):  # ssl: it waits for our goodbye
        server.tls.unwrap()
    assert client.decode(last + server.wire_output()) == TEXT
    assert client.decode(b"") == b""
