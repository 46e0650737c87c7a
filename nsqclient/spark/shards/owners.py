"""``ShardOwners``: the owners of one process. Its only thread is that of ``Membership``."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from nsqclient.display import counted, show_size
from nsqclient.errors import NSQError
from nsqclient.partitioned.discovery import lookup_routes
from nsqclient.partitioned.bulk import partition_source
from nsqclient.protocol.partitioned.lookup_table import TopicRoutes
from nsqclient.spark.errors import StorageError
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.ingest.writer import Quota
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.membership import Membership
from nsqclient.spark.shards.names import parse_shard, registry
from nsqclient.spark.shards.owner import ShardOwner
from nsqclient.spark.storage.store import Store, probe

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Owners that are started or stopped at once.
_AT_ONCE = 16
#: Seconds between two checks whether an owner has failed, or has another shard.
_CHECK_INTERVAL = 0.5
#: Seconds between two lines about the work.
_REPORT_INTERVAL = 30.0
#: New objects after which Python looks for garbage; by default it does after each read of a socket.
_NEW_OBJECTS = 10_000


class ShardOwners:
    """The owners of one process: of the shards that are assigned to it.

    It shares the shards that it can reach with all other processes that own shards of this topic
    and channel on this storage (see ``assignment``); or, alone, it owns all of them.

    Life: ``open()``, ``tend()`` again and again or ``run()``, ``stop()``. Threads: one; ``owners``
    may be read by any.

    Args:
        options: the addresses of nsqds, and how to receive.
        job: name of the Spark job that this process works for, and ends with. Then a shard that
            fails is tried again at the next discovery, and the others go on.
        is_alone: True in the process of a query, which owns all shards that it reads.
        on_stored: called after each segment, from any thread.
        quota: of messages to take; None: all.
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
        self._errors: dict[str, NSQError] = {}  # by nsqd, of owners that receive nothing; by _lock
        self.owners: dict[str, ShardOwner] = {}  #: by nsqd

    def open(self) -> None:
        """Probe the storage, negotiate with every nsqd that is there, and begin."""
        if 0 < gc.get_threshold()[0] < _NEW_OBJECTS:  # else somebody has chosen it
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
        """Own shards until the end is asked for, here or for the job.

        Args:
            wait: waits up to this number of seconds; returns True to end.
        """
        while not wait(_CHECK_INTERVAL) and not (
            self._members is not None and self._members.is_over
        ):
            self.tend()

    def tend(self) -> None:
        """Do the due work: look for failures, discover nsqds, take over shards, log."""
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
        """Ask nsqlookupds, then as ``rebalance``. What failed in a job is tried again.

        Raises:
            NSQError: an owner can receive nothing more, or cannot begin; not in a job.
        """
        self.check()
        with self._lock:  # but not newer errors
            self._errors = {nsqd: error for nsqd, error in self._errors.items()
                            if nsqd in self.owners}
        self._discover()
        if self._members is not None:
            self._members.announce(self._reachable)
        self.rebalance()

    def rebalance(self) -> None:
        """Begin to own the shards that are assigned to us now, and leave the others.

        Raises:
            NSQError: an owner cannot begin; not in a job.
        """
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
        """Unregister shards whose nsqd discovery does not list any more; register the owned ones.

        Another owner may have let one of these end, from where its nsqd could not be seen.
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
        """Look whether an owner can receive nothing more.

        Raises:
            NSQError: the reason; in a job that owner is stopped instead.
        """
        with self._lock:
            errors = dict(self._errors)
        for nsqd, error in errors.items():
            if not self._is_job:
                raise error
            if nsqd in self.owners:
                logger.error("shard %s: %s; trying again at the next discovery", nsqd, error)
                self.owners.pop(nsqd).stop()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop all owners in order, at once, and let others take over. Idempotent."""
        with ThreadPoolExecutor(_AT_ONCE, "nsq-shards") as pool:
            list(pool.map(lambda owner: owner.stop(timeout), self.owners.values()))
        self.owners.clear()
        if self._members is not None:
            self._members.leave()

    def _discover(self) -> None:
        """Find out which nsqds, or which partitions of the topic, can be reached from here."""
        options = self._options
        found: list[str] = list(options.nsqd)
        for lookupd in options.lookupd:
            try:
                found += shards_of(
                    lookup_routes(lookupd, options.topic, "r", options.config).routes)
            except NSQError as exc:
                logger.warning("%s; trying again", exc)
                found += self._reachable  # lost nsqds are not known
        # An nsqd may have left nsqlookupd, or nsqlookupd may have been restarted, and there are
        # messages all the same.
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
    """The shards of a topic: its nsqds, or its partitions, whose nsqds may change. Pure."""
    partitions = {*range(routes.partition_num), *routes.partitions}
    return [*routes.plain, *map(partition_source, sorted(partitions))]
