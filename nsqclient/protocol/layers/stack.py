"""Byte layers between the socket and the frames: TLS and compression.

A layer may be pushed at any frame boundary. Bytes that were received but not read yet then go
through the new layer, because they may share a segment with the frame that announced it. Source:
client guide, "Encryption/Compression".

Decoded bytes are limited only by ``FrameReader``, which checks the size of a frame before its data
arrives. Pass few bytes at a time to a layer, because deflate may expand them a thousandfold.
"""

from __future__ import annotations

from typing import Protocol


class ByteLayer(Protocol):
    """One transformation of the stream, in both directions. It may buffer; it never blocks."""

    def decode(self, data: bytes) -> bytes:
        """Decode bytes from the wire. Raises RemoteProtocolError or TLSError."""
        ...

    def encode(self, data: bytes) -> bytes:
        """Take bytes of frames; return all bytes to write to the wire, flushed."""
        ...

    def has_output(self) -> bool:
        return False

    def wire_output(self) -> bytes:
        """Remove and return bytes that the layer itself sends, such as a TLS handshake."""
        return b""


class LayerStack:
    """The layers of one connection. The first one is next to the wire: TLS before compression."""

    def __init__(self) -> None:
        #: Read-only.
        self.stack: list[ByteLayer] = []

    def __len__(self) -> int:
        return len(self.stack)

    def push(self, layer: ByteLayer) -> None:
        """Add ``layer`` next to the frames; bytes that are not yet read go through its decode."""
        self.stack.append(layer)

    def decode(self, data: bytes) -> bytes:
        for layer in self.stack:
            data = layer.decode(data)
        return data

    def encode(self, data: bytes) -> bytes:
        """Encode bytes to send through all layers, after the bytes of the layers themselves."""
        for layer in reversed(self.stack):
            data = (layer.encode(data) if data else b"") + layer.wire_output()
        return data

    def has_output(self) -> bool:
        return any(layer.has_output() for layer in self.stack)
