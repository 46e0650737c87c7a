"""The embedded servers under clients that mean harm: they go on, in bounded memory."""

import contextlib
import socket
import struct
import zlib

import pytest
import snappy

from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.protocol import commands
from tests.support.memory import MIB, run_bounded
from tests.support.servers.raw_socket import connect, read_all

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(60),
]

LIMIT = 150 * MIB


def pour(sock: socket.socket, data: bytes, total: int) -> None:
    block = data * max(1, min(65536, total) // len(data))
    with contextlib.suppress(OSError):
        for _ in range(max(1, total // len(block))):
            sock.sendall(block)


def bomb() -> bytes:
    """A deflate stream of zeros that expands a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * 300 + packer.flush()


def snappy_claim(size: int) -> bytes:
    """One chunk of snappy that says it expands to ``size`` bytes, and has 1.5 MB of them."""
    digits, left = b"", size
    while left > 127:
        digits += bytes([left & 127 | 128])
        left >>= 7
    block = digits + bytes([left]) + b"\x00x" + b"\xfe\x01\x00" * 24_000
    chunk = bytes(4) + block  # its checksum is wrong, which is seen when it was expanded
    return b"\x00" + len(chunk).to_bytes(3, "little") + chunk


def snappy_stream(data: bytes, times: int) -> bytes:
    """A whole snappy stream that repeats ``data``; expands at most twentyfold."""
    compressor = snappy.StreamCompressor()
    return compressor.compress(data) + compressor.compress(data) * (times - 1)


def identify(**fields: object) -> bytes:
    return b"  V2" + commands.identify({"feature_negotiation": True, **fields})


TCP = {
    "gigabytes announced": (b"  V2PUB t\n\xff\xff\xff\xff", b"x" * 1000, 10 * MIB),
    "a positive gigabyte": (b"  V2PUB t\n\x7f\xff\xff\xff", b"x" * 1000, 10 * MIB),
    "MPUB of millions": (b"  V2MPUB t\n" + struct.pack(">II", 5_000_000, 0x7FFFFFFF), b"\0", MIB),
    "IDENTIFY of gigabytes": (b"  V2IDENTIFY\n\x7f\xff\xff\xff", b"{" * 1000, 10 * MIB),
    "nested JSON": (b"  V2IDENTIFY\n" + struct.pack(">I", 100_000) + b"[" * 100_000, b"", 0),
    "a line without end": (b"  V2", b"A" * 1000, 50 * MIB),
    "no magic": (b"\0", b"\0" * 1000, 10 * MIB),
    "NOPs without end": (b"  V2", b"NOP\n", MIB),
    "a bomb": (identify(deflate=True), bomb(), 1),
    "a bomb of snappy": (identify(snappy=True), snappy_stream(bytes(MIB), 300), 1),
    "a bomb of small commands": (identify(snappy=True), snappy_stream(b"NOP\n" * 50_000, 100), 1),
    "gigabytes of snappy": (
        identify(snappy=True), snappy_stream(b"NOP\n", 1) + snappy_claim(0xFFFFFFFF), 1
    ),
}
HTTP = {
    "headers without end": (b"GET / HTTP/1.1\r\n", b"X-Y: " + b"z" * 1000 + b"\r\n", 50 * MIB),
    "a line without end": (b"GET /", b"x" * 1000, 50 * MIB),
    "a body of terabytes": (
        b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999\r\n\r\n",
        b"x" * 1000, 50 * MIB,
    ),
}


@pytest.mark.parametrize("port", ["tcp_address", "http_address"])
@pytest.mark.parametrize("server_class", [Nsqd, Nsqlookupd])
def test_the_servers_listen_on_loopback_alone(server_class, port):
    with server_class() as server:
        assert getattr(server, port).startswith("127.0.0.1:")


@pytest.mark.parametrize("harm", [*TCP, *(f"HTTP {name}" for name in HTTP)])
@pytest.mark.parametrize("server_class", [Nsqd, Nsqlookupd])
def test_a_harmful_client_is_cut_off_and_others_are_served(server_class, harm):
    over_http = harm.startswith("HTTP ")
    begin, data, total = HTTP[harm[5:]] if over_http else TCP[harm]
    if server_class is Nsqlookupd:
        begin = begin.replace(b"  V2", b"  V1")

    def work() -> None:
        with server_class() as server:
            with connect(server.http_address if over_http else server.tcp_address) as sock:
                with contextlib.suppress(OSError):
                    sock.sendall(begin)
                    if data:
                        pour(sock, data, total)
                    sock.settimeout(0.2)
                    read_all(sock)
            with connect(server.http_address) as sock:
                sock.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
                assert read_all(sock).endswith(b"OK")

    run_bounded(work, LIMIT)
