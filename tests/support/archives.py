"""Reads the archives of nsq_to_file in a directory."""

import zlib
from collections.abc import Iterator
from pathlib import Path


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)):
        b"".join(_members(path.read_bytes())) if path.suffix == ".gz" else path.read_bytes()
        for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"
    }


def _members(data: bytes) -> Iterator[bytes]:
    """Return the content of the complete members of a .gz file."""
    while data:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        content = member.decompress(data) + member.flush()
        if not member.eof:
            return  # cut off by a crash
        yield content
        data = member.unused_data
