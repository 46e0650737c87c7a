"""A byte layer for tests."""

from __future__ import annotations

from collections.abc import Iterator

from nsqclient.protocol.layers.stack import ByteLayer


class XorLayer(ByteLayer):
    """Turns every byte over with ``key``; what it encodes, its twin decodes."""

    def __init__(self, key: int) -> None:
        self._table = bytes(byte ^ key for byte in range(256))

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Take bytes from the wire side."""
        yield data.translate(self._table)

    def encode(self, data: bytes) -> bytes:
        """Take bytes from the frame side."""
        return data.translate(self._table)
