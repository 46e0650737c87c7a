"""Compression: plain, gzip and zstd behind one small interface. Bytes in, bytes out.

What is compressed between two ``finish`` is one gzip member or zstd frame. Files are such parts
in a row, which every reader of the format takes as one stream; a crash costs at most the last.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from nsqclient.cli.goflags import CommandLineError


class Codec(Protocol):
    """One part of a file."""

    def compress(self, data: bytes) -> bytes:
        """Take bytes; return those that can be written already."""
        ...

    def flush(self) -> bytes:
        """End the part; return what is left to write. The object is used up."""
        ...


class Plain:
    """No compression."""

    def compress(self, data: bytes) -> bytes:
        """Return ``data``."""
        return data

    def flush(self) -> bytes:
        """Return nothing."""
        return b""


#: Makes the codec of the next part.
CodecFactory = Callable[[], Codec]


def gzip_codec(level: int) -> CodecFactory:
    """Members of gzip; ``level`` is 1 to 9."""

    def make() -> Codec:
        return zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

    return make


def zstd_codec(level: int) -> CodecFactory:
    """Frames of zstd.

    Raises:
        CommandLineError: the package ``zstandard`` is not installed, or it has no such level.
    """
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        raise CommandLineError("--zstd needs the package zstandard") from None
    highest = zstandard.MAX_COMPRESSION_LEVEL
    if not 1 <= level <= highest:
        raise CommandLineError(f"invalid --zstd-level value ({level}), should be 1-{highest}")
    compressor: Any = zstandard.ZstdCompressor(level=level)

    def make() -> Codec:
        codec: Codec = compressor.compressobj()
        return codec

    return make
