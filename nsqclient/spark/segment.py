"""What is in a segment: an Arrow IPC file of one record batch, and how it becomes Spark's rows.

Written once, by owners, which are short of time, and read by many: so a segment has only what
differs from row to row, and readers add the rest. The metadata of its schema, which Arrow writes at
both ends of the file, say which writer wrote it, and the CRC-32 of the whole file,
computed with eight zeros where it stands. So any tool that reads Arrow reads a segment as it is.
"""

from __future__ import annotations

import functools
import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from nsqclient.protocol.frames import RawMessage
from nsqclient.spark.errors import DamagedSegmentError

logger: logging.Logger = logging.getLogger("nsqclient.spark")

_SCHEMA = pa.schema([
    ("nsqd", pa.dictionary(pa.int32(), pa.string())),
    ("message_id", pa.binary(16)),
    ("attempts", pa.int32()),
    ("timestamp_ns", pa.int64()),
    ("body", pa.binary()),
])
#: The rows as Spark is given them; it accepts exactly these.
ROWS = pa.schema([
    ("topic", pa.string()), ("channel", pa.string()), ("nsqd", pa.string()),
    ("message_id", pa.string()), ("attempts", pa.int32()),
    ("timestamp", pa.timestamp("us", tz="UTC")), ("timestamp_ns", pa.int64()),
    ("body", pa.binary()),
])
_SEAL = re.compile(rb"nsq-writer:([0-9a-f]{32}) nsq-crc:([0-9a-f]{8})")
_CRC = 8  # characters

#: Bytes of a row beside its body: the columns of fixed width, and the end of the body.
ROW_BYTES = 4 + 16 + 4 + 8 + 4
#: Bytes of the rows of a segment, at most, save for a single larger message.
SEGMENT_BYTES = 8 * 1024 * 1024


class Columns(NamedTuple):
    """Messages by column. All are of the same length."""

    timestamps: Sequence[int]
    attempts: Sequence[int]
    ids: Sequence[bytes]
    bodies: Sequence[bytes]


def columns_of(messages: Sequence[RawMessage]) -> Columns:
    """Turn messages, at least one, into columns."""
    return Columns(*zip(*messages))


def encode_segment(
    topic: str, channel: str, parts: Sequence[tuple[str, Columns]],
    writer: str = "0" * 32, owner: str = "",
) -> bytearray:
    """Build the bytes of a segment.

    Args:
        parts: (nsqd address, messages) in order; none is empty.
        writer: 32 hexadecimal digits that no other writer has.
        owner: the process that writes.
    """
    columns: list[list[Any]] = [[], [], [], [], []]
    nsqds = list(dict.fromkeys(nsqd for nsqd, _ in parts))
    for nsqd, (timestamps, attempts, ids, bodies) in parts:
        rows = len(ids)
        columns[0].append(pa.repeat(pa.scalar(nsqds.index(nsqd), pa.int32()), rows))
        columns[1].append(pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), rows, [None, pa.py_buffer(b"".join(ids))]
        ))
        columns[2].append(pa.array(attempts, pa.int32()))
        columns[3].append(pa.array(timestamps, pa.int64()))
        columns[4].append(pa.array(bodies, pa.binary()))
    whole = [part[0] if len(part) == 1 else pa.concat_arrays(part) for part in columns]
    whole[0] = pa.DictionaryArray.from_arrays(whole[0], pa.array(nsqds, pa.string()))
    schema = _SCHEMA.with_metadata({
        "seal": f"nsq-writer:{writer} nsq-crc:{'0' * _CRC}", "owner": owner,
        "topic": topic, "channel": channel})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as file:
        file.write_batch(pa.record_batch(whole, schema=schema))
    return _seal(sink.getvalue())


def _seal(data: Any) -> bytearray:
    """Put the checksum of a file into both places that are kept for it."""
    checksum = b"%08x" % zlib.crc32(data)
    sealed = bytearray(data)
    for place in _places(sealed):
        sealed[place:place + _CRC] = checksum
    return sealed


def _places(data: Any) -> list[int]:
    """Where the checksum stands: first and last, whatever bodies have between. Empty: nowhere."""
    first, last = data.find(b"nsq-writer:"), data.rfind(b"nsq-writer:")
    found = [_SEAL.match(data, place) for place in (first, last) if place >= 0]
    places = [match.start(2) for match in found if match is not None]
    return places if len(places) == 2 and first != last else []


def check_segment(url: str, key: str, data: bytes) -> bytes:
    """Check the bytes of a segment, and return them."""
    damage = _find_damage(data)
    if damage:
        raise DamagedSegmentError(
            url, f"segment {key} is damaged ({damage}). Its messages were acknowledged to nsqd")
    return data


def _find_damage(data: bytes) -> str:
    places = _places(data)
    if not places or data[-6:] != b"ARROW1":
        return "its beginning or its end is missing"
    found = position = 0
    view = memoryview(data)
    for place in places:
        found = zlib.crc32(b"0" * _CRC, zlib.crc32(view[position:place], found))
        position = place + _CRC
    found = zlib.crc32(view[position:], found)
    wanted = {data[place:place + _CRC] for place in places}
    return "" if wanted == {b"%08x" % found} else f"its checksum is {found:08x}"


@functools.lru_cache(maxsize=1000)
def warn_of_loss(url: str, text: str) -> None:
    """Log what is lost and skipped, once in this process: tasks read a segment again and again."""
    logger.warning("log %s %s; continuing because of failOnDataLoss=false", url, text)


def read_rows(data: Any) -> Any:
    """Read a segment, whose bytes were checked, as a RecordBatch of Spark's rows."""
    batch = pa.ipc.open_file(data).get_batch(0)
    rows = batch.num_rows
    nsqd, ids, attempts, timestamps, bodies = batch.columns
    metadata = batch.schema.metadata
    # Not checked: an id that is no text must not make the other messages unreadable.
    texts = ids.cast(pa.string(), safe=False)
    micros = timestamps.view(pa.timestamp("ns", tz="UTC")).cast(ROWS.field("timestamp").type, False)
    return pa.record_batch(
        [
            pa.repeat(metadata[b"topic"].decode(), rows),
            pa.repeat(metadata[b"channel"].decode(), rows),
            nsqd.cast(pa.string()), texts, attempts, micros, timestamps, bodies,
        ],
        schema=ROWS,
    )


class SegmentIds(NamedTuple):
    """What a writer, and the state of shards, need of a segment."""

    rows: int
    ids: Mapping[str, Sequence[bytes]]  #: by nsqd
    owner: str  #: the process that wrote it


def read_ids(data: Any) -> SegmentIds:
    """Read the ids of a segment, whose bytes were checked."""
    batch = pa.ipc.open_file(data).get_batch(0)
    ids: dict[str, list[bytes]] = {}
    for nsqd, message_id in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()):
        ids.setdefault(nsqd, []).append(message_id)
    return SegmentIds(batch.num_rows, ids, batch.schema.metadata[b"owner"].decode())
