"""What is in a segment: an Arrow IPC file of one record batch, and how it becomes Spark's rows.

Written once, in the one process that is short of time, and read by many: so a segment has only
what differs from row to row, and readers add the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute  # noqa: F401 - makes pa.compute

from nsqclient.protocol.wire import RawMessage
from nsqclient.spark.schema import row_schema

_SCHEMA = pa.schema([
    ("nsqd", pa.dictionary(pa.int32(), pa.string())),
    ("message_id", pa.binary(16)),
    ("attempts", pa.int32()),
    ("timestamp_ns", pa.int64()),
    ("body", pa.binary()),
])
_ROWS = row_schema()


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
    schema = _SCHEMA.with_metadata({"topic": topic, "channel": channel})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(whole, schema=schema))
    return sink.getvalue()


def _read(source: Any) -> Any:
    """Read the one batch of a segment, from a path (mapped, not copied) or from bytes."""
    if isinstance(source, str):
        source = pa.memory_map(source)
    return pa.ipc.open_file(source).get_batch(0)


def read_rows(source: Any) -> Any:
    """Read a segment as a RecordBatch of Spark's rows.

    Args:
        source: a path, or the segment's bytes.

    Raises:
        OSError: the file is not there.
        pyarrow.ArrowInvalid: it is no segment.
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
