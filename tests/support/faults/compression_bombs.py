"""Streams that are short and expand to much, for whoever has to survive them."""

import snappy

_COPY_OF_64 = b"\xfe\x01\x00"  # 64 bytes, from one byte back
_COPIES = 24_000  # as many as fit into a chunk


def snappy_claim(size: int) -> bytes:
    """One chunk of snappy that says it expands to ``size`` bytes, and has 1.5 MB of them."""
    block = _varint(size) + b"\x00x" + _COPY_OF_64 * _COPIES
    chunk = bytes(4) + block  # its checksum is wrong, which is seen when it was expanded
    return b"\x00" + len(chunk).to_bytes(3, "little") + chunk


def snappy_stream(data: bytes, times: int) -> bytes:
    """A whole stream of snappy with ``data`` so many times; expands twentyfold at most."""
    compressor = snappy.StreamCompressor()
    # After the stream's head the same data gives the same bytes.
    return compressor.compress(data) + compressor.compress(data) * (times - 1)


def _varint(number: int) -> bytes:
    digits = b""
    while number > 127:
        digits += bytes([number & 127 | 128])
        number >>= 7
    return digits + bytes([number])
