"""Replays, which read a range of a log again, and snapshots, the results of drains.

A replay writes nothing, so a query may use the log meanwhile. Segments are deleted when their
retention is over; a task whose segment is gone fails with a DataLossError.

Each drain writes a log of its own under the storage, a snapshot. Its messages are finished at nsqd,
so the snapshot is their only copy until it is released.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nsqclient.display import counted
from nsqclient.errors import ConfigError
from nsqclient.spark.errors import (
    DamagedSegmentError, DataLossError, LogMismatchError, ObjectNotFoundError, StorageError,
)
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.segment import warn_of_loss
from nsqclient.spark.shards import listing
from nsqclient.spark.shards.listing import (
    ShardListing, list_channels, list_shards, missing_numbers, ranges, read_segment,
)
from nsqclient.spark.shards.names import Segment, ShardKeys, channel_folder
from nsqclient.spark.shards.reader_claim import ReaderClaim
from nsqclient.spark.storage import Store, open_store

logger: logging.Logger = logging.getLogger("nsqclient.spark")


class ShardReplay(NamedTuple):
    nsqd: str
    start: int
    end: int
    segments: list[Segment]
    messages: int

    def __str__(self) -> str:
        text = "no segments"
        if self.segments:
            size = sum(one.size for one in self.segments)
            first, last = (
                datetime.datetime.fromtimestamp(one.stored, datetime.timezone.utc).isoformat(
                    timespec="seconds") for one in (self.segments[0], self.segments[-1]))
            text = (f"{counted(len(self.segments), 'segment')},"
                    f" {counted(self.messages, 'message')}, {counted(size, 'byte')},"
                    f" stored from {first} to {last}")
        return f"shard {self.nsqd}: offsets ({self.start}, {self.end}]: {text}"


class Replay(NamedTuple):
    topic: str
    channel: str
    shards: list[ShardReplay]

    def __str__(self) -> str:
        return "\n".join(map(str, self.shards)) or "no shards"

    @property
    def start(self) -> dict[str, int]:
        """The offset after which the replay begins."""
        return {shard.nsqd: shard.start for shard in self.shards}

    @property
    def end(self) -> dict[str, int]:
        """The offset with which the replay ends."""
        return {shard.nsqd: shard.end for shard in self.shards}

    @property
    def messages(self) -> int:
        return sum(shard.messages for shard in self.shards)

    @property
    def segments(self) -> list[tuple[str, int]]:
        """The keys and bytes of the segments of all shards."""
        return [
            (ShardKeys(self.topic, self.channel, shard.nsqd).segment(one.number, one.before),
             one.size) for shard in self.shards for one in shard.segments]


def select_stored(options: ReadOptions) -> Replay:
    """Find the segments that a replay reads. Needs no permission to write."""
    store = open_store(options.storage)
    shards = list_shards(store, options.topic, options.channel)
    if not shards:
        raise StorageError(
            store.url, f"has no log of {options.topic}/{options.channel}: no query and no owner"
            " (nsqclient spark ingest) has written there")
    _check_known(store, shards, options)
    return Replay(options.topic, options.channel, [
        _select_of_shard(store, shard, options) for shard in shards])


def _select_of_shard(store: Store, shard: ShardListing, options: ReadOptions) -> ShardReplay:
    start, lost = listing.find_start(shard, options, "earliest")
    end, too_far = listing.find_end(shard, options)
    end = max(start, end)
    chosen = shard.between(start, end)
    missing = missing_numbers([one.number for one in chosen], start, end)
    if not lost and not too_far and missing:
        lost = f"has no segments {ranges(missing)} any more"
    _report(store, options, shard.nsqd, lost or too_far)
    try:
        messages = _count(store, options.topic, options.channel, shard, chosen)
    except DamagedSegmentError:
        if options.fail_on_data_loss:
            raise  # otherwise the task skips the damaged segment, with a warning
        messages = _count(store, options.topic, options.channel, shard, chosen[:-1])
    return ShardReplay(shard.nsqd, start, end, chosen, messages)


def _count(
    store: Store, topic: str, channel: str, shard: ShardListing, chosen: Sequence[Segment]
) -> int:
    """Count the rows of segments. Only the newest must be read; the keys tell the others."""
    before = {one.number: one.before for one in shard.segments}
    messages = sum(before[one.number + 1] - one.before for one in chosen
                   if one.number + 1 in before)
    if chosen and chosen[-1].number == shard.last:
        messages += read_segment(store, ShardKeys(topic, channel, shard.nsqd), chosen[-1]).rows
    return messages


def count_messages(store: Store, topic: str, channel: str) -> int:
    return sum(_count(store, topic, channel, shard, shard.segments)
               for shard in list_shards(store, topic, channel))


def find_start(options: ReadOptions, store: Store) -> dict[str, int]:
    """Find the start of a query in each shard: the last segment that it does not read."""
    shards = list_shards(store, options.topic, options.channel)
    _check_known(store, shards, options)
    places: dict[str, int] = {}
    for shard in shards:
        places[shard.nsqd], lost = listing.find_start(shard, options, "committed")
        _report(store, options, shard.nsqd, lost)
    return places


def _check_known(store: Store, shards: list[ShardListing], options: ReadOptions) -> None:
    named = {nsqd for offset in (options.starting_offsets, options.ending_offsets)
             if isinstance(offset, Mapping) for nsqd in offset}
    for nsqd in sorted(named - {shard.nsqd for shard in shards}):
        _report(store, options, nsqd, "is not a shard of this topic and channel")


def _report(store: Store, options: ReadOptions, nsqd: str, lost: str) -> None:
    if not lost:
        return
    url = f"{store.url}/{channel_folder(options.topic, options.channel)}/{nsqd}"
    if options.fail_on_data_loss:
        raise DataLossError(url, f"{lost}. Give another place, or set failOnDataLoss=false to read"
                                 " what there is")
    warn_of_loss(url, lost)


#: The folder of snapshots. Names of topics have no percent sign.
_FOLDER = "%snapshots"
#: The object, in a snapshot, that names its topic and channel.
_CONTENT = "%content"
#: The folder, in a snapshot, that has an object when the drain is complete. The object is named
#: after the load() that has completed it.
_COMPLETE = "%complete"


class Snapshot(NamedTuple):
    """The result of one drain."""

    name: str
    rows: int
    is_complete: bool  #: False: the drain was interrupted; load it by its name to continue it


def url_of(storage: str, name: str) -> str:
    """The URL of the storage of one snapshot."""
    return f"{storage.rstrip('/')}/{_FOLDER}/{name}"


def snapshots(storage: str) -> list[Snapshot]:
    found = []
    for name in open_store(storage).list_folders(_FOLDER):
        store = open_store(url_of(storage, name))
        rows = sum(count_messages(store, *names) for names in list_channels(store))
        found.append(Snapshot(name, rows, bool(store.list_objects(_COMPLETE))))
    return found


def release(storage: str, name: str) -> None:
    if name not in [snapshot.name for snapshot in snapshots(storage)]:
        raise ConfigError(f"no snapshot {name!r} in {storage}")
    store = open_store(url_of(storage, name))
    claims = [ReaderClaim(store, *names) for names in list_channels(store)]
    for claim in claims:
        claim.take()
    for claim in claims:
        claim.release()
    whole = open_store(storage)
    folder = f"{_FOLDER}/{name}"
    # Mark it as incomplete first, so that an interrupted release can be repeated.
    whole.delete(one.key for one in whole.list_objects(f"{folder}/{_COMPLETE}"))
    whole.delete(one.key for one in whole.list_objects(folder))


def take_snapshot(options: ReadOptions, load: str) -> tuple[str, list[tuple[str, int]]]:
    """Drain a channel into a snapshot; return its storage and segments.

    Blocks: until all messages that nsqd had, or ``maxMessages`` of them, are stored.

    Args:
        load: the name of one ``load()``, and of its snapshot unless ``options`` have a name. All
            actions on a DataFrame share it: the first one drains, and the others read the snapshot.
    """
    name = options.snapshot or load
    url = url_of(options.storage, name)
    store = open_store(url)
    _check_content(store, options, name)
    ended = [found.key for found in store.list_objects(_COMPLETE)]
    if not ended:
        for other in snapshots(options.storage):
            logger.warning(
                "snapshot %s in %s holds %s and was not released (%s)", other.name,
                options.storage, counted(other.rows, "message"),
                "complete" if other.is_complete else "cut off",
            )
        content = json.dumps({"topic": options.topic, "channel": options.channel})
        store.create(_CONTENT, content.encode())
        _drain(dataclasses.replace(options, storage=url))
        store.create(f"{_COMPLETE}/{load}", b"")
    elif ended != [f"{_COMPLETE}/{load}"]:
        raise LogMismatchError(
            url, "another drain has completed this snapshot, so nothing more is drained into it:"
            f" read it with mode=replay and snapshot={name}, delete it with"
            " nsqclient.spark.release, or choose another name")
    return url, _segments(store, options)


def read_snapshot(options: ReadOptions) -> tuple[str, list[tuple[str, int]]]:
    """Find a complete snapshot; return its storage and segments."""
    url = url_of(options.storage, options.snapshot)
    store = open_store(url)
    _check_content(store, options, options.snapshot)
    if not store.list_objects(_COMPLETE):
        raise ConfigError(f"there is no complete snapshot {options.snapshot!r} in"
                          f" {options.storage}: mode=drain begins or continues one")
    return url, _segments(store, options)


def _check_content(store: Store, options: ReadOptions, name: str) -> None:
    try:
        found = json.loads(store.read(_CONTENT))
    except ObjectNotFoundError:
        return
    if (found["topic"], found["channel"]) != (options.topic, options.channel):
        raise LogMismatchError(
            store.url, f"snapshot {name} holds {found['topic']}/{found['channel']}, not"
            f" {options.topic}/{options.channel}: choose another name")


def _segments(store: Store, options: ReadOptions) -> list[tuple[str, int]]:
    if not list_shards(store, options.topic, options.channel):  # the topic is unknown
        return []
    return select_stored(dataclasses.replace(options, storage=store.url)).segments


def _drain(options: ReadOptions) -> None:
    # Slow to import, and executors do not need it.
    from nsqclient.spark.reading.receiver import Receiver

    # No limits: nothing is read, and so committed, before the drain is complete.
    options = dataclasses.replace(options, max_log_messages=sys.maxsize, max_log_bytes=sys.maxsize)
    store = open_store(options.storage)
    news = threading.Event()
    claim = ReaderClaim(store, options.topic, options.channel)
    receiver = Receiver(options, store, news.set, limit=options.max_messages or None)
    try:
        claim.take()
        receiver.prepare_drain()
        receiver.open()
        while not receiver.drain_is_over():
            receiver.check_space()
            news.wait(0.1)
            news.clear()
    finally:
        receiver.stop()
        claim.release()
