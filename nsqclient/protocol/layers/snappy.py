"""Snappy as nsqd speaks it: the framing format, over python-snappy's stream classes.

A stream of chunks, the first of which is the stream identifier::

    [1 B type][3 B length, little endian][data]
      type 0xff: stream identifier   0x00: checksum and compressed data
      type 0x01: checksum and data   0x80-0xfe: skipped

Source: client guide, "Encryption/Compression"; snappy's framing_format.txt.
"""

from __future__ import annotations

from collections.abc import Iterator

import snappy

from nsqclient.errors import RemoteProtocolError
from nsqclient.protocol.layers.stack import ByteLayer

#: The longest chunk there is: a checksum and 64 KiB that did not compress (snappy's own bound).
MAX_CHUNK_SIZE = 4 + 76490
#: Bytes of chunks that are decompressed at once. They expand at most twentyfold or so.
RUN_SIZE = 64 * 1024

_HEAD = 4
_STREAM_IDENTIFIER = 0xFF


class SnappyLayer(ByteLayer):
    """Snappy both ways."""

    def __init__(self) -> None:
        self._compressor = snappy.StreamCompressor()
        self._decompressor = snappy.StreamDecompressor()
        self._chunks: list[bytes] = []  # received, the first one starts at a chunk's head
        self._have = 0  # their total length
        self._need = _HEAD  # do not look again before this many bytes are there
        self._is_identified = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decompress all chunks that are whole, in pieces of limited size.

        Raises:
            RemoteProtocolError: no such stream, a chunk longer than any, a wrong checksum.
        """
        self._chunks.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        buf = b"".join(self._chunks)
        start = pos = 0
        fault = ""
        while len(buf) - pos >= _HEAD:
            size = int.from_bytes(buf[pos + 1:pos + _HEAD], "little")
            fault = self._fault(buf[pos], size)
            stop = pos + _HEAD + size
            if fault or stop > len(buf):
                break
            if stop - start > RUN_SIZE and pos > start:
                yield from self._decompress(buf[start:pos])
                start = pos
            pos = stop
        if pos > start:
            yield from self._decompress(buf[start:pos])
        if fault:  # what stood before it counts
            raise RemoteProtocolError(f"the snappy stream is broken: {fault}")
        rest = buf[pos:]
        self._chunks, self._have, self._need = [rest], len(rest), _HEAD
        if len(rest) >= _HEAD:
            self._need += int.from_bytes(rest[1:_HEAD], "little")

    def encode(self, data: bytes) -> bytes:
        """Compress into whole chunks, the stream identifier first."""
        wire: bytes = self._compressor.compress(data)
        return wire

    def _fault(self, kind: int, size: int) -> str:
        """Look at a chunk's head, before memory is taken for the chunk."""
        if not self._is_identified and kind != _STREAM_IDENTIFIER:
            return f"it starts with a chunk of type {kind:#04x}, not with the stream identifier"
        self._is_identified = True
        return f"a chunk of {size} bytes" if size > MAX_CHUNK_SIZE else ""

    def _decompress(self, chunks: bytes) -> Iterator[bytes]:
        try:
            piece: bytes = self._decompressor.decompress(chunks)
        except Exception as exc:  # python-snappy lets the errors of the library under it through
            raise RemoteProtocolError(f"the snappy stream is broken: {exc}") from exc
        if piece:
            yield piece
