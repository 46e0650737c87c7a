"""What a test of nsq_to_file wants to know about a directory of files."""

import zlib
from collections.abc import Iterator
from pathlib import Path


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return every file under ``folder`` with its content, unpacked."""
    return {
        str(path.relative_to(folder)): read_content(path)
        for path in sorted(folder.rglob("*")) if path.is_file()
    }


def read_content(path: Path) -> bytes:
    """Return the content of a file: of a .gz one what its whole members hold."""
    data = path.read_bytes()
    return b"".join(_whole_members(data)) if path.suffix == ".gz" else data


def _whole_members(data: bytes) -> Iterator[bytes]:
    while data:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        content = member.decompress(data) + member.flush()
        if not member.eof:
            return  # cut off by a crash
        yield content
        data = member.unused_data
