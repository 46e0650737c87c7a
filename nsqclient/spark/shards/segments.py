"""What is in a segment of a shard, and in a note: bytes that name their writer and can be checked.

A segment is an Arrow file as in a spool, and 48 bytes: which writer wrote it (32 hexadecimal
digits), the CRC-32 of all that (8 of them), and a mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from nsqclient.spark.errors import DamagedSegmentError
from nsqclient.spark.spool.names import checksum_of
from nsqclient.spark.spool.segment import read_ids, read_rows

_MARK = b"nsqshard"
#: Characters of the random name of a writer.
WRITER_LENGTH = 32
_CHECKED = 8 + len(_MARK)
_END = WRITER_LENGTH + _CHECKED


class SegmentIds(NamedTuple):
    """What a writer needs of a segment."""

    rows: int
    ids: Mapping[str, Sequence[bytes]]  #: by nsqd


def seal(data: Any, writer: str) -> bytes:
    """Add the end to the bytes of an Arrow file.

    Args:
        writer: begins with 32 hexadecimal digits that no other writer has.
    """
    content = b"".join((data, writer[:WRITER_LENGTH].encode()))
    return b"".join((content, f"{checksum_of(content):08x}".encode(), _MARK))


def unseal(url: str, key: str, data: bytes) -> Any:
    """Check the bytes of a segment; return those of the Arrow file.

    Raises:
        DamagedSegmentError: it is not what was written.
    """
    view = memoryview(data)
    content, end = view[:-_CHECKED], bytes(view[-_CHECKED:])
    if len(data) <= _END or end[8:] != _MARK:
        raise DamagedSegmentError(
            url, f"segment {key} is damaged (its end is missing): its messages were acknowledged"
            " to nsqd")
    if f"{checksum_of(content):08x}".encode() != end[:8]:
        raise DamagedSegmentError(
            url, f"segment {key} is damaged (its checksum is another): its messages were"
            " acknowledged to nsqd")
    return pa.py_buffer(view[:-_END])


def writer_of(data: bytes) -> str:
    """The random name of the writer of a segment, whose bytes were checked."""
    return data[-_END:-_CHECKED].decode()


def segment_ids(url: str, key: str, data: bytes) -> SegmentIds:
    """Read the ids of a segment.

    Raises:
        DamagedSegmentError: as ``unseal``.
    """
    ids = read_ids(unseal(url, key, data))
    return SegmentIds(sum(map(len, ids.values())), ids)


def segment_rows(url: str, key: str, data: bytes) -> Any:
    """Read a segment as a RecordBatch of Spark's rows.

    Raises:
        DamagedSegmentError: as ``unseal``.
    """
    return read_rows(unseal(url, key, data))


def encode_note(writer: str, ids: Mapping[str, Iterable[bytes]]) -> bytes:
    """Build a note: the ids, by nsqd, that are perhaps not finished there."""
    return json.dumps({
        "v": 1, "writer": writer,
        "ids": {nsqd: [key.decode() for key in keys] for nsqd, keys in ids.items()},
    }).encode()


def decode_note(url: str, key: str, data: bytes) -> dict[str, list[bytes]]:
    """Read the ids of a note.

    Raises:
        DamagedSegmentError: it is not what was written.
    """
    try:
        found = json.loads(data)
        return {nsqd: [text.encode() for text in texts] for nsqd, texts in found["ids"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise DamagedSegmentError(url, f"note {key} is damaged ({exc!r})") from exc
