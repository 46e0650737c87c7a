"""Raw deflate and snappy's framing format as byte layers."""

import random
import zlib

import pytest
import snappy

from nsqclient.errors import RemoteProtocolError
from nsqclient.protocol.layers import DeflateLayer, SnappyLayer

TEXT = b"a frame, and another frame, and a frame again. " * 40
NOISE = random.Random(5).randbytes(3000)
LAYERS = pytest.mark.parametrize("make", [DeflateLayer, SnappyLayer], ids=["deflate", "snappy"])


def decoded(layer, *chunks):
    """Decode chunks with a layer."""
    return b"".join(layer.decode(chunk) for chunk in chunks)


def bytes_of(data):
    """The bytes one by one."""
    return [data[n:n + 1] for n in range(len(data))]


@LAYERS
@pytest.mark.parametrize("data", [b"x", TEXT, NOISE, b"\0" * 300_000],
                         ids=["byte", "text", "noise", "zeros"])
def test_whole_and_byte_by_byte(make, data):
    wire = make().encode(data)
    assert decoded(make(), wire) == data
    assert decoded(make(), *bytes_of(wire)) == data


@LAYERS
def test_a_stream_may_be_cut_anywhere(make):
    """A frame is decoded as soon as its last byte arrives."""
    layer = make()
    first, second = layer.encode(TEXT), layer.encode(NOISE[:50])
    wire = first + second
    for cut in range(len(wire) + 1):
        peer = make()
        early = decoded(peer, wire[:cut])
        assert early + decoded(peer, wire[cut:]) == TEXT + NOISE[:50]
        assert early.startswith(TEXT) or cut < len(first)


@LAYERS
def test_what_is_encoded_can_be_read_at_once(make):
    """Each piece is flushed."""
    ours, theirs = make(), make()
    for data in bytes_of(TEXT[:100]):
        assert decoded(theirs, ours.encode(data)) == data


# -- deflate


def test_empty_blocks_yield_nothing():
    empty = bytes.fromhex("000000ffff")
    ok = bytes.fromhex("000a00f5ff00000006000000004f4b")
    layer = DeflateLayer()
    assert decoded(layer, ok, empty, empty) == b"\0\0\0\6\0\0\0\0OK"
    assert layer.decode(empty * 3) == layer.decode(b"") == b""
    assert decoded(layer, ok) == b"\0\0\0\6\0\0\0\0OK"


@pytest.mark.parametrize("wire, what", [
    (b"\xff\xff\xff\xff", "is broken"),
    (b"HTTP/1.1 400 Bad Request\r\n", "is broken"),
    (DeflateLayer().encode(TEXT)[1:], "is broken"),
    (zlib.compress(TEXT), "is broken"),
    (b"\3\0", "came to an end"),
])
def test_bytes_that_are_not_deflate_are_a_protocol_error(wire, what):
    layer = DeflateLayer()
    assert decoded(layer, DeflateLayer().encode(b"early")) == b"early"
    for broken in (layer, DeflateLayer()):
        with pytest.raises(RemoteProtocolError, match=f"the deflate stream {what}"):
            decoded(broken, wire)


# -- snappy

STREAM = b"\xff\x06\x00\x00sNaPpY"
OK = b"\0\0\0\6\0\0\0\0OK"
#: An OK as Go's snappy sends it: not compressed, with its masked CRC-32C.
GO_OK = bytes.fromhex("010e000026982bcf") + OK


def chunk(kind, data):
    """Build a chunk with its header."""
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


def test_the_identifier_is_sent_once():
    layer = SnappyLayer()
    assert layer.encode(TEXT).startswith(STREAM)
    assert not layer.encode(NOISE[:50]).startswith(STREAM)


@pytest.mark.parametrize("between, said", [
    # Go does not compress what would not shrink; such chunks stand among others.
    (snappy.StreamCompressor().compress(TEXT)[len(STREAM):], TEXT),
    # These carry nothing.
    (STREAM, b""), (chunk(0x80, b"skip me"), b""), (chunk(0xfe, b"\0" * 300), b""),
    (chunk(0xfe, b""), b""),
], ids=["compressed", "identifier", "skippable", "padding", "empty padding"])
def test_chunks_of_each_kind_are_read(between, said):
    wire = STREAM + between + GO_OK + between + GO_OK * 2
    assert decoded(SnappyLayer(), wire) == said + OK + said + OK * 2
    assert decoded(SnappyLayer(), *bytes_of(wire)) == said + OK + said + OK * 2


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
])
def test_bytes_that_are_not_snappy_are_a_protocol_error(wire, what):
    with pytest.raises(RemoteProtocolError, match=f"the snappy stream is broken: .*{what}"):
        decoded(SnappyLayer(), wire)
    with pytest.raises(RemoteProtocolError):
        decoded(SnappyLayer(), *bytes_of(wire))
