"""The rows of the captured table that switch a connection to deflate or snappy.

The bytes are taken apart with zlib and python-snappy themselves, not with the package's layers.
"""

from __future__ import annotations

import json
import zlib

import pytest
import snappy

from tests.integration.error_table import LAYERS, LATER_KEYS, TABLE
from tests.support.servers.raw_socket import connect, read_all, read_exactly

OK = b"\0\0\0\6\0\0\0\0OK"
ROWS = [pytest.param(row, id=repr(row.sent[13:60])) for row in LAYERS]
#: One command that ends a connection, and a command that does not, of the other table.
UNKNOWN, PUB = TABLE["unknown"][0], TABLE["PUB"][0]


class Deflate:
    def __init__(self):
        self._out = zlib.compressobj(6, zlib.DEFLATED, -15)
        self.decompress = zlib.decompressobj(-15).decompress

    def compress(self, data):
        return self._out.compress(data) + self._out.flush(zlib.Z_SYNC_FLUSH)


class Snappy:
    def __init__(self):
        self.compress = snappy.StreamCompressor().add_chunk
        self.decompress = snappy.StreamDecompressor().decompress


def converse(server, row, command):
    """Negotiate, send a command through the layer; return the answer's pairs and the rest."""
    layer = Snappy() if row.identified["snappy"] else Deflate()
    with connect(server.tcp_address) as sock:
        sock.sendall(b"  V2" + row.sent)
        size = int.from_bytes(read_exactly(sock, 4), "big")
        answer = json.loads(read_exactly(sock, size)[4:], object_pairs_hook=list)
        came = b""
        while len(came) < len(OK):
            came += layer.decompress(sock.recv(1))
        sock.sendall(layer.compress(command))
        sock.shutdown(1)  # for writing: nsqd answers what it has read, then closes
        came += layer.decompress(read_all(sock))
    return [pair for pair in answer if pair[0] not in LATER_KEYS], came


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("command", [PUB, UNKNOWN], ids=["PUB", "unknown"])
def test_a_compressed_connection_gets_the_captured_frames(server, row, command):
    """The answer comes in plain, then OK and all that follows, errors too, in the compression."""
    answer, came = converse(server, row, command.sent)
    [(kind, text)] = command.frames
    assert answer == list(row.identified.items())
    assert came == OK + (4 + len(text)).to_bytes(4, "big") + kind.to_bytes(4, "big") + text
