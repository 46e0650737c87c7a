"""``spark.read``: what Spark calls to read what a channel has now.

Of a loaded DataFrame, which is a snapshot, Spark asks for the partitions once, at the first action:
that is when messages are peeked at, or drained. Every action then reads the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsqclient.spark.ingest.message_buffer import split_by_bytes
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.partitions import (
    SegmentPartition, make_partitions, make_storage_partitions, read_partition,
)
from nsqclient.spark.peeking import peek
from nsqclient.spark.replay import select_segments, select_stored
from nsqclient.spark.snapshot import take_snapshot
from nsqclient.spark.spool.segment import encode_segment


class NsqBatchReader(DataSourceReader):
    """Reads what a channel has now.

    ``peek`` (the default) requeues every message. ``drain`` takes them: they are in the snapshot
    under ``spoolDir`` until ``nsqclient.spark.release`` deletes it. ``replay`` reads what is in a
    spool or on shared storage, also while a query uses it.

    Args:
        options: checked.
        transport: "file" or "inline", for a drain or a replay.
        snapshot: its name, the same for all actions on a DataFrame.
    """

    def __init__(self, options: ReadOptions, transport: str, snapshot: str) -> None:
        self._options = options
        self._transport = transport
        self._snapshot = options.snapshot or snapshot

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read segments: no secret of the options is sent to them.
        return {}

    def partitions(self) -> Sequence[InputPartition]:
        """Peek, drain, or look what a spool has; return the tasks.

        Raises:
            NSQError: see ``peek``, ``take_snapshot``, ``select_segments`` and ``select_stored``.
        """
        options = self._options
        if options.mode == "peek":
            return [
                SegmentPartition(
                    [encode_segment(options.topic, options.channel, part).to_pybytes()])
                for part in split_by_bytes(peek(options))
            ] or [SegmentPartition([])]
        if options.storage:
            return make_storage_partitions(
                options.storage, select_stored(options).segments, options.min_partitions,
                options.fail_on_data_loss) or [SegmentPartition([])]
        if options.mode == "replay":
            segments = select_segments(options).segments
        else:
            segments = take_snapshot(options, self._snapshot)
        tasks = make_partitions(
            segments, options.min_partitions, self._transport, options.fail_on_data_loss)
        return tasks or [SegmentPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Give the rows of one task, as Arrow record batches. Has no side effect."""
        return read_partition(partition)
