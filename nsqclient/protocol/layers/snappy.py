"""Snappy as nsqd uses it: the framing format, by python-snappy.

Source: client guide, "Encryption/Compression"; snappy's framing_format.txt.
"""

from __future__ import annotations

import snappy

from nsqclient.errors import RemoteProtocolError
from nsqclient.protocol.layers.stack import ByteLayer

#: Type of the chunk that begins a stream.
_STREAM_IDENTIFIER = 0xFF


class SnappyLayer(ByteLayer):
    def __init__(self) -> None:
        self._compressor = snappy.StreamCompressor()
        self._decompressor = snappy.StreamDecompressor()
        self._is_identified = False

    def decode(self, data: bytes) -> bytes:
        """Decompress the chunks that are complete. Raises RemoteProtocolError."""
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
        """Compress into complete chunks, the first one after the stream identifier."""
        wire: bytes = self._compressor.compress(data)
        return wire
