"""A range of the log, to be read again: also while a query uses it.

Nothing is written: segments are never changed. They may be deleted at any moment, when their
retention is over; a task that finds one gone fails with a DataLossError.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nsqclient.display import counted
from nsqclient.spark.errors import DamagedSegmentError, DataLossError, StorageError
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.segment import warn_of_loss
from nsqclient.spark.shards import listing
from nsqclient.spark.shards.listing import (
    ShardListing, list_shards, missing_numbers, ranges, read_segment,
)
from nsqclient.spark.shards.names import Segment, ShardKeys, channel_folder
from nsqclient.spark.storage import open_store
from nsqclient.spark.storage.store import Store


class ShardReplay(NamedTuple):
    """The segments to read of one shard: those in ``(start, end]``."""

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
    """The segments to read of all shards."""

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
    def segments(self) -> list[tuple[str, int]]:
        """The keys and bytes of the segments of all shards."""
        return [
            (ShardKeys(self.topic, self.channel, shard.nsqd).segment(one.number, one.before),
             one.size) for shard in self.shards for one in shard.segments]


def select_stored(options: ReadOptions) -> Replay:
    """Find the segments that a replay reads. To read is all that it may need.

    Raises:
        StorageError: the storage cannot be used, or it has not stored this channel.
        DataLossError: the shard does not exist, or segments of the range are deleted.
    """
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
            raise  # otherwise its task skips it, with a warning
        messages = _count(store, options.topic, options.channel, shard, chosen[:-1])
    return ShardReplay(shard.nsqd, start, end, chosen, messages)


def _count(
    store: Store, topic: str, channel: str, shard: ShardListing, chosen: Sequence[Segment]
) -> int:
    """Count the rows of segments: they are known by the next one, save for the newest."""
    before = {one.number: one.before for one in shard.segments}
    messages = sum(before[one.number + 1] - one.before for one in chosen
                   if one.number + 1 in before)
    if chosen and chosen[-1].number == shard.last:
        messages += read_segment(store, ShardKeys(topic, channel, shard.nsqd), chosen[-1]).rows
    return messages


def count_messages(store: Store, topic: str, channel: str) -> int:
    """Count the messages that the log of a topic and channel has."""
    return sum(_count(store, topic, channel, shard, shard.segments)
               for shard in list_shards(store, topic, channel))


def find_start(options: ReadOptions, store: Store) -> dict[str, int]:
    """Find the start of a query: the last segment of each shard before it."""
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
        _report(store, options, nsqd, "is no shard of this topic and channel")


def _report(store: Store, options: ReadOptions, nsqd: str, lost: str) -> None:
    """Raise, or log, why a range differs from the requested one."""
    if not lost:
        return
    url = f"{store.url}/{channel_folder(options.topic, options.channel)}/{nsqd}"
    if options.fail_on_data_loss:
        raise DataLossError(url, f"{lost}. Give another place, or set failOnDataLoss=false to read"
                                 " what there is")
    warn_of_loss(url, lost)
