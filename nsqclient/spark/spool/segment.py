"""What is in a segment: an Arrow IPC file of one record batch, and how it becomes Spark's rows.

Written once, in the one process that is short of time, and read by many: so a segment has only
what differs from row to row, and readers add the rest.
"""

from __future__ import annotations

import datetime
import functools
import json
import logging
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute  # noqa: F401 - makes pa.compute

from nsqclient.protocol.frames import RawMessage
from nsqclient.spark.errors import DamagedSegmentError
from nsqclient.spark.schema import row_schema
from nsqclient.spark.spool.names import SegmentName, checksum_of, parse_segment

logger = logging.getLogger("nsqclient.spark")

_SCHEMA = pa.schema([
    ("nsqd", pa.dictionary(pa.int32(), pa.string())),
    ("message_id", pa.binary(16)),
    ("attempts", pa.int32()),
    ("timestamp_ns", pa.int64()),
    ("body", pa.binary()),
])
_ROWS = row_schema()
#: What a segment holds, with a checksum of its own. Arrow writes it at both ends of the file, so it
#: is found even if the file cannot be read any more.
_SUMMARY = re.compile(rb"nsq-segment:([0-9a-f]{8}):(\{[^{}]*\})")

#: Bytes of a row beside its body: the columns of fixed width, and the end of the body.
ROW_BYTES = 4 + 16 + 4 + 8 + 4
#: Bytes of a task whose rows are sent with it, at most, save for a single larger message. Spark's
#: hard limit (spark.rpc.message.maxSize) is 128 MiB, and the driver holds all tasks of a batch.
TASK_BYTES = 8 * 1024 * 1024
#: Bytes of the rows of a segment, at most, save for a single larger message: so that its file,
#: with the schema and the addresses, is a task.
SEGMENT_BYTES = TASK_BYTES - 64 * 1024


def encode_segment(
    topic: str, channel: str, parts: Sequence[tuple[str, Sequence[RawMessage]]]
) -> Any:
    """Build the bytes of a segment (a pyarrow Buffer).

    Args:
        parts: (nsqd address, messages) in order; none is empty.
    """
    columns: list[list[Any]] = [[], [], [], [], []]
    nsqds = list(dict.fromkeys(nsqd for nsqd, _ in parts))
    for nsqd, messages in parts:
        timestamps, attempts, ids, bodies = zip(*messages)
        rows = len(messages)
        columns[0].append(pa.repeat(pa.scalar(nsqds.index(nsqd), pa.int32()), rows))
        columns[1].append(pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), rows, [None, pa.py_buffer(b"".join(ids))]
        ))
        columns[2].append(pa.array(attempts, pa.int32()))
        columns[3].append(pa.array(timestamps, pa.int64()))
        columns[4].append(pa.array(bodies, pa.binary()))
    whole = [part[0] if len(part) == 1 else pa.concat_arrays(part) for part in columns]
    whole[0] = pa.DictionaryArray.from_arrays(whole[0], pa.array(nsqds, pa.string()))
    schema = _SCHEMA.with_metadata(
        {"topic": topic, "channel": channel, "summary": _summary(nsqds, whole[3])})
    return _encode(pa.record_batch(whole, schema=schema))


def _encode(batch: Any) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _summary(nsqds: list[str], timestamps: Any) -> str:
    times = pa.compute.min_max(timestamps).as_py()
    text = json.dumps({"nsqds": nsqds, "first": times["min"], "last": times["max"]})
    return f"nsq-segment:{checksum_of(text.encode()):08x}:{text}"


def load_segment(path: str) -> Any:
    """Read the bytes of a segment (a pyarrow Buffer), and check them by the checksum in its name.

    A segment of format 1 has none: then it is only known to be an Arrow file with so many rows.

    Raises:
        OSError: the file is not there, or cannot be read.
        DamagedSegmentError: it is not what was written.
    """
    # Not mapped: a sector that cannot be read is an OSError here, and SIGBUS in a mapped file.
    with pa.OSFile(path) as file:
        data = file.read_buffer()
    name = parse_segment(os.path.basename(path))
    damage = _find_damage(data, name)
    if damage:
        held = _known_content(data, name)
        raise DamagedSegmentError(
            os.path.dirname(path), f"segment {os.path.basename(path)} is damaged ({damage}). It"
            f" held {held}, which were acknowledged to nsqd")
    return data


def _find_damage(data: Any, name: SegmentName | None) -> str:
    if name is not None and name.checksum is not None:
        found = checksum_of(data)
        return "" if found == name.checksum else f"its checksum is {found:08x}"
    try:
        batch = pa.ipc.open_file(data).get_batch(0)
        batch.validate(full=True)
        batch.column(0).to_pylist()  # validate() leaves out whether texts are UTF-8
        for key in (b"topic", b"channel"):
            (batch.schema.metadata or {})[key].decode()
    except (pa.ArrowException, OSError, ValueError, LookupError) as exc:
        return str(exc) or "it cannot be read"
    if not batch.schema.equals(_SCHEMA):
        return "its columns are others"
    if name is not None and batch.num_rows != name.rows:
        return f"it has {batch.num_rows} rows"
    return ""


def _known_content(data: Any, name: SegmentName | None) -> str:
    text = "messages" if name is None else f"{name.rows} messages of offset {name.number}"
    for checksum, content in _SUMMARY.findall(data):
        if checksum_of(content) == int(checksum, 16):
            found = json.loads(content)
            first, last = (
                datetime.datetime.fromtimestamp(found[key] // 1000 / 1e6, datetime.timezone.utc)
                for key in ("first", "last"))
            nsqds = ", ".join(found["nsqds"])
            return (f"{text} of nsqd {nsqds}, published from {first.isoformat()} to"
                    f" {last.isoformat()}")
    return f"{text} (of which nsqd and time is not readable any more)"


@functools.lru_cache(maxsize=1000)
def warn_of_loss(folder: str, text: str) -> None:
    """Log what is lost and skipped, once in this process: tasks read a segment again and again."""
    logger.warning("spool %s %s; continuing because of failOnDataLoss=false", folder, text)


def _read(source: Any) -> Any:
    """Read the one batch of a segment, from a path or from bytes that were checked."""
    if isinstance(source, str):
        source = load_segment(source)
    return pa.ipc.open_file(source).get_batch(0)


def read_rows(source: Any) -> Any:
    """Read a segment as a RecordBatch of Spark's rows.

    Args:
        source: a path, or what ``load_segment`` returned, also as bytes.

    Raises: as ``load_segment``, of a path.
    """
    batch = _read(source)
    rows = batch.num_rows
    nsqd, ids, attempts, timestamps, bodies = batch.columns
    metadata = batch.schema.metadata
    offsets = pa.array(range(0, 16 * (rows + 1), 16), pa.int32())
    # The ids are ASCII digits: reading their bytes as text needs neither copy nor check.
    texts = pa.StringArray.from_buffers(rows, offsets.buffers()[1], ids.buffers()[1])
    micros = pa.compute.divide(timestamps, 1000).cast(pa.timestamp("us", tz="UTC"))
    return pa.record_batch(
        [
            pa.repeat(metadata[b"topic"].decode(), rows),
            pa.repeat(metadata[b"channel"].decode(), rows),
            nsqd.cast(pa.string()), texts, attempts, micros, timestamps, bodies,
        ],
        schema=_ROWS,
    )


class Cut(NamedTuple):
    """A part of a segment."""

    first: int  #: row
    rows: int
    size: int  #: bytes of the rows


def find_cuts(path: str, most_bytes: int = SEGMENT_BYTES) -> list[Cut]:
    """Cut a segment that is too large for one task; a larger message is alone in its part.

    Raises: as ``read_rows``.
    """
    cuts = [Cut(0, 0, 0)]
    for row, body in enumerate(pa.compute.binary_length(_read(path).column(4)).to_pylist()):
        size = ROW_BYTES + body
        if cuts[-1].rows and cuts[-1].size + size > most_bytes:
            cuts.append(Cut(row, 0, 0))
        first, rows, before = cuts[-1]
        cuts[-1] = Cut(first, rows + 1, before + size)
    return cuts


def encode_part(path: str, first: int, rows: int) -> bytes:
    """Build the bytes of a segment with some of the rows of another one.

    Raises: as ``read_rows``.
    """
    return bytes(_encode(_read(path).slice(first, rows)))


def read_ids(path: str) -> dict[str, list[bytes]]:
    """Read the ids of a segment, by nsqd.

    Raises: as ``read_rows``.
    """
    batch = _read(path)
    ids: dict[str, list[bytes]] = {}
    for nsqd, message_id in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()):
        ids.setdefault(nsqd, []).append(message_id)
    return ids


def read_messages(path: str) -> list[tuple[str, list[RawMessage]]]:
    """Read a segment as ``encode_segment`` was given it; for strays.

    Raises: as ``read_rows``.
    """
    batch = _read(path)
    nsqds, ids, attempts, timestamps, bodies = (column.to_pylist() for column in batch.columns)
    parts: dict[str, list[RawMessage]] = {}
    for nsqd, *message in zip(nsqds, timestamps, attempts, ids, bodies):
        parts.setdefault(nsqd, []).append((message[0], message[1], message[2], message[3]))
    return list(parts.items())
