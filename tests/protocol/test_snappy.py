"""Snappy's framing format as a byte layer."""

from __future__ import annotations

import tracemalloc

import pytest
import snappy

from nsqclient.errors import RemoteProtocolError
from nsqclient.protocol.layers.snappy import MAX_CHUNK_SIZE, SnappyLayer
from tests.protocol.streams import NOISE, TEXT, bytes_of, decoded

STREAM = b"\xff\x06\x00\x00sNaPpY"
OK = b"\0\0\0\6\0\0\0\0OK"
#: An OK as Go's snappy sends it: not compressed, with its masked CRC-32C.
GO_OK = bytes.fromhex("010e000026982bcf") + OK


def chunk(kind, data):
    """A chunk with its head."""
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


def test_the_identifier_is_sent_once():
    layer = SnappyLayer()
    assert layer.encode(TEXT).startswith(STREAM)
    assert not layer.encode(NOISE[:50]).startswith(STREAM)


def test_uncompressed_chunks_are_read():
    """Go does not compress what would not shrink; such chunks stand among others."""
    text = snappy.StreamCompressor().compress(TEXT)[len(STREAM):]
    wire = STREAM + GO_OK + text + GO_OK * 2
    assert decoded(SnappyLayer(), wire) == OK + TEXT + OK * 2
    assert decoded(SnappyLayer(), *bytes_of(wire)) == OK + TEXT + OK * 2


@pytest.mark.parametrize("between", [
    STREAM, chunk(0x80, b"skip me"), chunk(0xfe, b"\0" * 300), chunk(0xfe, b""),
], ids=["identifier", "skippable", "padding", "empty padding"])
def test_chunks_without_data_are_skipped(between):
    """The identifier again, chunks that may be skipped and padding carry nothing."""
    wire = STREAM + between + GO_OK + between + GO_OK
    assert decoded(SnappyLayer(), wire) == OK + OK
    assert decoded(SnappyLayer(), *bytes_of(wire)) == OK + OK


@pytest.mark.parametrize("wire, what", [
    (GO_OK, "not with the stream identifier"),
    (b"HTTP/1.1 400 Bad Request\r\n", "not with the stream identifier"),
    (chunk(0xff, b"sNaPpX"), "."),
    (chunk(0xff, b"sNa"), "."),
    (STREAM + chunk(0x02, b"reserved"), "."),
    (STREAM + chunk(0x7f, b"reserved"), "."),
    (STREAM + chunk(0x00, b""), "."),
    (STREAM + chunk(0x01, b"abc"), "."),
    (STREAM + GO_OK[:-1] + b"J", "."),  # a flipped bit, which the checksum shows
    (STREAM + chunk(0x00, b"\0\0\0\0" + b"\xff\xff\xff\xff\x0f" + b"x" * 20), "."),
    (STREAM + b"\x00" + (MAX_CHUNK_SIZE + 1).to_bytes(3, "little"), "a chunk of 76495 bytes"),
])
def test_bytes_that_are_not_snappy_are_a_protocol_error(wire, what):
    """What is no such stream is the peer's fault, in one kind of error."""
    with pytest.raises(RemoteProtocolError, match=f"the snappy stream is broken: .*{what}"):
        decoded(SnappyLayer(), wire)
    with pytest.raises(RemoteProtocolError):
        decoded(SnappyLayer(), *bytes_of(wire))


def test_what_came_before_a_fault_counts():
    pieces = SnappyLayer().decode(STREAM + GO_OK + b"\x00\xff\xff\xff")
    assert next(pieces) == OK
    with pytest.raises(RemoteProtocolError):
        next(pieces)


def test_a_bomb_comes_in_pieces():
    """The strongest expansion is handed over piece by piece, in bounded memory."""
    size = 32 * 1024 * 1024
    bomb = SnappyLayer().encode(b"\0" * size)
    assert len(bomb) < size // 20
    tracemalloc.start()
    try:
        sizes = [len(piece) for piece in SnappyLayer().decode(bomb)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == size and max(sizes) <= 2 * 1024 * 1024
    assert peak < 3 * len(bomb)
