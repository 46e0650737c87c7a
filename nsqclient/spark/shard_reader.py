"""``spark.readStream`` with the option ``storage``: reads the logs of shards, which owners write.

The driver plans from listings; tasks read segments from the storage. Neither connects to nsqd, and
no row passes the driver. An offset is ``{"v": 2, "shards": {"host:4150": 812}}``.
"""

from __future__ import annotations

import logging
import threading
import time
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

from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.options import BYTES_PER_TRIGGER, ReadOptions
from nsqclient.spark.partitions import make_storage_partitions, read_partition
from nsqclient.spark.reader import stop_on_sigterm
from nsqclient.spark.replay import find_start
from nsqclient.spark.shards.admission import (
    join_and_leave, make_offset, plan_batch, read_offset, segments_of_batch,
)
from nsqclient.spark.shards.log_reader import ShardedLog
from nsqclient.spark.storage.store import open_store, probe

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds that a call waits for new segments.
_WAIT = 0.2


class NsqShardReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a channel as a stream, from shared storage.

    Exactly once from the storage into Spark's checkpoint; at least once from nsqd into the
    storage, with every duplicate suppressed that owners themselves can cause.

    Args:
        options: checked.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._log: ShardedLog | None = None
        self._store: Any = None
        self._drains = False
        self._target: dict[str, int] | None = None  # of a drain: the last segments
        self._listed = float("-inf")  # when the storage was listed
        self._registered: dict[str, int] = {}  # shards, each with the place where it begins
        self._begun: dict[str, int] | None = None  # where this run began, as it is noted
        self._has_committed = False  # the checkpoint has a batch
        self._is_full = False  # nothing could be added to the last batch
        self._due = 0.0  # when the next one begins, even if it is not full
        self._pause = threading.Event()  # never set

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read segments: no secret of the options is sent to them.
        return {}

    # -- in the driver's process

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins: see ``startingOffsets``.

        By default after what was committed, of each shard. Until the first commit a query whose
        options say the same begins there again.

        Raises:
            DataLossError: it cannot begin there.
            StorageError: the storage cannot be used.
        """
        log, options = self._open(), self._options
        if options.starting_timestamp is None and options.starting_offsets in (None, "committed"):
            return make_offset(log.places(log.registered()))
        start = f"{options.starting_offsets} {options.starting_timestamp}"
        places = log.begun(start)
        if places is None:
            places = find_start(options, self._store)
            logger.info("storage %s: the query begins after %s", self._store.url, places)
            log.begin(start, places)
        self._begun = places
        return make_offset(places)

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxMessagesPerTrigger``."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what the storage has now, and end then."""
        self._drains = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Plan the next batch. Spark asks for it after it has committed everything up to ``start``.

        Blocks: for listings, and a moment for new segments.

        Raises:
            ConfigError: the trigger is ``once``, or the checkpoint is of another kind.
            DataLossError: segments are gone.
            StorageError: the storage cannot be used.
        """
        if isinstance(limit, ReadAllAvailable):
            raise ConfigError(
                "trigger(once=True) would read what is there in one batch, whatever its size: use"
                " trigger(availableNow=True), which reads the same in batches")
        position = read_offset(start)
        log = self._open()
        log.mark_committed(position)
        if not self._has_committed and position != self._begun:
            log.forget_begun()
            self._has_committed = True
        deadline = Deadline(_WAIT)
        while True:
            self._list(log, position)
            end = self._plan(log, position, limit)
            is_due = self._is_full or self._drains or time.monotonic() >= self._due
            if end != position and is_due:
                self._due = time.monotonic() + self._options.max_trigger_delay_ms
                return make_offset(end)
            if deadline.expired() or self._drains:
                return start
            self._pause.wait(min(deadline.at_most(_WAIT), self._options.list_interval_ms))

    def reportLatestOffset(self) -> dict[str, Any]:
        """What ``progress.sources[0].latestOffset`` shows: the newest segments, and what waits."""
        if self._log is None:
            return make_offset({})
        waiting = {}
        for nsqd, shard in sorted(self._log.shards.items()):
            rows, size = shard.total(shard.first - 1, shard.last)
            waiting[nsqd] = {"messages": rows, "bytes": size}
        lasts = {nsqd: shard.last for nsqd, shard in self._log.shards.items()}
        return {**make_offset(lasts), "waiting": waiting, "batch_full": self._is_full}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch ``(start, end]``; the same for every call.

        Raises:
            DataLossError: segments of it are gone.
            StorageError: the storage cannot be used.
        """
        log, options = self._open(), self._options
        segments = [
            segment for one in segments_of_batch(read_offset(start), read_offset(end))
            for segment in log.segments(*one)]
        return make_storage_partitions(
            options.storage, segments, options.min_partitions, options.fail_on_data_loss)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: ``latestOffset`` comes earlier, and also after the last batch."""

    def stop(self) -> None:
        """Note what was committed, and close."""
        log, self._log = self._log, None
        if log is not None:
            log.stop()
            self._store.close()

    def _open(self) -> ShardedLog:
        if self._log is None:
            stop_on_sigterm()
            options = self._options
            self._store = open_store(options.storage)
            try:
                probe(self._store)
            except BaseException:
                self._store.close()
                raise
            self._log = ShardedLog(
                self._store, options.topic, options.channel, options.spool_retention_ms,
                options.spool_retention_bytes, options.fail_on_data_loss)
            self._log.open()
        return self._log

    def _list(self, log: ShardedLog, position: dict[str, int]) -> None:
        """List what is new, if that was not done just now."""
        if self._target is not None:
            # A drain has an end: what comes later is the next one's.
            log.refresh(position)
            return
        now = time.monotonic()
        if now - self._listed < self._options.list_interval_ms and (
            log.shards.keys() >= position.keys()
        ):
            return
        registered = log.registered()
        new = [nsqd for nsqd in registered if nsqd not in position]
        self._registered = {**dict.fromkeys(registered, 0), **log.places(new)}
        log.refresh(position)
        self._listed = time.monotonic()
        if self._drains:
            joined = {**{nsqd: self._registered[nsqd] for nsqd in new}, **position}
            log.refresh(joined)
            self._target = {nsqd: log.shards[nsqd].last for nsqd in joined}

    def _plan(
        self, log: ShardedLog, position: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """The end of the next batch; ``position`` where there is nothing to read."""
        rows: int | None = self._options.max_messages_per_trigger
        size = self._options.max_bytes_per_trigger
        if size is None:
            size = BYTES_PER_TRIGGER["file"]
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        known = {nsqd: number for nsqd, number in position.items() if nsqd in log.shards}
        end = plan_batch(log.shards, known, rows, size or None, self._target)
        lasts = {nsqd: shard.last for nsqd, shard in log.shards.items()}
        most = lasts if self._target is None else self._target
        self._is_full = any(number < most.get(nsqd, 0) for nsqd, number in end.items())
        joining, leaving = join_and_leave(position, self._registered, lasts)
        return {nsqd: number for nsqd, number in {**position, **end, **joining}.items()
                if nsqd not in leaving or not log.is_noted(nsqd, number)}

    # -- in an executor

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Give the rows of one task, as Arrow record batches. Has no side effect.

        Raises:
            DataLossError: a segment is gone, or damaged.
            StorageError: the storage cannot be used here.
        """
        return read_partition(partition)
