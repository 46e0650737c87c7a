"""``spark.read``: reads the messages that a channel has now.

Of a loaded DataFrame, which is a snapshot, Spark asks for the partitions once, at the first action:
that is when messages are peeked at, or drained. Every action then reads the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsqclient.spark.ingest.message_buffer import split_segment
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.reading.partitions import (
    PeekedPartition, StoredPartition, make_partitions, read_partition,
)
from nsqclient.spark.reading.peeking import peek
from nsqclient.spark.reading.replay import select_stored
from nsqclient.spark.segment import Rows, encode_segment
from nsqclient.spark.session import brief_errors
from nsqclient.spark.reading.snapshot import read_snapshot, take_snapshot


class NsqBatchReader(DataSourceReader):
    """Reads the messages that a channel has now.

    ``peek`` (the default) requeues every message. ``drain`` takes them: they are in the snapshot
    under ``storage`` until ``nsqclient.spark.release`` deletes it. ``replay`` reads what is in the
    log of a query, even while that runs, or in a snapshot.

    Args:
        load: a name that no other load() has.
    """

    def __init__(self, options: ReadOptions, load: str) -> None:
        self._options = options
        self._load = load

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read segments: no secret of the options is sent to them.
        return {}

    @brief_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Peek, drain, or list a log; return the tasks."""
        options = self._options
        if options.mode == "peek":
            return [
                PeekedPartition(bytes(encode_segment(options.topic, options.channel, part)))
                for part in split_segment(
                    (source, Rows.of(messages)) for source, messages in peek(options))
            ] or [StoredPartition("", [])]
        if options.mode == "drain":
            url, segments = take_snapshot(options, self._load)
        elif options.snapshot:
            url, segments = read_snapshot(options)
        else:
            url, segments = options.storage, select_stored(options).segments
        return make_partitions(
            url, segments, options.min_partitions, options.fail_on_data_loss,
        ) or [StoredPartition(url, [])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Give the rows of one task, as Arrow record batches. Has no side effect."""
        return read_partition(partition)
