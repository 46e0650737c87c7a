"""What deflate and snappy have in common as byte layers."""

from __future__ import annotations

import pytest

from nsqclient.protocol.layers.deflate import DeflateLayer
from nsqclient.protocol.layers.snappy import SnappyLayer
from tests.protocol.streams import NOISE, TEXT, bytes_of, decoded

LAYERS = pytest.mark.parametrize("make", [DeflateLayer, SnappyLayer], ids=["deflate", "snappy"])


@LAYERS
@pytest.mark.parametrize("data", [b"x", TEXT, NOISE, b"\0" * 300_000],
                         ids=["byte", "text", "noise", "zeros"])
def test_whole_and_byte_by_byte(make, data):
    """What one end encodes, the other decodes, however it is cut; also over many chunks."""
    wire = make().encode(data)
    assert decoded(make(), wire) == data
    assert decoded(make(), *bytes_of(wire)) == data


@LAYERS
def test_a_stream_may_be_cut_anywhere(make):
    """Two frames, cut anywhere: all of the first is there as soon as its last byte is."""
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
    """Each piece is flushed: no byte waits for the next one."""
    ours, theirs = make(), make()
    for data in bytes_of(TEXT[:100]):
        assert decoded(theirs, ours.encode(data)) == data
