"""``NsqStreamReader``: Spark's side of the stream. An offset is ``{"seq": N}``, a segment's number.

Spark keeps one instance in a driver-side process for the whole query (offsets, partitions), and
sends copies to the executors, which only read segments. So nothing is touched in ``__init__``.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nsqclient.spark.ingest.receiver import Receiver
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.partitions import make_partitions, read_partition

logger = logging.getLogger("nsqclient.spark")

#: Seconds that a call waits for new segments: long for a loop, short for a trigger.
_WAIT = 0.2
#: The same while a drain fills a batch.
_DRAIN_WAIT = 0.05


class NsqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a channel as a stream.

    Exactly once from the spool into Spark's checkpoint; at least once from nsqd into the spool,
    with every duplicate suppressed that the source itself can cause.

    Args:
        options: checked.
        transport: "file" or "inline".
    """

    def __init__(self, options: ReadOptions, transport: str) -> None:
        self._options = options
        self._transport = transport
        self._receiver: Receiver | None = None
        self._drains = False

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read segments: no secret of the options travels to them.
        return {}

    # -- in the driver's process

    def initialOffset(self) -> dict[str, int]:
        """Where a query without a checkpoint begins: behind what the spool knows as committed."""
        return {"seq": self._open(0).spool.committed}

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxMessagesPerTrigger``."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now, and end then."""
        self._drains = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Plan the next batch. That Spark asks says that everything up to ``start`` is committed.

        Blocks: a moment, for new messages; with AvailableNow until a batch is full or all has come.

        Raises:
            NSQError: the ingest cannot go on.
        """
        seq = start["seq"]
        receiver = self._open(seq)
        receiver.spool.mark_committed(seq)
        receiver.balance()
        receiver.check()
        max_rows, max_bytes = self._limits(limit)
        if receiver.is_draining:
            self._fill_batch(receiver, seq, max_rows, max_bytes)
        else:
            receiver.spool.wait_for_more(seq, _WAIT)
            receiver.check()
        end = receiver.spool.end_of_batch(seq, max_rows, max_bytes)
        return start if end == seq else {"seq": end}

    def reportLatestOffset(self) -> dict[str, Any]:
        """What ``progress.sources[0].latestOffset`` shows: the lag."""
        if self._receiver is None:
            return {"seq": 0}
        return {"seq": self._receiver.spool.last, **self._receiver.lag()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks of the batch ``(start, end]``; the same for every call.

        Raises:
            DataLossError: segments of it are gone.
        """
        options = self._options
        spool = self._open(end["seq"]).spool
        entries = spool.batch(start["seq"], end["seq"], options.fail_on_data_loss)
        return make_partitions(
            [(entry, spool.path_of(entry.number)) for entry in entries],
            options.min_partitions, self._transport,
        )

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: ``latestOffset`` comes earlier, and also after the last batch."""

    def stop(self) -> None:
        """Store and finish what has come, give the rest back, and close."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stop()

    def _open(self, at_least: int) -> Receiver:
        if self._receiver is None:
            stop_on_sigterm()
            receiver = Receiver(self._options)
            if self._drains:
                receiver.prepare_drain()
            receiver.open(at_least)
            self._receiver = receiver
        return self._receiver

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        rows: int | None = self._options.max_messages_per_trigger
        size: int | None = self._options.max_bytes_per_trigger or None
        if isinstance(limit, ReadAllAvailable):
            return None, None
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return rows, size

    def _fill_batch(
        self, receiver: Receiver, seq: int, max_rows: int | None, max_bytes: int | None
    ) -> None:
        """Wait until a batch is full, or nothing more comes."""
        spool = receiver.spool
        while not receiver.drain_is_over():
            end = spool.end_of_batch(seq, max_rows, max_bytes)
            if end < spool.last or (receiver.is_full and end > seq):
                return
            spool.wait_for_more(spool.last, _DRAIN_WAIT)

    # -- in an executor

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Give the rows of one task, as Arrow record batches. Has no side effect."""
        return read_partition(partition)


def stop_on_sigterm() -> None:
    """Let SIGTERM end this process by an exception, so that ``stop()`` runs.

    Spark ends the driver-side process with SIGTERM, twice, without calling ``stop()`` first. In
    another thread than the main one, as in a test, nothing is changed.
    """

    def leave(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    if threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, leave)
