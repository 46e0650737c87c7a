"""Deflate and snappy as nsqd uses them.

Source: client guide, "Encryption/Compression"; snappy's framing_format.txt.
"""

from __future__ import annotations

import zlib

from nsqclient.errors import RemoteProtocolError
from nsqclient.protocol.layers.stack import ByteLayer

_RAW = -zlib.MAX_WBITS
#: Type of the chunk that begins a stream of snappy.
_STREAM_IDENTIFIER = 0xFF


class DeflateLayer(ByteLayer):
    """Raw deflate, without a header, flushed whenever bytes must be sent."""

    def __init__(self, level: int = 6) -> None:
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, _RAW)
        self._inflate = zlib.decompressobj(_RAW)

    def decode(self, data: bytes) -> bytes:
        try:
            decoded = self._inflate.decompress(data)
        except zlib.error as exc:
            raise RemoteProtocolError(f"the deflate stream is broken: {exc}") from exc
        if self._inflate.eof:
            raise RemoteProtocolError("the deflate stream came to an end")
        return decoded

    def encode(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


class SnappyLayer(ByteLayer):
    """Snappy's framing format: complete chunks, the first one after the stream identifier."""

    def __init__(self) -> None:
        # Imported here, because its compiled library cannot be loaded twice in one process.
        import snappy

        self._compressor = snappy.StreamCompressor()
        self._decompressor = snappy.StreamDecompressor()
        self._is_identified = False

    def decode(self, data: bytes) -> bytes:
        # python-snappy accepts a stream without it, and would wait for more of an answer in HTTP.
        if data and not self._is_identified:
            if data[0] != _STREAM_IDENTIFIER:
                raise RemoteProtocolError(
                    f"the snappy stream is broken: it starts with a chunk of type {data[0]:#04x},"
                    " not with the stream identifier")
            self._is_identified = True
        try:
            decoded: bytes = self._decompressor.decompress(data)
        except Exception as exc:  # also exceptions of the library below python-snappy
            raise RemoteProtocolError(f"the snappy stream is broken: {exc}") from exc
        return decoded

    def encode(self, data: bytes) -> bytes:
        wire: bytes = self._compressor.compress(data)
        return wire
