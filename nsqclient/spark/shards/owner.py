"""``ShardOwner``: receives from one nsqd, or one partition, and writes the log of its shard.

``nsq-shard-HOST:PORT`` is its only thread: it looks for what Spark has committed, and writes notes.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable

from nsqclient.errors import NSQError
from nsqclient.spark.errors import StorageError
from nsqclient.spark.ingest.ingest import Ingest
from nsqclient.spark.ingest.writer import Quota
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.names import ShardKeys, partition_of_source
from nsqclient.spark.shards.shard_log import ShardLog
from nsqclient.spark.shards.listing import ShardStatus
from nsqclient.spark.storage.store import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds between two looks at what Spark has committed.
_INTERVAL = 1.0
#: Looks between two notes, where few segments are new.
_LOOKS_PER_NOTE = 5
#: Part of its limit under which uncommitted messages must fall before more is received.
_RESUME = 0.8


class ShardOwner:
    """The owner of one shard.

    Two owners of one shard at once lose nothing and store nothing twice; each segment that one
    writes the other one reads. So that is for moments, such as a takeover.

    Life: created, ``start()``, ``stop()``; not started again. Threads: one; ``stop`` any.
    """

    def __init__(
        self, options: ReadOptions, store: Store, nsqd: str,
        on_failed: Callable[[NSQError], None] = lambda error: None,
        on_stored: Callable[[], None] = lambda: None, quota: Quota | None = None,
    ) -> None:
        config = options.config
        patience = min(config.read_timeout, 2 * config.heartbeat_interval)
        self.nsqd = nsqd
        self.log: ShardLog = ShardLog(
            store, ShardKeys(options.topic, options.channel, nsqd), 2 * patience)
        partition = partition_of_source(nsqd)
        self._options = dataclasses.replace(
            options, nsqd=(nsqd,) if partition is None else (), nsqd_http=(),
            lookupd=() if partition is None else options.lookupd)
        self._notify_failed = on_failed
        self._notify_stored = on_stored
        #: What receives.
        self.ingest: Ingest = Ingest(
            self._options, self.log, on_stored=self._on_stored, on_failed=self._on_failed,
            quota=quota, partitions=None if partition is None else frozenset({partition}))
        self._is_failed = False
        self._is_held = False  # Spark is behind
        self._wake = threading.Event()  # the storage takes nothing, or the end
        self._end = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"nsq-shard-{nsqd}", daemon=True)

    def start(self) -> None:
        """Read the log, then connect."""
        self.log.open()
        self.ingest.start()
        self.balance()
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Store and finish the received messages, requeue later ones, and note that. Idempotent."""
        if self._thread.ident is None or self._end.is_set():
            return
        self._end.set()
        self._wake.set()
        self.ingest.stop(timeout)
        self._thread.join(timeout)
        self.log.close()

    @property
    def is_paused(self) -> bool:
        """True if the flow is stopped: Spark is behind, or the storage fails."""
        return self._is_held or self.log.full_error is not None

    def status(self) -> ShardStatus:
        """The owner's cached view of the shard. No I/O."""
        log, options = self.log, self._options
        messages, size = log.waiting
        return ShardStatus(
            options.topic, options.channel, self.nsqd, log.owner, log.end.number, log.committed,
            messages, size, log.oldest, log.written)

    def balance(self) -> None:
        """Pause the flow (RDY 0) while Spark is behind, or the storage takes nothing."""
        rows, size = self.log.waiting
        options = self._options
        part = max(rows / options.max_log_messages, size / options.max_log_bytes)
        if part >= 1:
            self._is_held = True
        elif part < _RESUME:
            self._is_held = False
        self.ingest.set_paused(self.is_paused or self._is_failed)

    def _on_stored(self) -> None:
        self.balance()
        if self.log.full_error is not None:
            self._wake.set()  # for a first look at once
        self._notify_stored()

    def _on_failed(self, error: NSQError) -> None:
        self._is_failed = True
        self._notify_failed(error)

    def _run(self) -> None:
        looks = 0
        while True:
            # After a wake the next look is a whole interval later, if the storage stays as it is.
            self._wake.wait(_INTERVAL)
            self._wake.clear()
            if self._end.is_set():
                return
            looks += 1
            try:
                self.log.look_for_commits()
                self.log.retry()
                if self.log.full_error is None:
                    self.log.write_note(*((1,) if looks % _LOOKS_PER_NOTE == 0 else ()))
            except StorageError as exc:
                logger.warning("shard %s: %s; trying again", self.nsqd, exc)
            except Exception:
                logger.exception("shard %s: maintenance failed; it continues", self.nsqd)
            self.balance()
