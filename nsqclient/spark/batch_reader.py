"""``NsqBatchReader``: Spark's side of ``spark.read``. A loaded DataFrame is a snapshot.

Spark asks for the partitions once for each loaded DataFrame, at the first action: that is when
messages are looked at, or drained. Every action then reads the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsqclient.spark.options import ReadOptions
from nsqclient.spark.partitions import SegmentPartition, make_partitions, read_partition


class NsqBatchReader(DataSourceReader):
    """Reads what a channel has now.

    ``peek`` (the default) gives every message back. ``drain`` takes them: they are in the snapshot
    under ``spoolDir`` until ``nsqclient.spark.release`` deletes it.

    Args:
        options: checked.
        transport: "file" or "inline", for a drain.
        snapshot: its name, the same for all actions on a DataFrame.
    """

    def __init__(self, options: ReadOptions, transport: str, snapshot: str) -> None:
        self._options = options
        self._transport = transport
        self._snapshot = options.snapshot or snapshot

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read segments: no secret of the options travels to them.
        return {}

    def partitions(self) -> Sequence[InputPartition]:
        """Look, or drain; return the tasks.

        Raises:
            NSQError: see ``peek`` and ``take_snapshot``.
        """
        options = self._options
        if options.mode == "peek":
            from nsqclient.spark.peeking import peek
            from nsqclient.spark.spool.segment import encode_segment

            parts = peek(options)
            if not parts:
                return [SegmentPartition([])]
            segment = encode_segment(options.topic, options.channel, parts)
            return [SegmentPartition([segment.to_pybytes()])]
        from nsqclient.spark.drained import take_snapshot

        segments = take_snapshot(options, self._snapshot)
        tasks = make_partitions(segments, options.min_partitions, self._transport)
        return tasks or [SegmentPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Give the rows of one task, as Arrow record batches. Has no side effect."""
        return read_partition(partition)
