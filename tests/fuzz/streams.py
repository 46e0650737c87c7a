"""Valid streams of both directions in every combination, and their mutations."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nsqclient.protocol import commands
from nsqclient.protocol.frames import encode_frame, encode_message
from nsqclient.protocol.layers import DeflateLayer, SnappyLayer

ID = b"0123456789abcdef"
OK = encode_frame(0, b"OK")
BEAT = encode_frame(0, b"_heartbeat_")
#: The bytes of nsqd after all layers are set up: the answers to PUB and SUB, then whatever.
DOWN = (
    OK, BEAT, OK, encode_message(1, 1, ID, b"body"), encode_message(2**62, 65535, ID, b""),
    encode_message(3, 2, ID, b"x" * 3000), encode_frame(1, b"E_FIN_FAILED FIN failed"), BEAT,
    encode_frame(0, b"CLOSE_WAIT"), encode_frame(1, b"E_INVALID bad"),
)
#: The bytes of a client after that.
UP = (
    commands.pub("t", b"x"), commands.dpub("t", 100, b"x" * 500),
    commands.mpub("t", [b"a", b"b" * 300]), commands.sub("t", "c"), b"RDY 10\n",
    b"FIN %b\n" % ID, commands.req(ID, 5), commands.touch(ID), b"NOP\n", commands.CLS,
    commands.auth("s"),
)
#: What mutations like to write: sizes at the edges, and what starts a layer or a protocol.
TOKENS = (
    b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\1\0\0", b"\n", b" ",
    b"HTTP", OK, BEAT, b"\0\0\xff\xff", b"\xff\x06\0\0sNaPpY", b"\x01\x0e\0\0", b"\x16\x03\x01",
    b"NOP\n", b"IDENTIFY\n", b"#ephemeral", b'{"tls_v1":true}', b"_heartbeat_",
)
COMPRESSIONS = ("", "snappy", "deflate")


class Stream(NamedTuple):
    """One direction: the plain bytes, and the compressed ones."""

    plain: bytes
    inner: tuple[bytes, ...]
    compression: str


def _encoder(compression: str) -> Callable[[bytes], bytes]:
    if compression == "snappy":
        return SnappyLayer().encode
    return DeflateLayer().encode if compression else lambda data: data


def client_side(compression: str, tls: bool) -> Stream:
    """The bytes of nsqd. With ``tls`` the answer grants TLS, but none follows."""
    answer = {"max_rdy_count": 2500, "version": "1.3.0", "tls_v1": tls}
    answer |= {compression: True} if compression else {}
    first = (OK,) if compression else ()
    return Stream(encode_frame(0, json.dumps(answer).encode()), first + DOWN, compression)


def server_side(compression: str) -> Stream:
    """The bytes of a client."""
    asked = {"feature_negotiation": True}
    asked |= {compression: True} if compression else {}
    return Stream(b"  V2" + commands.identify(asked), UP, compression)


def render(stream: Stream, rng: random.Random) -> bytes:
    """Make the bytes of a stream: some of its parts in any order, changed before or after."""
    parts = [rng.choice(stream.inner) for _ in range(rng.randrange(1, 8))]
    if rng.random() < 0.7:
        parts = [*stream.inner[:rng.randrange(len(stream.inner) + 1)], *parts[:2]]
    plain = stream.plain
    where = rng.randrange(4)  # in the opening, before or after the compression, or nowhere
    if where == 0:
        plain = mutate(plain, rng)
    elif where == 1 and parts:
        index = rng.randrange(len(parts))
        parts[index] = mutate(parts[index], rng)
    encode = _encoder(stream.compression)
    wire = b"".join([encode(part) for part in parts])
    if where == 2:
        wire = mutate(wire, rng)
    return plain + wire


#: Items that may come in thousands, one after the other.
RUNS = b"0159-.[{\"/ %a"


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change bytes in one to three ways."""
    buffer = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(buffer) + 1)
        if rng.random() < 0.02:  # no float holds 310 digits, int() refuses 4,301; bad patterns
            size = rng.choice((21, 310, 4200, rng.randrange(4000, 6000)))
            buffer[at:at] = bytes([rng.choice(RUNS)]) * size
            continue
        way = rng.randrange(6)
        if way == 0 and at < len(buffer):
            buffer[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            token = rng.choice(TOKENS)
            buffer[at:at + len(token)] = token
        elif way == 2:
            buffer[at:at] = rng.randbytes(rng.randrange(1, 20))
        elif way == 3:
            del buffer[at:at + rng.randrange(1, 20)]
        elif way == 4:
            buffer[at:at] = buffer[at:at + rng.randrange(1, 200)]
        else:
            del buffer[at:]
    return bytes(buffer)


_JSON_VALUE = re.compile(rb'"[^"]*"|-?\d+(?:\.\d+)?|true|false|null|\[\]|\{\}')
#: Values that a peer may write; Python reads all of them as JSON.
HOSTILE_VALUES = (
    b"1" * 21, b"-" + b"1" * 309, b"1" * 310, b"1" * 4299, b"9" * 5000, b"1e308", b"-1e309",
    b"1e999", b"NaN", b"-Infinity", rb'"\ud800"', rb'"\udc00\ud83d"', b'"%s"' % (b"9" * 5000),
    b'""', b"null", b"true", b"-1", b"0.5", b"[]", b"{}", b'[{"quantile":"x","value":"y"}]',
    b"[[1]]", b"[" * 40 + b"]" * 40, b"[" * 900 + b"]" * 900, b"[" * 5000,
    b'{"a":' * 300 + b"1" + b"}" * 300, b"18446744073709551615", b"-9223372036854775808",
    b'"\xff"', b'"<script>"', b'"a b/../c\\r\\n"',
)


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """Replace one to three values, so that the result mostly remains JSON."""
    for _ in range(rng.randrange(1, 4)):
        places = list(_JSON_VALUE.finditer(data))
        if places:
            place = rng.choice(places)
            data = data[:place.start()] + rng.choice(HOSTILE_VALUES) + data[place.end():]
    return data


def cut(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Cut bytes as a network may: whole, in a few pieces, or byte by byte."""
    way = rng.randrange(8)
    if way == 0 and len(data) < 2000:
        yield from (data[at:at + 1] for at in range(len(data)))
        return
    at = 0
    while at < len(data):
        size = len(data) if way < 4 else rng.randrange(1, max(2, len(data) // 3))
        yield data[at:at + size]
        at += size
