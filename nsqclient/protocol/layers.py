"""Byte layers between the socket and the frames: deflate and snappy here, TLS in ``tls``.

A layer may be pushed at any frame boundary. Bytes that were received but not read yet then go
through the new layer, because they may share a segment with the frame that announced it. Source:
client guide, "Encryption/Compression"; snappy's framing_format.txt.

Decoded bytes are limited only by ``FrameReader``, which checks the size of a frame before its data
arrives. Pass few bytes at a time to a layer, because deflate may expand them a thousandfold.
"""

from __future__ import annotations

import zlib
from typing import Protocol

from nsqclient.errors import RemoteProtocolError

_RAW = -zlib.MAX_WBITS
#: Type of the chunk that begins a stream of snappy.
_STREAM_IDENTIFIER = 0xFF


class ByteLayer(Protocol):
    """A transformation of the stream in both directions. It may buffer, and never blocks."""

    def decode(self, data: bytes) -> bytes:
        """Decode bytes from the wire. Raises RemoteProtocolError or TLSError."""
        ...

    def encode(self, data: bytes) -> bytes:
        """Take bytes of frames; return all bytes to write to the wire, flushed."""
        ...

    def has_output(self) -> bool:
        return False

    def wire_output(self) -> bytes:
        """Remove and return the layer's own bytes, such as a TLS handshake."""
        return b""


class LayerStack:
    """The layers of one connection. The first one is next to the wire: TLS before compression."""

    def __init__(self) -> None:
        self.stack: list[ByteLayer] = []

    def push(self, layer: ByteLayer) -> None:
        self.stack.append(layer)

    def decode(self, data: bytes) -> bytes:
        for layer in self.stack:
            data = layer.decode(data)
        return data

    def encode(self, data: bytes) -> bytes:
        """Encode bytes through all layers, after the layers' own bytes."""
        for layer in reversed(self.stack):
            data = (layer.encode(data) if data else b"") + layer.wire_output()
        return data

    def has_output(self) -> bool:
        return any(layer.has_output() for layer in self.stack)


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
        # Not imported with the module: its compiled library cannot be loaded twice in a process.
        import snappy

        self._compressor = snappy.StreamCompressor()
        self._decompressor = snappy.StreamDecompressor()
        self._is_identified = False

    def decode(self, data: bytes) -> bytes:
        # python-snappy accepts a stream without it, and would wait for more of an HTTP response.
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
