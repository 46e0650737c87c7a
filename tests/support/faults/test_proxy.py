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


def test_a_deaf_proxy_forwards_nothing_until_it_is_healed(proxy):
    proxy.set_deaf()
    with _connect(proxy) as client:
        client.sendall(b"hello")
        wait_until(lambda: proxy.open_links == 1)
        assert proxy.forwarded[CLIENT] == 0
        proxy.set_deaf(False)
        assert _receive(client, 5) == b"hello"


@pytest.mark.parametrize("direction", [CLIENT, SERVER])
def test_a_cut_lets_exactly_so_many_bytes_through(proxy, direction):
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
    with _connect(proxy) as client:
        client.sendall(b"x")
        assert _receive(client, 1) == b"x"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_slow_proxy_forwards_byte_by_byte(proxy):
    proxy.set_slow(chunk=1, pause=60)
    with _connect(proxy) as client:
        client.sendall(b"hello")
        first = client.recv(100)
        assert first == b"h"
        proxy.heal()
        assert _receive(client, 4) == b"ello"


def test_a_flip_changes_exactly_one_byte(proxy):
    proxy.flip_after(2, SERVER)
    with _connect(proxy) as client:
        client.sendall(b"hello")
        assert _receive(client, 5) == b"he" + bytes([ord("l") ^ 0xFF]) + b"lo"


def test_bytes_are_forwarded_after_the_delay(proxy):
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
    with _connect(proxy) as client:
        wait_until(lambda: proxy.open_links == 1)
        proxy.set_black_hole()
        client.sendall(b"hello")
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.reset()
