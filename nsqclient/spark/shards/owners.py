"""``ShardOwner`` receives from one nsqd or partition, and writes the log of its shard.

``ShardOwners`` are all the owners of one process.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from nsqclient.display import counted, show_size
from nsqclient.errors import NSQError
from nsqclient.partitioned.bulk import partition_source
from nsqclient.partitioned.discovery import lookup_routes
from nsqclient.protocol.partitioned.lookup_table import TopicRoutes
from nsqclient.spark.errors import StorageError
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.ingest import Ingest, Quota
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.listing import ShardStatus
from nsqclient.spark.shards.membership import Membership
from nsqclient.spark.shards.names import ShardKeys, parse_shard, partition_of_source, registry
from nsqclient.spark.shards.shard_log import ShardLog
from nsqclient.spark.storage import Store, probe

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds between two checks of Spark's commits.
_INTERVAL = 1.0
#: Checks of the commits between two notes, if few segments are new.
_LOOKS_PER_NOTE = 5
#: Fraction of the limit below which uncommitted messages must fall before the flow resumes.
_RESUME = 0.8


class ShardOwner:
    """The owner of one shard: receives from its nsqd, looks for Spark's commits, writes notes.

    Two concurrent owners of one shard lose no message and store none twice, but each reads every
    segment of the other. So a shard should have two owners only during a takeover.
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
        self.ingest: Ingest = Ingest(
            self._options, self.log, on_stored=self._on_stored, on_failed=self._on_failed,
            quota=quota, partitions=None if partition is None else frozenset({partition}))
        self._is_failed = False
        self._is_held = False  # too many messages are uncommitted
        self._wake = threading.Event()  # set when the storage fails, and by stop
        self._end = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"nsq-shard-{nsqd}", daemon=True)

    def start(self) -> None:
        self.log.open()
        self.ingest.start()
        self.balance()
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Store and finish the received messages, requeue later ones, write a note. Idempotent."""
        if self._thread.ident is None or self._end.is_set():
            return
        self._end.set()
        self._wake.set()
        self.ingest.stop(timeout)
        self._thread.join(timeout)
        self.log.close()

    @property
    def is_paused(self) -> bool:
        return self._is_held or self.log.full_error is not None

    def status(self) -> ShardStatus:
        """The owner's cached view of the shard. No I/O."""
        log, options = self.log, self._options
        messages, size = log.waiting
        return ShardStatus(
            options.topic, options.channel, self.nsqd, log.owner, log.end.number, log.committed,
            messages, size, log.oldest, log.written)

    def balance(self) -> None:
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
            self._wake.set()  # retry immediately
        self._notify_stored()

    def _on_failed(self, error: NSQError) -> None:
        self._is_failed = True
        self._notify_failed(error)

    def _run(self) -> None:
        looks = 0
        while True:
            # After the immediate retry, the next one is a whole interval later.
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


#: Owners that are started or stopped concurrently.
_AT_ONCE = 16
#: Seconds between two checks whether an owner has failed, or has another shard.
_CHECK_INTERVAL = 0.5
#: Seconds between two log lines about each shard.
_REPORT_INTERVAL = 30.0
#: New objects between two garbage collections. With Python's default, each read of a socket causes
#: one.
_NEW_OBJECTS = 10_000


class ShardOwners:
    """The owners of one process, one for each shard that is assigned to it.

    Threads: one; any thread may read ``owners``.

    Args:
        job: name of the Spark job that this process is a task of. In a job, an owner that fails is
            started again after the next discovery; without one, its error is raised.
        is_alone: own all shards. Otherwise the processes with owners of this topic and channel, on
            this storage, share the shards; see ``Membership``.
    """

    def __init__(
        self, options: ReadOptions, store: Store, job: str = "", is_alone: bool = False,
        on_stored: Callable[[], None] = lambda: None, quota: Quota | None = None,
    ) -> None:
        self._options = options
        self._store = store
        self._is_job = bool(job)
        self._on_stored = on_stored
        self._quota = quota
        self._members = None if is_alone else Membership(
            store, options.topic, options.channel, job)
        self._discovered = self._reported = time.monotonic()
        self._reachable: list[str] = []
        self._lock = threading.Lock()
        self._errors: dict[str, NSQError] = {}  # nsqd -> why its owner failed; guarded by _lock
        self.owners: dict[str, ShardOwner] = {}  #: nsqd -> owner

    def open(self) -> None:
        """Probe the storage, negotiate with every nsqd, and start the owners."""
        if 0 < gc.get_threshold()[0] < _NEW_OBJECTS:  # otherwise the user has set it
            gc.set_threshold(_NEW_OBJECTS)
        probe(self._store)
        options = self._options
        if not self._is_job:
            check_handshakes(options.nsqd, options.lookupd, options.topic, options.config)
        self._discover()
        if self._members is not None:
            self._members.join(self._reachable)
        self.rebalance()

    def run(self, wait: Callable[[float], bool]) -> None:
        """Own shards until the job is over, or ``wait(seconds)`` returns True."""
        while not wait(_CHECK_INTERVAL) and not (
            self._members is not None and self._members.is_over
        ):
            self.tend()

    def tend(self) -> None:
        self.check()
        now = time.monotonic()
        if now - self._discovered >= self._options.config.lookupd_poll_interval:
            self._discovered = now
            self.update()
        elif self._members is not None and self._members.changed.is_set():
            self.rebalance()
        if now - self._reported >= _REPORT_INTERVAL:
            self._reported = now
            self._report()

    def update(self) -> None:
        """Ask the nsqlookupds, then rebalance. In a job, failed owners are started again."""
        self.check()
        with self._lock:  # keep errors that check() has not seen
            self._errors = {nsqd: error for nsqd, error in self._errors.items()
                            if nsqd in self.owners}
        self._discover()
        if self._members is not None:
            self._members.announce(self._reachable)
        self.rebalance()

    def rebalance(self) -> None:
        """Start owners of newly assigned shards, and stop those of other shards."""
        assigned = self._reachable
        if self._members is not None:
            assigned = self._members.assigned()
        gone = [nsqd for nsqd in self.owners if nsqd not in assigned]
        with self._lock:
            new = [nsqd for nsqd in assigned
                   if nsqd not in self.owners and nsqd not in self._errors]
        for nsqd in gone:
            if nsqd in self._reachable:
                logger.info("shard %s: another owner has it now", nsqd)
            else:
                logger.info("shard %s: its nsqd is no longer available", nsqd)
        with ThreadPoolExecutor(_AT_ONCE, "nsq-shards") as pool:
            left = [self.owners.pop(nsqd) for nsqd in gone]
            list(pool.map(lambda owner: owner.stop(), left))
            self._keep_registry([owner for owner in left if owner.nsqd not in self._reachable])
            list(pool.map(self._begin, new))

    def _begin(self, nsqd: str) -> None:
        logger.info("shard %s: receiving", nsqd)
        owner = ShardOwner(self._options, self._store, nsqd,
                           lambda error: self._on_failed(nsqd, error), self._on_stored, self._quota)
        try:
            owner.start()
        except NSQError as exc:
            if not self._is_job:
                raise
            self._on_failed(nsqd, exc)
        self.owners[nsqd] = owner

    def _keep_registry(self, ended: Sequence[ShardOwner]) -> None:
        """Unregister the shards of ``ended`` owners, and register the owned shards again.

        A process that could not see an nsqd may have unregistered a shard that is owned here.
        """
        options = self._options
        try:
            for owner in ended:
                owner.log.unregister()
            listed = self._store.list_objects(registry(options.topic, options.channel))
            registered = {parse_shard(found.key) for found in listed}
            for nsqd, owner in self.owners.items():
                if nsqd not in registered:
                    owner.log.register()
        except StorageError as exc:
            logger.warning("%s; trying again", exc)

    def check(self) -> None:
        """Raise the error of an owner that has failed; in a job, stop that owner instead."""
        with self._lock:
            errors = dict(self._errors)
        for nsqd, error in errors.items():
            if not self._is_job:
                raise error
            if nsqd in self.owners:
                logger.error("shard %s: %s; trying again at the next discovery", nsqd, error)
                self.owners.pop(nsqd).stop()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop all owners concurrently, and let others take over. Idempotent."""
        with ThreadPoolExecutor(_AT_ONCE, "nsq-shards") as pool:
            list(pool.map(lambda owner: owner.stop(timeout), self.owners.values()))
        self.owners.clear()
        if self._members is not None:
            self._members.leave()

    def _discover(self) -> None:
        options = self._options
        found: list[str] = list(options.nsqd)
        for lookupd in options.lookupd:
            try:
                found += shards_of(
                    lookup_routes(lookupd, options.topic, "r", options.config).routes)
            except NSQError as exc:
                logger.warning("%s; trying again", exc)
                found += self._reachable  # which of them are gone is unknown
        # A connected nsqd stays, although nsqlookupd may not list it after a restart.
        connected = {nsqd for nsqd, owner in self.owners.items() if owner.ingest.connections}
        self._reachable = sorted(connected.union(found))

    def _report(self) -> None:
        for nsqd, owner in sorted(self.owners.items()):
            rows, size = owner.log.waiting
            logger.info(
                "shard %s: segment %d, %s that Spark has not committed (%s), %s dropped", nsqd,
                owner.log.end.number, counted(rows, "message"), show_size(size),
                counted(owner.log.copies_dropped, "copy", "copies"))

    def _on_failed(self, nsqd: str, error: NSQError) -> None:
        with self._lock:
            self._errors.setdefault(nsqd, error)


def shards_of(routes: TopicRoutes) -> list[str]:
    """The shards of a topic: its nsqds, or its partitions, whose nsqds may change."""
    partitions = {*range(routes.partition_num), *routes.partitions}
    return [*routes.plain, *map(partition_source, sorted(partitions))]
