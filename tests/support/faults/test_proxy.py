"""The fault proxy cuts and flips at the exact byte, on an echo of its own."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.faults.proxy import CLIENT, SERVER, FaultProxy


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


@pytest.mark.parametrize("direction", [CLIENT, SERVER])
def test_a_cut_lets_exactly_so_many_bytes_through(proxy, direction):
    proxy.cut_after(3, direction)
    with _connect(proxy) as client:
        client.sendall(b"hello")
        received = _receive(client, 100)
    assert received == (b"hel" if direction == SERVER else b"")
    assert proxy.forwarded[direction] == 3
    with _connect(proxy) as client:
        client.sendall(b"hello")
        assert _receive(client, 5) == b"hello"


def test_a_flip_changes_exactly_one_byte(proxy):
    proxy.flip_after(2, SERVER)
    with _connect(proxy) as client:
        client.sendall(b"hello")
        assert _receive(client, 5) == b"he" + bytes([ord("l") ^ 0xFF]) + b"lo"
