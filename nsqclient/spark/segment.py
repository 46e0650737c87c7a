"""Segments, which are Arrow IPC files with one record batch, and their conversion to Spark's rows.

Writing must be fast, so a segment has only the columns that differ from row to row; readers add the
others. The metadata of its schema contain the writer and a CRC-32 of the whole file, computed with
eight zeros in place of the checksum. Arrow writes the metadata at both ends of the file. Any tool
that reads Arrow files can read a segment.
"""

from __future__ import annotations

import functools
import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from struct import pack
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

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
#: The schema of Spark's rows. Spark accepts no other types.
ROWS = pa.schema([
    ("topic", pa.string()), ("channel", pa.string()), ("nsqd", pa.string()),
    ("message_id", pa.string()), ("attempts", pa.int32()),
    ("timestamp", pa.timestamp("us", tz="UTC")), ("timestamp_ns", pa.int64()),
    ("body", pa.binary()),
])
_SEAL = re.compile(rb"nsq-writer:([0-9a-f]{32}) nsq-crc:([0-9a-f]{8})")
_CRC = 8  # characters

#: Bytes of a row without its body: the columns of fixed width, and the body's offset.
ROW_BYTES = 4 + 16 + 4 + 8 + 4
#: Maximum bytes of the rows of a segment. A larger message gets a segment of its own.
SEGMENT_BYTES = 8 * 1024 * 1024


class Rows:
    """Messages by column, at least one. Immutable.

    The reader thread that has received the messages builds it, while they are in the processor's
    cache. It uses plain bytes, because pyarrow would release and await the interpreter lock for
    each column.
    """

    __slots__ = ("ids", "attempts", "timestamps", "lengths", "bodies")

    def __init__(
        self, ids: Sequence[bytes], attempts: Sequence[int], timestamps: bytes, lengths: bytes,
        bodies: bytes,
    ) -> None:
        self.ids = ids
        self.attempts = attempts
        self.timestamps = timestamps  #: int64 each
        self.lengths = lengths  #: lengths of the bodies, int32 each
        self.bodies = bodies  #: joined

    @classmethod
    def of(cls, messages: Sequence[RawMessage]) -> Rows:
        timestamps, attempts, ids, bodies = zip(*messages)
        rows = len(ids)
        return cls(ids, attempts, pack(f"<{rows}q", *timestamps),
                   pack(f"<{rows}i", *map(len, bodies)), b"".join(bodies))

    @classmethod
    def join(cls, parts: Sequence[Rows]) -> Rows:
        if len(parts) == 1:
            return parts[0]
        return cls(
            list(chain.from_iterable([part.ids for part in parts])),
            list(chain.from_iterable([part.attempts for part in parts])),
            b"".join([part.timestamps for part in parts]),
            b"".join([part.lengths for part in parts]),
            b"".join([part.bodies for part in parts]))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return len(self.bodies) + ROW_BYTES * len(self.ids)

    @property
    def sizes(self) -> list[int]:
        return [ROW_BYTES + length for length in self._lengths()]

    def select(self, positions: Sequence[int]) -> Rows:
        """The rows at these positions, at least one."""
        ends = list(accumulate(self._lengths(), initial=0))
        return Rows(
            [self.ids[n] for n in positions], [self.attempts[n] for n in positions],
            b"".join([self.timestamps[8 * n:8 * n + 8] for n in positions]),
            b"".join([self.lengths[4 * n:4 * n + 4] for n in positions]),
            b"".join([self.bodies[ends[n]:ends[n + 1]] for n in positions]))

    def _lengths(self) -> memoryview:
        return memoryview(self.lengths).cast("i")


def encode_segment(
    topic: str, channel: str, parts: Sequence[tuple[str, Rows]],
    writer: str = "0" * 32, owner: str = "",
) -> bytearray:
    """Build a segment from pairs of an nsqd and its messages.

    Args:
        writer: the unique name of the writer, 32 hexadecimal digits.
        owner: the writer's process.
    """
    nsqds = list(dict.fromkeys(nsqd for nsqd, _ in parts))
    numbers = b"".join([pack("<i", nsqds.index(nsqd)) * len(rows) for nsqd, rows in parts])
    whole = Rows.join([rows for _, rows in parts])
    rows = len(whole)
    ends = pc.cumulative_sum(_array(pa.int32(), rows, whole.lengths))
    schema = _SCHEMA.with_metadata({
        "seal": f"nsq-writer:{writer} nsq-crc:{'0' * _CRC}", "owner": owner,
        "topic": topic, "channel": channel})
    batch = pa.RecordBatch.from_arrays([
        pa.DictionaryArray.from_arrays(
            _array(pa.int32(), rows, numbers), _texts([nsqd.encode() for nsqd in nsqds])),
        _array(pa.binary(16), rows, b"".join(whole.ids)),
        _array(pa.int32(), rows, pack(f"<{rows}i", *whole.attempts)),
        _array(pa.int64(), rows, whole.timestamps),
        _array(pa.binary(), rows, bytes(4) + memoryview(ends.buffers()[1])[:4 * rows],
               whole.bodies),
    ], schema=schema)
    size = pa.MockOutputStream()
    _write(size, batch)
    data = bytearray(size.size())
    _write(pa.FixedSizeBufferWriter(pa.py_buffer(data)), batch)
    _seal(data)
    return data


def _write(sink: Any, batch: Any) -> None:
    with pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)


def _array(kind: pa.DataType, rows: int, *buffers: bytes) -> pa.Array:
    """Build an array from buffers: ``pa.array`` would import pandas, which takes 0.3 s."""
    return pa.Array.from_buffers(kind, rows, [None, *map(pa.py_buffer, buffers)])


def _texts(texts: Sequence[bytes]) -> pa.Array:
    ends = accumulate(map(len, texts), initial=0)
    return _array(
        pa.string(), len(texts), pack(f"<{len(texts) + 1}i", *ends), b"".join(texts))


def _repeat(text: bytes, rows: int) -> pa.Array:
    numbers = _array(pa.int32(), rows, bytes(4 * rows))
    return pa.DictionaryArray.from_arrays(numbers, _texts([text])).cast(pa.string())


def _seal(data: bytearray) -> None:
    """Write the checksum of a file into both of its places."""
    checksum = b"%08x" % zlib.crc32(data)
    for place in _places(data):
        data[place:place + _CRC] = checksum


def _places(data: Any) -> list[int]:
    """Find the two positions of the checksum. Returns an empty list if one is missing."""
    first, last = data.find(b"nsq-writer:"), data.rfind(b"nsq-writer:")
    found = [_SEAL.match(data, place) for place in (first, last) if place >= 0]
    places = [match.start(2) for match in found if match is not None]
    return places if len(places) == 2 and first != last else []


def check_segment(url: str, key: str, data: bytes) -> bytes:
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
    """Log a loss, once in a process, because several tasks may read the same segment."""
    logger.warning("log %s %s; continuing because of failOnDataLoss=false", url, text)


def read_rows(data: Any) -> Any:
    """Convert a checked segment to a RecordBatch of Spark's rows."""
    batch = pa.ipc.open_file(data).get_batch(0)
    rows = batch.num_rows
    nsqd, ids, attempts, timestamps, bodies = batch.columns
    metadata = batch.schema.metadata
    # Unchecked, so that an id that is not text does not make the segment unreadable.
    texts = ids.cast(pa.string(), safe=False)
    micros = timestamps.view(pa.timestamp("ns", tz="UTC")).cast(ROWS.field("timestamp").type, False)
    return pa.record_batch(
        [
            _repeat(metadata[b"topic"], rows), _repeat(metadata[b"channel"], rows),
            nsqd.cast(pa.string()), texts, attempts, micros, timestamps, bodies,
        ],
        schema=ROWS,
    )


class SegmentIds(NamedTuple):
    """The part of a segment that writers and ``status`` need."""

    rows: int
    ids: Mapping[str, Sequence[bytes]]  #: nsqd -> ids
    owner: str  #: the process that wrote it


def read_ids(data: Any) -> SegmentIds:
    """Read the ids of a checked segment."""
    batch = pa.ipc.open_file(data).get_batch(0)
    ids: dict[str, list[bytes]] = {}
    for nsqd, message_id in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()):
        ids.setdefault(nsqd, []).append(message_id)
    return SegmentIds(batch.num_rows, ids, batch.schema.metadata[b"owner"].decode())
