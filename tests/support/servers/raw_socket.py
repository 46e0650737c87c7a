"""Bytes to a TCP port and back, for what no client library would send."""

import socket


def connect(address: str, timeout: float = 10.0) -> socket.socket:
    """Open a blocking connection to ``host:port``."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """Read ``size`` bytes, fewer only at the end of the stream."""
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


def read_all(sock: socket.socket) -> bytes:
    """Read until the peer closes, by FIN or reset."""
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


def ask(address: str, data: bytes) -> bytes:
    """Send bytes and return all that comes until the peer closes."""
    with connect(address) as sock:
        sock.sendall(data)
        return read_all(sock)
