"""``spark.readStream``: reads a channel as a stream. Needs PySpark 4.2.

Spark keeps one reader in a process of the driver for the whole query, and sends copies to the
executors, which only read segments. So ``__init__`` opens nothing. The driver plans batches from
listings of the logs; no row passes through it. If the options have addresses of nsqds or
nsqlookupds, the driver also owns the shards: see ``receiver``.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow,
)

from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.reading.partitions import make_partitions, read_partition
from nsqclient.spark.reading.replay import find_start
from nsqclient.spark.session import brief_errors
from nsqclient.spark.shards.admission import make_offset, plan_batch, read_offset
from nsqclient.spark.shards.log_reader import ShardedLog
from nsqclient.spark.shards.reader_claim import ReaderClaim
from nsqclient.spark.storage import Store, open_store, probe

if TYPE_CHECKING:
    from nsqclient.spark.reading.receiver import Receiver

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds that a call waits for new segments.
_WAIT = 0.2
#: Maximum seconds that the first call waits, until connections are open and messages arrive.
_FIRST_WAIT = 5.0
#: Seconds between two listings of a drain, or of the first call.
_DRAIN_WAIT = 0.05


class _Opened:
    """The state of a reader in the driver's process while a query runs."""

    def __init__(self, options: ReadOptions, position: Mapping[str, int], drains: bool) -> None:
        #: Set when the receiver has stored a segment, or has failed.
        self.news: threading.Event = threading.Event()
        self.store: Store = open_store(options.storage)
        self.log: ShardedLog = ShardedLog(
            self.store, options.topic, options.channel, options.retention_ms,
            options.retention_bytes, options.fail_on_data_loss)
        self._claim = ReaderClaim(self.store, options.topic, options.channel)
        self.receiver: Receiver | None = None
        try:
            probe(self.store)
            self._claim.take()
            self.lost: list[str] = self.log.check(position)  #: shards whose log was lost
            if options.is_receiving:
                # Slow to import, and executors do not need it.
                from nsqclient.spark.reading.receiver import Receiver

                self.receiver = Receiver(options, self.store, self.news.set)
                if drains:
                    self.receiver.prepare_drain()
                self.receiver.open()
            elif not self.log.registered():
                logger.warning(
                    "storage %s has no log of %s/%s yet: start owners (nsqclient spark ingest), or"
                    " give the query nsqd or lookupd", self.store.url, options.topic,
                    options.channel)
            self.log.open()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        self._claim.check()
        if self.receiver is not None:
            self.receiver.check()

    def close(self) -> None:
        if self.receiver is not None:
            self.receiver.stop()
        self.log.stop()
        self._claim.release()


class NsqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a channel as a stream."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._opened: _Opened | None = None
        self._drains = False
        self._target: dict[str, int] | None = None  # the last segments to drain
        self._listed = float("-inf")  # when the storage was listed
        self._registered: dict[str, int] = {}  # shard -> where its reading begins
        self._begun: dict[str, int] | None = None  # start of this run, as stored in the storage
        self._has_committed = False  # the checkpoint has a batch
        self._is_first = True  # no batch was planned yet
        self._is_full = False  # the last batch has reached a limit
        self._due = 0.0  # when the next batch begins, even if it is not full

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read segments, so the options with their secrets are not sent to them.
        return {}

    # -- in the driver's process

    @brief_errors()
    def initialOffset(self) -> dict[str, Any]:
        """Find the start of a query without a checkpoint; see ``startingOffsets``.

        The default is the last commit of each shard. Another start is stored until the first
        commit, so that a restarted query with the same options begins at the same segments.

        Raises:
            DataLossError, LogInUseError: the log cannot be read.
            NSQError: an nsqd rejects an option.
        """
        opened, options = self._open({}), self._options
        log = opened.log
        if options.starting_timestamp is None and options.starting_offsets in (None, "committed"):
            return self._offset(log.places(log.registered()))
        start = f"{options.starting_offsets} {options.starting_timestamp}"
        places = log.begun(start)
        if places is None:
            places = find_start(options, opened.store)
            logger.info("%s: the query begins after %s", log, places)
            log.begin(start, places)
        self._begun = places
        return self._offset(places)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end when it has read what the nsqds, or the storage, have now."""
        self._drains = True

    @brief_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Plan the next batch. When Spark calls this, it has committed everything up to ``start``.

        Blocks: for listings, and 0.2 s for new segments, 5 s in the first call. With AvailableNow,
        until a batch is full or all messages are stored.

        Raises:
            ConfigError: the trigger is ``once``, or the checkpoint is of another kind.
            DataLossError, LogInUseError, LogMismatchError: the log cannot be read.
            NSQError: messages can no longer be received.
        """
        if isinstance(limit, ReadAllAvailable):
            raise ConfigError(
                "trigger(once=True) would take what comes in the first moment, and leave the rest:"
                " use trigger(availableNow=True), which takes all that is there, in batches")
        position = self._position(start)
        opened = self._open(position)
        lost, opened.lost = opened.lost, []
        if lost:
            return self._offset({**position, **dict.fromkeys(lost, 0)})
        opened.log.mark_committed(position)
        if not self._has_committed and position != self._begun:
            opened.log.forget_begun()
            self._has_committed = True
        if self._drains and opened.receiver is not None:
            end = self._fill_batch(opened, opened.receiver, position, limit)
        else:
            end = self._wait_for_batch(opened, position, limit)
        if self._is_first:
            self._check_limit(opened.log)
        self._is_first = False
        return start if end == position else self._offset(end)

    def _fill_batch(
        self, opened: _Opened, receiver: Receiver, position: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """Wait until a batch is full, or no more messages arrive; return its end."""
        began = time.monotonic()
        while True:
            opened.check()
            is_over = receiver.drain_is_over()
            is_held = receiver.is_paused  # before the listing, so that it misses no segment
            self._list(opened.log, position, is_due=True)
            if is_over and self._target is None:
                self._set_target(opened.log, position)
            end = self._plan(opened.log, position, limit)
            if is_over or end.keys() != position.keys() or (
                end != position and (self._is_full or is_held)
            ):
                return end
            receiver.check_space(began)
            opened.news.wait(_DRAIN_WAIT)
            opened.news.clear()

    def _wait_for_batch(
        self, opened: _Opened, position: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """Wait for a batch that is full or due; return its end, or ``position`` if there is none.

        The first call waits until a segment exists, or connected nsqds send nothing. No call waits
        until a batch is due, because Spark cannot stop a query during a call.
        """
        receiver = opened.receiver
        first = receiver if self._is_first else None
        deadline = Deadline(_WAIT if first is None else _FIRST_WAIT)
        is_due = receiver is not None
        while True:
            opened.check()
            # Both before the listing, so that it misses no segment.
            is_silent = first is not None and first.is_silent()
            is_held = receiver is not None and receiver.is_paused
            self._list(opened.log, position, is_due)
            end = self._plan(opened.log, position, limit)
            now = time.monotonic()
            is_over = (deadline.expired() or self._drains or is_silent
                       or first is not None and is_held)
            has_rows = any(number > position.get(nsqd, number) for nsqd, number in end.items())
            if end != position and (has_rows or is_over or first is None) and (
                self._is_full or is_held or self._drains or now >= self._due
            ):
                self._due = now + self._options.max_trigger_delay_ms
                return end
            if is_over:
                return position
            is_due = opened.news.wait(min(
                deadline.at_most(_DRAIN_WAIT if first else _WAIT), self._options.list_interval_ms))
            is_due = is_due or first is not None
            opened.news.clear()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the newest segments and the lag, for ``progress.sources[0].latestOffset``."""
        opened = self._opened
        if opened is None:
            return self._offset({})
        waiting = {}
        for nsqd, shard in sorted(opened.log.shards.items()):
            rows, size = shard.total(shard.first - 1, shard.last)
            # Only the owner knows the rows of the newest segment.
            waiting[nsqd] = {"messages": rows, "bytes": size, "is_estimate": rows > 0}
        if opened.receiver is not None:
            waiting |= opened.receiver.waiting()
        lasts = {nsqd: shard.last for nsqd, shard in opened.log.shards.items()}
        lag = {} if opened.receiver is None else opened.receiver.lag()
        return {**self._offset(lasts), "waiting": waiting, "batch_full": self._is_full, **lag}

    @brief_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch ``(start, end]``; every call returns the same ones."""
        options, begin, position = self._options, self._position(start), self._position(end)
        log = self._open(position).log
        segments = [
            segment for nsqd, number in position.items() if number > begin.get(nsqd, number)
            for segment in log.segments(nsqd, begin[nsqd], number)]
        return make_partitions(
            options.storage, segments, options.min_partitions, options.fail_on_data_loss)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: ``latestOffset``, which Spark calls earlier, records commits."""

    def stop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _offset(self, shards: Mapping[str, int]) -> dict[str, Any]:
        return make_offset(self._options.topic, self._options.channel, shards)

    def _position(self, offset: Mapping[str, Any]) -> dict[str, int]:
        return read_offset(self._options.topic, self._options.channel, offset)

    def _open(self, position: Mapping[str, int]) -> _Opened:
        if self._opened is None:
            stop_on_sigterm()
            self._opened = _Opened(self._options, position, self._drains)
        return self._opened

    def _list(self, log: ShardedLog, position: dict[str, int], is_due: bool = False) -> None:
        if self._target is not None:
            # The end of the drain is known, so new segments are not listed.
            log.refresh(position)
            return
        now = time.monotonic()
        if not is_due and now - self._listed < self._options.list_interval_ms and (
            log.shards.keys() >= position.keys()
        ):
            return
        registered = log.registered()
        new = [nsqd for nsqd in registered if nsqd not in position]
        self._registered = {**dict.fromkeys(registered, 0), **log.places(new)}
        log.refresh(position)
        self._listed = time.monotonic()
        if self._drains and not self._options.is_receiving:
            self._set_target(log, position)

    def _check_limit(self, log: ShardedLog) -> None:
        limit = self._options.max_messages_per_trigger
        for nsqd, shard in log.shards.items():
            if shard.largest > limit:
                raise ConfigError(
                    f"maxMessagesPerTrigger of {limit} is less than one segment of shard {nsqd},"
                    f" which has {shard.largest} rows, and a batch has whole segments: give at"
                    f" least {shard.largest}, or its owners a smaller max_in_flight")

    def _set_target(self, log: ShardedLog, position: Mapping[str, int]) -> None:
        """Let the query end with the segments that are stored now, in new shards too."""
        joined = {**self._registered, **position}
        log.refresh(joined)
        self._target = {nsqd: log.shards[nsqd].last for nsqd in joined}

    def _plan(
        self, log: ShardedLog, position: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """The end of the next batch; ``position`` if it would be empty."""
        rows: int | None = self._options.max_messages_per_trigger
        size = self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        known = {nsqd: number for nsqd, number in position.items() if nsqd in log.shards}
        end = plan_batch(log.shards, known, rows, size or None, self._target)
        lasts = {nsqd: shard.last for nsqd, shard in log.shards.items()}
        most = lasts if self._target is None else self._target
        self._is_full = any(number < most.get(nsqd, 0) for nsqd, number in end.items())
        # A new shard joins with an empty range, so that Spark's own log has both ends of its later
        # batches. A shard that is no longer registered leaves after it has been read.
        leaving = [nsqd for nsqd, number in position.items() if (
            nsqd not in self._registered and number >= lasts.get(nsqd, number))]
        return {nsqd: number for nsqd, number in {**self._registered, **position, **end}.items()
                if nsqd not in leaving or not log.is_noted(nsqd, number)}

    # -- in an executor

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition)


def stop_on_sigterm() -> None:
    """Let SIGTERM raise SystemExit, so that ``stop()`` runs.

    Spark sends SIGTERM twice, without calling ``stop()`` first.
    """

    def leave(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    if threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, leave)
