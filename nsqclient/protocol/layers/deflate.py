"""Deflate as nsqd speaks it: raw, without a header, flushed whenever something must go out.

Source: client guide, "Encryption/Compression".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from nsqclient.errors import RemoteProtocolError
from nsqclient.protocol.layers.stack import ByteLayer

#: Bytes that are decompressed at once. A block of deflate may expand a thousandfold.
PIECE_SIZE = 1024 * 1024

_RAW = -zlib.MAX_WBITS


class DeflateLayer(ByteLayer):
    """Deflate both ways; ``level`` is how hard this side tries, from 1 to 9."""

    def __init__(self, level: int = 6) -> None:
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, _RAW)
        self._inflate = zlib.decompressobj(_RAW)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decompress, in pieces of at most PIECE_SIZE. Empty blocks yield nothing.

        Raises:
            RemoteProtocolError: no deflate, or its end: nsqd's streams have none.
        """
        inflate = self._inflate
        while True:
            try:
                piece = inflate.decompress(data, PIECE_SIZE)
            except zlib.error as exc:
                raise RemoteProtocolError(f"the deflate stream is broken: {exc}") from exc
            if piece:
                yield piece
            if inflate.eof:
                raise RemoteProtocolError("the deflate stream came to an end")
            data = inflate.unconsumed_tail
            # After a full piece zlib may hold more, with all input taken.
            if not data and len(piece) < PIECE_SIZE:
                return

    def encode(self, data: bytes) -> bytes:
        """Compress, and flush so that the peer can read all of it."""
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
