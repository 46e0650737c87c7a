"""Byte layers between the socket and the frames: where TLS and compression are slotted in.

The cores read and write frames through a :class:`LayerStack`. A layer may be pushed at any
frame boundary; the bytes that were received and not yet read go through the new layer first,
because they may share a segment with the frame that announced it. Source: client guide,
"Encryption/Compression".
"""

from __future__ import annotations

from typing import Protocol


class ByteLayer(Protocol):
    """One transformation of the stream, both ways. A layer may buffer; it never blocks."""

    def decode(self, data: bytes) -> bytes:
        """Take bytes from the wire side; return those that are ready for the frame side."""
        ...

    def encode(self, data: bytes) -> bytes:
        """Take bytes from the frame side; return all that must go to the wire, flushed."""
        ...

    def wire_output(self) -> bytes:
        """Return bytes that the layer itself wants to send (a TLS handshake), and forget them."""
        ...


class LayerStack:
    """The layers of one connection, the one nearest the wire first (TLS before compression)."""

    def __init__(self) -> None:
        self._layers: list[ByteLayer] = []

    def __len__(self) -> int:
        return len(self._layers)

    def push(self, layer: ByteLayer, unread: bytes = b"") -> bytes:
        """Add ``layer`` on the frame side; return what it makes of the ``unread`` bytes."""
        self._layers.append(layer)
        return layer.decode(unread) if unread else b""

    def decode(self, data: bytes) -> bytes:
        """Bring received bytes up through all layers."""
        for layer in self._layers:
            data = layer.decode(data)
        return data

    def encode(self, data: bytes) -> bytes:
        """Bring bytes to send, and what the layers have to say themselves, down to the wire."""
        for layer in reversed(self._layers):
            data = (layer.encode(data) if data else b"") + layer.wire_output()
        return data
