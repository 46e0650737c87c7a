"""Deflate as nsqd uses it: raw, without a header, flushed whenever bytes must be sent.

Source: client guide, "Encryption/Compression".
"""

from __future__ import annotations

import zlib

from nsqclient.errors import RemoteProtocolError
from nsqclient.protocol.layers.stack import ByteLayer

_RAW = -zlib.MAX_WBITS


class DeflateLayer(ByteLayer):
    def __init__(self, level: int = 6) -> None:
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, _RAW)
        self._inflate = zlib.decompressobj(_RAW)

    def decode(self, data: bytes) -> bytes:
        """Decompress. Raises RemoteProtocolError."""
        try:
            decoded = self._inflate.decompress(data)
        except zlib.error as exc:
            raise RemoteProtocolError(f"the deflate stream is broken: {exc}") from exc
        if self._inflate.eof:
            raise RemoteProtocolError("the deflate stream came to an end")
        return decoded

    def encode(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
