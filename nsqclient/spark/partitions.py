"""The tasks of a batch: which segments each reads, and how it gets them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from nsqclient.spark.errors import DataLossError
from nsqclient.spark.spool.retention import Entry, spread

#: Bytes in one task when rows travel with it; Spark's hard limit (spark.rpc.message.maxSize) is
#: 128 MiB, and a segment is never cut.
_INLINE_BYTES = 8 * 1024 * 1024


#: A slow topic makes a segment of each few rows. Spark takes a batch for each, at a price, so small
#: ones are joined until they have so many rows or bytes.
_ENOUGH_ROWS, _ENOUGH_BYTES = 1000, 1024 * 1024


class SegmentPartition(InputPartition):
    """Segments that one task reads: their paths, or themselves."""

    def __init__(self, sources: list[str] | list[bytes], host: str = "") -> None:
        super().__init__(None)
        self.sources = sources
        self.host = host  # where the paths are known


def make_partitions(
    segments: Sequence[tuple[Entry, str]], parts: int, transport: str
) -> list[SegmentPartition]:
    """Cut a batch into tasks.

    Args:
        segments: with the paths of their files, in order.
        parts: how many tasks, where there are so many segments; inline there may be more.
        transport: "file" or "inline".
    """
    paths = {entry.number: path for entry, path in segments}
    entries = [entry for entry, _ in segments]
    if transport == "inline":
        size = sum(entry.size for entry in entries)
        parts = max(parts, -(-size // _INLINE_BYTES))
    runs = [[paths[entry.number] for entry in run] for run in spread(entries, parts)]
    if transport == "inline":
        return [SegmentPartition([_load(path) for path in run]) for run in runs]
    host = socket.gethostname()
    return [SegmentPartition(run, host) for run in runs]


def _load(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def read_partition(partition: InputPartition) -> Iterator[Any]:
    """Give the rows of a task, as Arrow record batches.

    Raises:
        DataLossError: a segment is not where it should be.
    """
    small: list[Any] = []
    rows = size = 0
    for batch in _read_segments(partition):
        if small and (batch.num_rows >= _ENOUGH_ROWS or batch.nbytes >= _ENOUGH_BYTES):
            yield _joined(small)  # a large one is not copied
            small, rows, size = [], 0, 0
        small.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ENOUGH_ROWS or size >= _ENOUGH_BYTES:
            yield _joined(small)
            small, rows, size = [], 0, 0
    if small:
        yield _joined(small)


def _joined(batches: list[Any]) -> Any:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _read_segments(partition: InputPartition) -> Iterator[Any]:
    # Here, because only executors need it.
    from nsqclient.spark.spool.segment import read_rows

    assert isinstance(partition, SegmentPartition)
    for source in partition.sources:
        try:
            yield read_rows(source)
        except FileNotFoundError as exc:
            here = socket.gethostname()
            hint = "it was deleted"
            if here != partition.host:
                hint = (
                    f"the driver on {partition.host} sees it, {here} does not: mount spoolDir on"
                    " every executor, or set transport=inline"
                )
            raise DataLossError(
                os.path.dirname(str(source)), f"segment {source!r} is not there: {hint}") from exc
