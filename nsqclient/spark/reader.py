"""``spark.readStream``: what Spark calls to read a channel as a stream. It needs PySpark 4.2.

Of a stream Spark keeps one reader in a driver-side process for the whole query (offsets,
partitions), and sends copies to the executors, which only read segments. So nothing is opened in
``__init__``. An offset is ``{"seq": N}``, the number of a segment.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.ingest.receiver import Receiver
from nsqclient.spark.options import BYTES_PER_TRIGGER, ReadOptions
from nsqclient.spark.partitions import make_partitions, read_partition
from nsqclient.spark.spool.offsets import COMMITTED, Bound, start_of

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Rows and bytes of a batch, at most; None: no limit.
_Limits = tuple[Optional[int], Optional[int]]

#: Seconds that a call waits for new segments: long for a loop, short for a trigger.
_WAIT = 0.2
#: The same the first time, at most: until connections are open and messages come.
_FIRST_WAIT = 5.0
#: The same while a drain fills a batch.
_DRAIN_WAIT = 0.05
#: Bytes of a batch that Spark's driver, with 1 GiB by default, may not have memory for.
_MUCH = 256 * 1024 * 1024


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
        self._is_first = True  # no batch was planned
        self._is_full = False  # nothing could be added to the last one
        self._due = 0.0  # when the next one begins, even if it is not full

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read segments: no secret of the options is sent to them.
        return {}

    # -- in the driver's process

    def initialOffset(self) -> dict[str, int]:
        """Where a query without a checkpoint begins: see ``startingOffsets``.

        Raises:
            DataLossError: it cannot begin there.
        """
        return {"seq": self._open(0, start_of(self._options, COMMITTED)).spool.committed}

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxMessagesPerTrigger``."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and end then."""
        self._drains = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Plan the next batch. Spark asks for it after it has committed everything up to ``start``.

        With ``maxTriggerDelayMs`` a batch begins when it is full, or that time after the last one.

        Blocks: a moment, for new messages, the first time until they can come; with AvailableNow
        until a batch is full or all has come.

        Raises:
            ConfigError: the trigger is ``once``, which takes what comes in the first moment.
            NSQError: the ingest cannot go on.
        """
        if isinstance(limit, ReadAllAvailable):
            raise ConfigError(
                "trigger(once=True) would take what comes in the first moment, and leave the rest:"
                " use trigger(availableNow=True), which takes all that is there")
        seq = _seq(start)
        receiver = self._open(seq, seq)
        receiver.spool.mark_committed(seq)
        receiver.balance()
        receiver.check()
        limits = self._limits(limit)
        if receiver.is_draining:
            end = self._fill_batch(receiver, seq, limits)
        else:
            if self._is_first:
                receiver.wait_for_first(seq, _FIRST_WAIT)
            end = self._wait_for_batch(receiver, seq, limits)
        self._is_first = False
        return start if end == seq else {"seq": end}

    def reportLatestOffset(self) -> dict[str, Any]:
        """What ``progress.sources[0].latestOffset`` shows: the lag."""
        if self._receiver is None:
            return {"seq": 0}
        return {"seq": self._receiver.spool.last, **self._receiver.lag(),
                "batch_full": self._is_full}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks of the batch ``(start, end]``; the same for every call.

        Raises:
            DataLossError: segments of it are gone, or damaged.
        """
        options = self._options
        spool = self._open(_seq(end), _seq(start)).spool
        entries = spool.batch(start["seq"], end["seq"], options.fail_on_data_loss)
        size = sum(entry.size for entry in entries)
        if self._transport == "inline" and size > _MUCH:
            logger.warning(
                "batch (%d, %d] has %d bytes, all of which Spark's driver holds: if it runs out of"
                " memory, raise spark.driver.memory or set transport=file",
                start["seq"], end["seq"], size)
        return make_partitions(
            [(entry, spool.path_of(entry.number)) for entry in entries],
            options.min_partitions, self._transport, options.fail_on_data_loss,
        )

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: ``latestOffset`` comes earlier, and also after the last batch."""

    def stop(self) -> None:
        """Store and finish what has come, give the rest back, and close."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stop()

    def _open(self, at_least: int, position: int | Bound) -> Receiver:
        if self._receiver is None:
            stop_on_sigterm()
            receiver = Receiver(self._options)
            if self._drains:
                receiver.prepare_drain()
            receiver.open(at_least, position)
            self._receiver = receiver
        return self._receiver

    def _limits(self, limit: ReadLimit) -> _Limits:
        rows: int | None = self._options.max_messages_per_trigger
        size = self._options.max_bytes_per_trigger
        if size is None:
            size = BYTES_PER_TRIGGER[self._transport]
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return rows, size or None

    def _fill_batch(self, receiver: Receiver, seq: int, limits: _Limits) -> int:
        """Wait until a batch is full, or nothing more comes; return its end."""
        spool = receiver.spool
        began = time.monotonic()
        while not receiver.drain_is_over():
            end, is_full = self._plan(receiver, seq, limits)
            if is_full:
                return end
            receiver.check_space(began)
            spool.wait_for_more(spool.last, _DRAIN_WAIT)
        return self._plan(receiver, seq, limits)[0]

    def _wait_for_batch(self, receiver: Receiver, seq: int, limits: _Limits) -> int:
        """Wait a moment for a batch that is full, or due; return its end, or ``seq``.

        Not until it is due: Spark cannot stop a query while a call waits.
        """
        deadline = Deadline(_WAIT)
        while True:
            end, is_full = self._plan(receiver, seq, limits)
            receiver.check()
            now = time.monotonic()
            if end > seq and (is_full or now >= self._due):
                self._due = now + self._options.max_trigger_delay_ms
                return end
            if deadline.expired():
                return seq
            receiver.spool.wait_for_more(receiver.spool.last, deadline.at_most(_WAIT))

    def _plan(self, receiver: Receiver, seq: int, limits: _Limits) -> tuple[int, bool]:
        """Return the end of a batch, and whether nothing that comes would be added to it."""
        last = receiver.spool.last  # first: a segment that comes now may belong to the batch
        rows, size = limits
        fitting = receiver.spool.most_in_batch
        if fitting is not None:
            size = min(size or fitting, fitting)
        end = receiver.spool.end_of_batch(seq, rows, size)
        self._is_full = end < last or (receiver.is_full and end > seq)
        return end, self._is_full

    # -- in an executor

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Give the rows of one task, as Arrow record batches. Has no side effect."""
        return read_partition(partition)


def _seq(offset: dict[str, int]) -> int:
    """Read an offset.

    Raises:
        ConfigError: it is of a query with shared storage.
    """
    if "seq" not in offset:
        raise ConfigError("the checkpoint is of a query with storage, and this one has spoolDir:"
                          " give it a checkpoint of its own")
    return offset["seq"]


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
