"""The non-blocking TCP stream."""

import errno
import re
import socket
import struct
import threading

import pytest

from nsqclient.errors import ConnectError, ConnectionLostError, WriteTimeoutError, with_hint
from nsqclient.runtime.addresses import format_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import Transport
from tests.support.servers.ports import free_port

WAIT = 30.0


@pytest.fixture
def pair():
    """A transport over a socketpair, and the peer's socket."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(WAIT)
    transport = Transport(ours, "peer:1")
    yield transport, theirs
    transport.shutdown()
    transport.close()
    theirs.close()


@pytest.fixture
def listener():
    """A listening socket of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT)
        yield server


def _address(sock):
    host, port = sock.getsockname()[:2]
    return format_address(host, port)


@pytest.fixture
def tcp(listener):
    """A transport over TCP, and the peer's socket."""
    transport = Transport.connect(_address(listener), Deadline(WAIT))
    theirs, _ = listener.accept()
    yield transport, theirs
    transport.shutdown()
    transport.close()
    theirs.close()


def test_a_connected_transport_sends_and_receives(tcp):
    transport, theirs = tcp
    assert transport.send_some(b"to them") == 7
    assert theirs.recv(100) == b"to them"
    theirs.sendall(b"to us")
    assert transport.wait(WAIT)
    assert transport.recv() == b"to us"
    assert transport._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert not transport._sock.getblocking()


def test_without_time_nothing_is_dialed():
    with pytest.raises(ConnectError, match="no time was left"):
        Transport.connect("127.0.0.1:4150", Deadline(0.0))


@pytest.fixture
def deaf():
    """The address of a listener whose queue is full, so that dialing it takes for ever."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        with socket.create_connection(server.getsockname()):
            yield server.getsockname()


def _resolve_to(monkeypatch, *addresses):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args: found)


def test_one_deadline_for_all_addresses(deaf, monkeypatch):
    """A name with many dead addresses takes no longer than one."""
    _resolve_to(monkeypatch, *[deaf] * 50)
    deadline = Deadline(0.2)
    given = []
    settimeout = socket.socket.settimeout
    monkeypatch.setattr(socket.socket, "settimeout",
                        lambda sock, seconds: (given.append(seconds), settimeout(sock, seconds)))
    with pytest.raises(ConnectError, match="no answer within 0.2 s"):
        Transport.connect("many:4150", deadline)
    assert sum(given) < 0.5


def test_the_second_address_is_dialed_after_the_first(deaf, listener, monkeypatch):
    _resolve_to(monkeypatch, deaf, listener.getsockname())
    transport = Transport.connect("two:4150", Deadline(2.0))
    assert transport._sock.getpeername() == listener.getsockname()
    transport.close()


@pytest.mark.parametrize(("error", "words"), [
    (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "see that nsqd runs"),
    (OSError(errno.EHOSTUNREACH, "unreachable"), "firewall"),
    (OSError(errno.ETIMEDOUT, "timed out"), "firewall"),
    (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
    (socket.gaierror(socket.EAI_NONAME, "not known"), "correct the address"),
    (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "name server did not answer"),
    (OSError(errno.EINVAL, "odd"), ""),
])
def test_a_failed_dial_has_a_hint(monkeypatch, error, words):
    def give_up(*args):
        raise error

    if isinstance(error, socket.gaierror):
        monkeypatch.setattr(socket, "getaddrinfo", give_up)
    else:
        monkeypatch.setattr(socket.socket, "connect", give_up)
    with pytest.raises(ConnectError) as caught:
        Transport.connect("127.0.0.1:4150", Deadline(WAIT))
    assert words in caught.value.hint and bool(words) == bool(caught.value.hint)


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2", "127.0.0.2:0"])
def test_the_local_address_can_be_chosen(listener, source):
    transport = Transport.connect(_address(listener), Deadline(WAIT), source)
    peer, (host, _) = listener.accept()
    assert host == source.removesuffix(":0")
    transport.close()
    peer.close()


@pytest.mark.parametrize("source, why", [
    ("192.0.2.1", ".*Cannot assign requested address"),
    ("nosuchhost.invalid:0", ".*"),
    ("[::1]:0", "the server has no IPv6 address"),
    ("127.0.0.1:{taken}", ".*Address already in use"),
])
def test_an_error_of_the_local_address_names_it(listener, source, why):
    """Nothing is wrong with nsqd, so nothing is said of it."""
    source = source.replace("{taken}", str(listener.getsockname()[1]))
    with pytest.raises(ConnectError) as caught:
        Transport.connect(_address(listener), Deadline(WAIT), source)
    assert re.search(f"local_addr '{re.escape(source)}' cannot be used: {why}", str(caught.value))
    said = with_hint(caught.value)
    assert "local_addr to an address of this machine" in said and "broadcast" not in said


def test_a_refusal_is_said_where_another_address_is_of_the_other_family(monkeypatch):
    """Addresses of the other family are passed over, and say nothing."""
    port = free_port()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args: [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
    ])
    with pytest.raises(ConnectError, match="refused"):
        Transport.connect(f"both:{port}", Deadline(WAIT), "127.0.0.1:0")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_is_dialed():
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with server:
        transport = Transport.connect(_address(server), Deadline(WAIT))
        assert transport.address.startswith("[::1]:")
        transport.close()


def test_nothing_to_receive_is_none(pair):
    transport, theirs = pair
    assert transport.recv() is None
    assert transport.wait(0.0) is False
    theirs.close()
    assert transport.wait(WAIT)
    assert transport.recv() == b""


def _reset(sock):
    """Close so that the other end sees RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_a_reset_is_a_lost_connection(tcp):
    transport, theirs = tcp
    _reset(theirs)
    assert transport.wait(WAIT)
    with pytest.raises(ConnectionLostError, match=f"^{transport.address}: reset by the peer"):
        transport.recv()
    with pytest.raises(ConnectionLostError):
        while True:
            transport.send_some(b"x")


def test_a_wait_may_be_longer_than_poll_allows(pair):
    transport, theirs = pair
    theirs.sendall(b"x")
    assert transport.wait(1e9)
    transport.wait_writable(1e9)


def test_what_waits_to_be_received_is_seen_from_any_thread(pair):
    transport, theirs = pair
    assert not transport.has_input()
    theirs.sendall(b"x")
    assert transport.has_input()
    transport.recv()
    assert not transport.has_input()
    theirs.shutdown(socket.SHUT_WR)
    assert transport.has_input()
    transport.close()
    assert transport.has_input()


def test_a_wait_can_end_when_the_socket_takes_bytes(pair):
    transport, theirs = pair
    assert transport.wait(0.0, for_write=True)
    assert not transport.wait(0.0)
    while transport.send_some(b"x" * 65536):
        pass
    assert not transport.wait(0.0, for_write=True)
    theirs.sendall(b"x")
    assert transport.wait(WAIT, for_write=True)
    assert transport.wait(WAIT)


def test_send_returns_how_much_the_kernel_took(pair):
    transport, theirs = pair
    data = memoryview(b"x" * 10_000_000)
    sent = transport.send_some(data)
    assert 0 < sent < len(data)
    while more := transport.send_some(data[sent:]):
        sent += more
    assert transport.send_some(b"x") == 0
    received = 0
    while received < sent:
        received += len(theirs.recv(2**20))
    transport.wait_writable(WAIT)
    assert transport.send_some(b"x") == 1


def test_wait_writable_times_out(pair):
    transport, _ = pair
    while transport.send_some(b"x" * 65536):
        pass
    with pytest.raises(WriteTimeoutError, match="^peer:1: took no bytes for 0.01 s"):
        transport.wait_writable(0.01)


@pytest.mark.parametrize("for_write", [False, True])
def test_shutdown_wakes_the_reader(tcp, for_write):
    transport, _ = tcp
    found = []

    def read():
        while transport.send_some(b"x" * 65536):
            pass
        started.set()
        transport.wait(None, for_write=for_write)
        found.append(transport.recv())

    started = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    assert started.wait(WAIT)
    transport.shutdown()
    reader.join(WAIT)
    assert found == [b""]


def test_shutdown_wakes_the_writer(tcp):
    transport, _ = tcp
    errors = []

    def write():
        try:
            while True:
                if not transport.send_some(b"x" * 65536):
                    full.set()
                    transport.wait_writable(WAIT)
        except ConnectionLostError as exc:
            errors.append(exc)

    full = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    assert full.wait(WAIT)
    transport.shutdown()
    writer.join(WAIT)
    assert len(errors) == 1


def test_a_closed_transport_reports_a_lost_connection(pair):
    transport, _ = pair
    transport.shutdown()
    transport.shutdown()
    transport.close()
    transport.close()
    transport.shutdown()
    for call in (transport.recv, lambda: transport.send_some(b"x"),
                 lambda: transport.wait_writable(1.0)):
        with pytest.raises(ConnectionLostError, match="^peer:1: closed"):
            call()
    assert transport.wait(WAIT)
