"""Raw deflate as a byte layer."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest

from nsqclient.errors import RemoteProtocolError
from nsqclient.protocol.layers.deflate import PIECE_SIZE, DeflateLayer
from tests.protocol.streams import TEXT, decoded


def test_the_stream_is_a_plain_one():
    """Any zlib reads it, without header and without end."""
    wire = DeflateLayer(9).encode(TEXT)
    assert zlib.decompressobj(-15).decompress(wire) == TEXT


def test_empty_blocks_yield_nothing():
    """nsqd flushes twice: the empty blocks are no end, and carry nothing."""
    empty = bytes.fromhex("000000ffff")
    ok = bytes.fromhex("000a00f5ff00000006000000004f4b")
    layer = DeflateLayer()
    assert decoded(layer, ok, empty, empty) == b"\0\0\0\6\0\0\0\0OK"
    assert list(layer.decode(empty * 3)) == []
    assert list(layer.decode(b"")) == []
    assert decoded(layer, ok) == b"\0\0\0\6\0\0\0\0OK"


@pytest.mark.parametrize("wire, what", [
    (b"\xff\xff\xff\xff", "is broken"),
    (b"HTTP/1.1 400 Bad Request\r\n", "is broken"),
    (DeflateLayer().encode(TEXT)[1:], "is broken"),
    (zlib.compress(TEXT), "is broken"),
    (b"\3\0", "came to an end"),
])
def test_bytes_that_are_not_deflate_are_a_protocol_error(wire, what):
    """What is no such stream, or ends, is the peer's fault, in one kind of error."""
    with pytest.raises(RemoteProtocolError, match=f"the deflate stream {what}"):
        decoded(DeflateLayer(), wire)


def test_what_came_before_a_fault_counts():
    """What an earlier segment brought came out then; zlib gives up the faulty one as a whole."""
    layer = DeflateLayer()
    assert decoded(layer, DeflateLayer().encode(b"early")) == b"early"
    with pytest.raises(RemoteProtocolError):
        decoded(layer, b"\xff" * 9)


def test_a_bomb_comes_in_pieces():
    """A thousandfold expansion is handed over piece by piece, in bounded memory."""
    size = 64 * 1024 * 1024
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = b"".join(squeeze.compress(b"\0" * PIECE_SIZE) for _ in range(size // PIECE_SIZE))
    bomb += squeeze.flush(zlib.Z_SYNC_FLUSH)
    assert len(bomb) < size // 900
    tracemalloc.start()
    try:
        sizes = [len(piece) for piece in DeflateLayer().decode(bomb)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == size and max(sizes) <= PIECE_SIZE
    assert peak < 4 * PIECE_SIZE
