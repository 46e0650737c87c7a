"""Byte layers between the socket and the frames: where TLS and compression are slotted in.

The cores read and write frames through a :class:`LayerStack`. A layer may be pushed at any
frame boundary; the bytes that were received and not yet read go through the new layer first,
because they may share a segment with the frame that announced it. Source: client guide,
"Encryption/Compression".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol


class ByteLayer(Protocol):
    """One transformation of the stream, both ways. A layer may buffer; it never blocks.

    A layer that subclasses it has nothing to send of its own.
    """

    def decode(self, data: bytes) -> Iterable[bytes]:
        """Take bytes from the wire side; yield those that are ready for the frame side.

        In pieces of limited size: what a few bytes expand to never stands in memory as a
        whole, so a reader that finds a fault in one piece does not pay for the next.

        Raises:
            RemoteProtocolError: these are no bytes of such a stream.
            TLSError: the TLS handshake failed.
        """
        ...

    def encode(self, data: bytes) -> bytes:
        """Take bytes from the frame side; return all that must go to the wire, flushed."""
        ...

    def has_output(self) -> bool:
        """Return whether ``wire_output()`` would return something."""
        return False

    def wire_output(self) -> bytes:
        """Return bytes that the layer itself wants to send (a TLS handshake), and forget them."""
        return b""


class LayerStack:
    """The layers of one connection, the one nearest the wire first (TLS before compression)."""

    def __init__(self) -> None:
        #: To be read only.
        self.stack: list[ByteLayer] = []

    def __len__(self) -> int:
        return len(self.stack)

    def push(self, layer: ByteLayer, unread: Iterable[bytes] = ()) -> Iterator[bytes]:
        """Add ``layer`` on the frame side; return what it makes of the ``unread`` bytes.

        These are decoded one by one, as they are asked for.
        """
        self.stack.append(layer)
        return _through(layer, unread)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Bring received bytes up through all layers, piece by piece."""
        pieces = iter((data,))
        for layer in self.stack:
            pieces = _through(layer, pieces)
        return pieces

    def encode(self, data: bytes) -> bytes:
        """Bring bytes to send, and what the layers have to say themselves, down to the wire."""
        for layer in reversed(self.stack):
            data = (layer.encode(data) if data else b"") + layer.wire_output()
        return data

    def has_output(self) -> bool:
        """Return whether a layer has something of its own to send."""
        return any(layer.has_output() for layer in self.stack)


def _through(layer: ByteLayer, pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from layer.decode(piece)


#: Decoded bytes that are taken at once. Received ones may expand a thousandfold, and what they
#: mean is not all held in memory together.
TAKE_SIZE = 1024 * 1024


class DecodeBuffer:
    """Decoded bytes that are still to be read, a limited number at a time."""

    def __init__(self) -> None:
        self._pieces: Iterator[bytes] = iter(())
        #: Whether ``take`` ended with pieces left.
        self.has_buffered_input: bool = False

    def add(self, pieces: Iterator[bytes]) -> None:
        """Add pieces behind those that are there. Nothing is decoded yet."""
        self._pieces = chain(self._pieces, pieces) if self.has_buffered_input else pieces

    def take(self) -> Iterator[bytes]:
        """Yield pieces until they have TAKE_SIZE bytes together."""
        size = TAKE_SIZE
        self.has_buffered_input = False
        for piece in self._pieces:
            yield piece
            size -= len(piece)
            if size <= 0:
                self.has_buffered_input = True
                return

    def take_all(self) -> Iterator[bytes]:
        """Remove the pieces (for the next byte layer); they are decoded as they are asked for."""
        pieces, self._pieces, self.has_buffered_input = self._pieces, iter(()), False
        return pieces
