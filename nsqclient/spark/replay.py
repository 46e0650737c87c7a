"""A range of a spool, or of the logs of shards, to be read again: also while a query uses it.

Nothing is written, and the lock is not taken: segments are never changed. They may be deleted at
any moment, when their retention is over; a task that finds one gone fails with a DataLossError.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from nsqclient.display import counted
from nsqclient.spark.errors import (
    DamagedSegmentError, DataLossError, SpoolMismatchError, StorageError,
)
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.listing import (
    ListedSegment, ShardListing, find_place, find_range, list_shards, unknown_shards,
)
from nsqclient.spark.shards.log_reader import PlannedSegment
from nsqclient.spark.shards.names import ShardKeys, channel_folder
from nsqclient.spark.shards.segments import segment_ids
from nsqclient.spark.spool.folder import SpoolFolder
from nsqclient.spark.spool import offsets
from nsqclient.spark.spool.offsets import COMMITTED, EARLIEST, end_of, find_end, start_of
from nsqclient.spark.spool.segment_index import Entry
from nsqclient.spark.spool.selection import (
    classify_segments, missing_numbers, next_number, ranges,
)
from nsqclient.spark.spool.segment import warn_of_loss
from nsqclient.spark.storage.store import Store, open_store


class Replay(NamedTuple):
    """What is read: the segments in ``(start, end]``, with their paths."""

    start: int
    end: int
    segments: list[tuple[Entry, str]]
    stored: tuple[float, float]  #: when the first and the last were, in seconds since 1970, or 0

    def __str__(self) -> str:
        if not self.segments:
            return f"offsets ({self.start}, {self.end}]: no segments"
        size = sum(entry.size for entry, _ in self.segments)
        return (f"offsets ({self.start}, {self.end}]:"
                f" {_described(len(self.segments), self.messages, size, self.stored)}")

    @property
    def messages(self) -> int:
        """How many messages the segments have."""
        return sum(entry.rows for entry, _ in self.segments)


class ShardReplay(NamedTuple):
    """What is read of one shard: the segments in ``(start, end]``."""

    nsqd: str
    start: int
    end: int
    segments: list[ListedSegment]
    messages: int

    def __str__(self) -> str:
        text = "no segments"
        if self.segments:
            stored = self.segments[0].stored, self.segments[-1].stored
            text = _described(len(self.segments), self.messages,
                              sum(one.size for one in self.segments), stored)
        return f"shard {self.nsqd}: offsets ({self.start}, {self.end}]: {text}"


class StorageReplay(NamedTuple):
    """What is read of shared storage."""

    topic: str
    channel: str
    shards: list[ShardReplay]

    def __str__(self) -> str:
        return "\n".join(map(str, self.shards)) or "no shards"

    @property
    def start(self) -> dict[str, int]:
        """The last segment of each shard that is not read."""
        return {shard.nsqd: shard.start for shard in self.shards}

    @property
    def end(self) -> dict[str, int]:
        """The last segment of each shard that is read."""
        return {shard.nsqd: shard.end for shard in self.shards}

    @property
    def messages(self) -> int:
        """How many messages the segments have."""
        return sum(shard.messages for shard in self.shards)

    @property
    def segments(self) -> list[PlannedSegment]:
        """The segments of all shards, with their keys."""
        return [
            PlannedSegment(shard.nsqd, ShardKeys(self.topic, self.channel, shard.nsqd).segment(
                one.number, one.before), one.size)
            for shard in self.shards for one in shard.segments]


def _described(segments: int, messages: int, size: int, stored: tuple[float, float]) -> str:
    first, last = (
        datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat(
            timespec="seconds") for seconds in stored)
    return (f"{counted(segments, 'segment')}, {counted(messages, 'message')},"
            f" {counted(size, 'byte')}, stored from {first} to {last}")


def select_segments(options: ReadOptions) -> Replay:
    """Find the segments that a replay reads.

    Raises:
        SpoolMismatchError: there is no spool, or it is of another topic or channel.
        DataLossError: segments of the range are not kept any more.
    """
    folder = SpoolFolder(options.spool_dir)
    names = folder.read_names()
    if names != (options.topic or names[0], options.channel or names[1]):
        raise SpoolMismatchError(
            folder.path, f"belongs to topic {names[0]!r}, channel {names[1]!r}: leave out topic and"
            " channel")
    note = folder.read_committed()
    sizes = dict(folder.segments())
    epochs = folder.epochs()
    valid = {name.number: name for name in classify_segments(sizes, epochs).valid}
    last = next_number(sizes, epochs, max(note.number, note.clean_to)) - 1

    def stored_at(number: int) -> float:
        return folder.stored_at(valid[number])

    numbers = list(valid)
    start, lost = offsets.find_start(
        start_of(options, EARLIEST), numbers, last, note.number, stored_at)
    end, too_far = find_end(end_of(options), numbers, last, stored_at)
    chosen = [number for number in numbers if start < number <= end]
    missing = missing_numbers(chosen, start, end)
    if not lost and not too_far and missing:
        lost = f"has no segments {ranges(missing)} any more"
    for text in filter(None, (lost, too_far)):
        if options.fail_on_data_loss:
            raise DataLossError(folder.path, f"{text}. Give another range, or set"
                                             " failOnDataLoss=false to read what there is of it")
        warn_of_loss(folder.path, text)
    segments = [(Entry(number, valid[number].rows, sizes[valid[number]]),
                 folder.segment_path(valid[number])) for number in chosen]
    stored = (stored_at(chosen[0]), stored_at(chosen[-1])) if chosen else (0.0, 0.0)
    return Replay(start, max(start, end), segments, stored)


def select_stored(options: ReadOptions) -> StorageReplay:
    """Find the segments of shared storage that a replay reads. To read is all that it may need.

    Raises:
        StorageError: the storage cannot be used, or has no shards of the channel.
        DataLossError: there is no such shard, or segments of the range are not kept any more.
    """
    store = open_store(options.storage)
    try:
        shards = list_shards(store, options.topic, options.channel)
        if not shards:
            raise StorageError(
                store.url, f"has no shards of {options.topic}/{options.channel}: no owner"
                " (nsqclient spark ingest) has written there")
        _check_known(store, shards, options)
        return StorageReplay(options.topic, options.channel, [
            _select_of_shard(store, shard, options) for shard in shards])
    finally:
        store.close()


def _select_of_shard(store: Store, shard: ShardListing, options: ReadOptions) -> ShardReplay:
    start, end, lost = find_range(shard, options, EARLIEST)
    _report(store, options, shard.nsqd, lost)
    chosen = shard.between(start, end)
    # The rows of a segment are known by the next one, save for the newest.
    before = {one.number: one.before for one in shard.segments}
    messages = sum(before[one.number + 1] - one.before for one in chosen
                   if one.number + 1 in before)
    if chosen and chosen[-1].number == shard.last:
        keys = ShardKeys(options.topic, options.channel, shard.nsqd)
        key = keys.segment(chosen[-1].number, chosen[-1].before)
        try:
            messages += segment_ids(store.url, key, store.read(key)).rows
        except DamagedSegmentError:
            if options.fail_on_data_loss:
                raise  # otherwise its task skips it, with a warning
    return ShardReplay(shard.nsqd, start, end, chosen, messages)


def find_start(options: ReadOptions, store: Store) -> dict[str, int]:
    """Find where a query of shared storage begins: the last segment of each shard before that.

    Raises:
        StorageError: the storage cannot be used.
        DataLossError: there is no such shard, or segments from there on are not kept any more.
    """
    shards = list_shards(store, options.topic, options.channel)
    _check_known(store, shards, options)
    places: dict[str, int] = {}
    for shard in shards:
        places[shard.nsqd], lost = find_place(shard, options, COMMITTED)
        _report(store, options, shard.nsqd, lost)
    return places


def _check_known(store: Store, shards: list[ShardListing], options: ReadOptions) -> None:
    for nsqd in unknown_shards(shards, options):
        _report(store, options, nsqd, "is no shard of this topic and channel")


def _report(store: Store, options: ReadOptions, nsqd: str, lost: str) -> None:
    """Raise, or log, why a range is not what was asked for."""
    if not lost:
        return
    url = f"{store.url}/{channel_folder(options.topic, options.channel)}/{nsqd}"
    if options.fail_on_data_loss:
        raise DataLossError(url, f"{lost}. Give another place, or set failOnDataLoss=false to read"
                                 " what there is")
    warn_of_loss(url, lost)
