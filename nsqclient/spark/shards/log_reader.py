"""``ShardedLog``: the logs of all shards of a topic and channel, for Spark's driver.

The driver plans batches from listings of new segments, and reads no rows. The only thread,
``nsq-retention``, records Spark's commits and deletes segments.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from nsqclient.errors import NSQError
from nsqclient.spark.errors import DataLossError, ObjectNotFoundError, StorageError
from nsqclient.spark.segment import warn_of_loss
from nsqclient.spark.shards.admission import ShardSegments, make_offset, read_offset
from nsqclient.spark.shards.listing import (
    delete_committed, delete_older, list_segments, missing_numbers, newest_number, ranges,
)
from nsqclient.spark.shards.names import (
    Segment, ShardKeys, channel_folder, parse_shard, registry, start_key, starts,
)
from nsqclient.spark.storage import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Maximum number of concurrent listings.
_LISTINGS = 16
#: Seconds between two records of Spark's commits.
_COMMIT_INTERVAL = 1.0
#: Records of commits between two deletions of segments.
_COMMITS_PER_DELETION = 10

#: Commits within this fraction of the retention expire together, to limit their number.
_PART = 1000


class Retention:
    """The times of commits, until they expire. Not thread-safe.

    Committed segments are kept for a while, because Spark's sink and checkpoint may lack rows after
    a power failure. Their time begins with the commit, and again when a query starts, because the
    machine may have been off.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._commits: deque[tuple[int, float]] = deque()  # (last segment, time)
        self._expired = 0

    def committed(self, number: int, now: float) -> None:
        commits = self._commits
        if len(commits) > 1 and now - commits[-2][1] < self._seconds / _PART:
            commits.pop()
        commits.append((number, now))

    def expired(self, now: float) -> int:
        while self._commits and now - self._commits[0][1] >= self._seconds:
            self._expired = self._commits.popleft()[0]
        return self._expired


class ShardedLog:
    """The logs of the shards of one topic and channel. Threads: one; ``stop`` any."""

    def __init__(
        self, store: Store, topic: str, channel: str, retention_seconds: float = 600.0,
        retention_bytes: int = 256 * 1024 * 1024, fail_on_data_loss: bool = True,
    ) -> None:
        self._store = store
        self._names = (topic, channel)
        self._retention_seconds = retention_seconds
        self._retention_bytes = retention_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self.shards: dict[str, ShardSegments] = {}  #: nsqd -> its shard in the offset
        self._lock = threading.Lock()
        self._committed: dict[str, int] = {}  # guarded by _lock
        # Used by the thread, and after its end by stop.
        self._noted: dict[str, int] = {}
        self._retentions: dict[str, Retention] = {}
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(_LISTINGS, "nsq-storage")
        self._thread = threading.Thread(target=self._keep, name="nsq-retention", daemon=True)

    def __str__(self) -> str:
        return f"log {self._store.url}/{channel_folder(*self._names)}"

    def open(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Record the last commit, and end the thread. Idempotent."""
        if self._end.is_set():
            return
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()
            try:
                self._note_commits()
            except NSQError as exc:
                logger.warning("%s", exc)
        self._pool.shutdown()

    # -- planning

    def registered(self) -> list[str]:
        listed = self._store.list_objects(registry(*self._names))
        return [parse_shard(found.key) for found in listed]

    def places(self, nsqds: Iterable[str]) -> dict[str, int]:
        """The last recorded commit of each shard, where reading begins without an offset."""
        nsqds = list(nsqds)
        found = self._pool.map(
            lambda nsqd: newest_number(self._store, self._keys(nsqd).of("commits")), nsqds)
        return dict(zip(nsqds, found))

    def check(self, position: Mapping[str, int]) -> list[str]:
        """Check that each log reaches Spark's checkpoint; return the shards whose log does not.

        The newest segment is never deleted. So a log that ends before the checkpoint was lost, or
        has been replaced.
        """
        reached = self._pool.map(
            lambda one: one[1] == 0 or bool(self._list(one[0], one[1] - 1)), position.items())
        lost = [nsqd for nsqd, is_there in zip(position, reached) if not is_there]
        for nsqd in lost:
            self._report(nsqd, f"ends before segment {position[nsqd]}, where the checkpoint is: it"
                               " was lost, or it is another query's. What was acknowledged to nsqd"
                               " and not processed is lost", "Restore the folder")
        noted = self.places(position)
        back = [nsqd for nsqd, number in position.items() if number < noted[nsqd]]
        if back:
            logger.warning(
                "%s: Spark's checkpoint is at %s, and was at %s before: the last batches are read"
                " again, and rows may be missing in the sink", self,
                {nsqd: position[nsqd] for nsqd in back}, {nsqd: noted[nsqd] for nsqd in back})
        return lost

    def begun(self, start: str) -> dict[str, int] | None:
        """The stored start of a query without a committed batch; None if none is stored."""
        try:
            found = self._store.read(start_key(*self._names, start))
        except ObjectNotFoundError:
            return None
        return read_offset(*self._names, json.loads(found))

    def begin(self, start: str, places: Mapping[str, int]) -> None:
        """Store the start of a query, because Spark's log may have only its first batch's end."""
        self._store.create(
            start_key(*self._names, start),
            json.dumps(make_offset(*self._names, places)).encode())

    def forget_begun(self) -> None:
        self._store.delete(
            found.key for found in self._store.list_objects(starts(*self._names)))

    def refresh(self, start: Mapping[str, int]) -> None:
        """List the new segments after an offset, and forget the segments before it."""
        for nsqd in [nsqd for nsqd in self.shards if nsqd not in start]:
            del self.shards[nsqd]
        for nsqd, number in start.items():
            if nsqd not in self.shards or number < self.shards[nsqd].first - 1:
                self.shards[nsqd] = ShardSegments(number)
        lasts = [(nsqd, self.shards[nsqd].last) for nsqd in start]
        listings = self._pool.map(lambda one: self._list(*one), lasts)
        for (nsqd, _), listed in zip(lasts, listings):
            shard = self.shards[nsqd]
            for segment in listed:
                self._add(nsqd, shard, segment)
            shard.forget(start[nsqd])

    def segments(self, nsqd: str, start: int, end: int) -> list[tuple[str, int]]:
        shard = self.shards.get(nsqd)
        if shard is None or start < shard.first - 1 or end > shard.last:
            shard = ShardSegments(start)  # a batch of an earlier run
            for segment in self._list(nsqd, start):
                if segment.number > end:
                    break
                self._add(nsqd, shard, segment)
        keys = self._keys(nsqd)
        found = shard.between(start, end)
        gone = missing_numbers([one.number for one in found], start, end)
        if gone:
            self._report_loss(nsqd, ranges(gone))
        return [(keys.segment(one.number, one.before), one.size) for one in found]

    def _add(self, nsqd: str, shard: ShardSegments, segment: Segment) -> None:
        if segment.number > shard.last + 1:
            self._report_loss(nsqd, ranges(range(shard.last + 1, segment.number)))
        shard.add(segment)

    def _list(self, nsqd: str, number: int) -> list[Segment]:
        return list_segments(self._store, self._keys(nsqd), number)

    def _report_loss(self, nsqd: str, numbers: str) -> None:
        self._report(nsqd, f"lacks segments {numbers}: the messages in them were acknowledged to"
                           " nsqd and are lost", "Restore them")

    def _report(self, nsqd: str, text: str, remedy: str) -> None:
        url = f"{self._store.url}/{self._keys(nsqd).folder}"
        if self._fail_on_data_loss:
            raise DataLossError(url, f"{text}. {remedy}, or set failOnDataLoss=false")
        warn_of_loss(url, text)

    def _keys(self, nsqd: str) -> ShardKeys:
        return ShardKeys(*self._names, nsqd)

    # -- commits

    def mark_committed(self, offset: Mapping[str, int]) -> None:
        with self._lock:
            # Commits of shards that have left the offset are recorded too.
            self._committed.update(offset)

    def is_noted(self, nsqd: str, number: int) -> bool:
        """True if the commit of a shard up to ``number`` is recorded in the storage.

        Until then the shard stays in the offset: if its nsqd returns, reading begins at the record.
        """
        return number <= self._noted.get(nsqd, 0)

    def _keep(self) -> None:
        rounds = 0
        while not self._end.wait(_COMMIT_INTERVAL):
            rounds += 1
            try:
                self._note_commits()
                if rounds % _COMMITS_PER_DELETION == 0:
                    self.delete_expired(time.monotonic())
            except StorageError as exc:
                logger.warning("%s; trying again", exc)
            except Exception:
                logger.exception("recording commits failed; the query continues")

    def _note_commits(self) -> None:
        with self._lock:
            committed = dict(self._committed)
        now = time.monotonic()
        for nsqd, number in committed.items():
            if nsqd not in self._retentions:
                # The retention of earlier commits begins now.
                self._retentions[nsqd] = Retention(self._retention_seconds)
                self._retentions[nsqd].committed(number, now)
            if number and number > self._noted.get(nsqd, 0):
                keys = self._keys(nsqd)
                self._store.create(keys.commit(number), b"")
                self._noted[nsqd] = number
                self._retentions[nsqd].committed(number, now)
                delete_older(self._store, keys.of("commits"), number)

    def delete_expired(self, now: float) -> None:
        for nsqd, number in list(self._noted.items()):
            delete_committed(self._store, self._keys(nsqd), number,
                             self._retentions[nsqd].expired(now), self._retention_bytes)
