"""The fault proxy does what it says, on an echo of its own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.faults.proxy import CLIENT, SERVER, FaultProxy
from tests.support.waiting import wait_until


def _echo(listener: socket.socket) -> None:
    """Send every connection's bytes back, one connection after the other."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                continue


@pytest.fixture
def proxy(leak_guard: None) -> Iterator[FaultProxy]:
    """A proxy in front of an echo server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_echo, args=(listener,), daemon=True)
        thread.start()
        with FaultProxy(f"127.0.0.1:{listener.getsockname()[1]}") as running:
            yield running
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _connect(proxy: FaultProxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


def test_bytes_are_forwarded_both_ways(proxy):
    """Without a fault every byte arrives, however many there are."""
    body = bytes(range(256)) * 4000
    with _connect(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=(body,))
        sender.start()
        assert _receive(client, len(body)) == body
        sender.join(10)


def test_the_end_of_file_is_forwarded(proxy):
    """A client that stops writing still receives the rest, then the end."""
    with _connect(proxy) as client:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert _receive(client, 100) == b"last"
    wait_until(lambda: proxy.open_links == 0)


def test_stop_refuses_and_start_listens_again(proxy):
    """A stopped proxy closes its connections and refuses; its address survives."""
    with _connect(proxy) as client:
        client.sendall(b"x")
        assert _receive(client, 1) == b"x"
        proxy.stop()
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        _connect(proxy)
    proxy.start()
    with _connect(proxy) as client:
        client.sendall(b"y")
        assert _receive(client, 1) == b"y"


def test_a_deaf_proxy_forwards_nothing_until_it_is_healed(proxy):
    """A deaf proxy accepts and is silent; later the bytes arrive all the same."""
    proxy.set_deaf()
    with _connect(proxy) as client:
        client.sendall(b"hello")
        wait_until(lambda: proxy.open_links == 1)
        assert proxy.forwarded[CLIENT] == 0
        proxy.set_deaf(False)
        assert _receive(client, 5) == b"hello"


@pytest.mark.parametrize("direction", [CLIENT, SERVER])
def test_a_cut_lets_exactly_so_many_bytes_through(proxy, direction):
    """A cut lets exactly so many bytes through, once."""
    proxy.cut_after(3, direction)
    with _connect(proxy) as client:
        client.sendall(b"hello")
        received = _receive(client, 100)
    assert received == (b"hel" if direction == SERVER else b"")
    assert (proxy.cuts, proxy.forwarded[direction]) == (1, 3)
    with _connect(proxy) as client:
        client.sendall(b"hello")
        assert _receive(client, 5) == b"hello"


def test_a_reset_ends_connections_with_rst(proxy):
    """A reset is seen by the client as a reset, not as an end of file."""
    with _connect(proxy) as client:
        client.sendall(b"x")
        assert _receive(client, 1) == b"x"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_slow_proxy_forwards_byte_by_byte(proxy):
    """A slow proxy hands bytes over one at a time."""
    proxy.set_slow(chunk=1, pause=60)
    with _connect(proxy) as client:
        client.sendall(b"hello")
        first = client.recv(100)
        assert first == b"h"
        proxy.set_fast()
        assert _receive(client, 4) == b"ello"


def test_a_flip_changes_exactly_one_byte(proxy):
    """A flipped byte is the one after the count, and the only one."""
    proxy.flip_after(2, SERVER)
    with _connect(proxy) as client:
        client.sendall(b"hello")
        assert _receive(client, 5) == b"he" + bytes([ord("l") ^ 0xFF]) + b"lo"


def test_bytes_are_forwarded_after_the_delay(proxy):
    """What comes is forwarded after the delay, both ways, and nothing is lost."""
    proxy.set_delay(0.05, 0.01)
    with _connect(proxy) as client:
        began = time.monotonic()
        client.sendall(b"hello")
        assert _receive(client, 5) == b"hello"
        assert time.monotonic() - began >= 0.1


def test_a_half_close_ends_one_direction_alone(proxy):
    """The client reads the end of the stream, and what it sends still arrives."""
    with _connect(proxy) as client:
        client.sendall(b"hello")
        assert _receive(client, 5) == b"hello"
        proxy.half_close(SERVER)
        assert client.recv(1) == b""
        before = proxy.forwarded[CLIENT]
        client.sendall(b"more")
        wait_until(lambda: proxy.forwarded[CLIENT] == before + 4)
    wait_until(lambda: proxy.open_links == 0)


def test_a_black_hole_closes_no_connection(proxy):
    """Bytes of open connections vanish, and nothing ends."""
    with _connect(proxy) as client:
        wait_until(lambda: proxy.open_links == 1)
        proxy.set_black_hole()
        client.sendall(b"hello")
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.reset()


def test_connections_are_swallowed_until_the_hole_heals(proxy):
    """A connection that is made meanwhile stays without a peer; a later one works."""
    proxy.set_black_hole()
    with _connect(proxy) as lost:
        wait_until(lambda: proxy.accepted == 1)
        proxy.heal()
        with _connect(proxy) as client:
            client.sendall(b"hello")
            assert _receive(client, 5) == b"hello"
        lost.sendall(b"hello")
        lost.settimeout(0.05)
        with pytest.raises(TimeoutError):
            lost.recv(1)


def test_the_tap_sees_what_was_forwarded():
    """A tap gets the number of the connection, the direction and the bytes."""
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_echo, args=(listener,), daemon=True)
        thread.start()
        upstream = f"127.0.0.1:{listener.getsockname()[1]}"
        with FaultProxy(upstream, lambda *what: seen.append(what)) as proxy:
            with _connect(proxy) as client:
                client.sendall(b"hello")
                _receive(client, 5)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert seen == [(1, CLIENT, b"hello"), (1, SERVER, b"hello")]
