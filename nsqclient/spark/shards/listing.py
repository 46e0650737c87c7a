"""``list_shards``: all that the logs of a topic and channel have, as the storage lists it.

And, pure, where in them reading begins and ends. For what is done now and then: a query that
begins, a replay, the state of shards. A query that runs lists what is new only, see ``log_reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.names import (
    ShardKeys, parse_number, parse_segment, parse_shard, registry,
)
from nsqclient.spark.shards.offsets import (
    Bound, Found, end_of, find_end, find_start, missing_numbers, ranges, start_of,
)
from nsqclient.spark.storage.store import Store, StoredObject

#: Listings at once.
_LISTINGS = 16


class ListedSegment(NamedTuple):
    """A segment as a listing has it."""

    number: int
    before: int  #: rows in all segments before it
    size: int  #: bytes of the object
    stored: float  #: seconds since 1970, by the clock of the storage


class ShardListing(NamedTuple):
    """The log of one shard."""

    nsqd: str  #: address
    segments: Sequence[ListedSegment]  #: those that are kept, in order
    committed: int  #: the last segment that Spark has committed, as far as it is noted

    @property
    def first(self) -> int:
        """The oldest segment that is kept; the next one when there is none."""
        return self.segments[0].number if self.segments else self.last + 1

    @property
    def last(self) -> int:
        """The newest segment."""
        return self.segments[-1].number if self.segments else self.committed

    def between(self, start: int, end: int) -> list[ListedSegment]:
        """The segments in ``(start, end]`` that are kept."""
        return [one for one in self.segments if start < one.number <= end]


def list_shards(store: Store, topic: str, channel: str) -> list[ShardListing]:
    """List every shard of a topic and channel, in the order of their addresses."""
    found = store.list_objects(registry(topic, channel))
    with ThreadPoolExecutor(_LISTINGS, "nsq-storage") as pool:
        return list(pool.map(
            lambda one: _list(store, ShardKeys(topic, channel, parse_shard(one.key))), found))


def _list(store: Store, keys: ShardKeys) -> ShardListing:
    segments = list(_parsed(store.list_objects(keys.of("segments"))))
    # After the segments: what is deleted meanwhile is under a floor that is seen.
    floor = newest_number(store, keys.of("floors"))
    committed = newest_number(store, keys.of("commits"))
    return ShardListing(
        keys.nsqd, [one for one in segments if one.number > floor], committed)


def _parsed(listed: Sequence[StoredObject]) -> list[ListedSegment]:
    return [ListedSegment(*key, found.size, found.stored)
            for key, found in ((parse_segment(found.key), found) for found in listed)
            if key is not None]


def newest_number(store: Store, folder: str, after: str = "") -> int:
    """The highest number of the commits or floors in a folder; 0: there is none."""
    return max((parse_number(found.key) or 0 for found in store.list_objects(folder, after)),
               default=0)


# -- where reading begins and ends

class ShardRange(NamedTuple):
    """What is read of a shard: the segments in ``(start, end]``."""

    start: int
    end: int
    lost: str  #: why it is not what was asked for; empty: it is


def find_place(shard: ShardListing, options: ReadOptions, default: Bound) -> Found:
    """Find the segment of a shard after which reading begins. Pure."""
    return find_start(
        start_of(options, default, shard.nsqd), [one.number for one in shard.segments],
        shard.last, shard.committed, _stored_at(shard))


def find_range(shard: ShardListing, options: ReadOptions, default: Bound) -> ShardRange:
    """Find what a replay reads of a shard. Pure."""
    start, lost = find_place(shard, options, default)
    numbers = [one.number for one in shard.segments]
    end, too_far = find_end(end_of(options, shard.nsqd), numbers, shard.last, _stored_at(shard))
    missing = missing_numbers([one.number for one in shard.between(start, end)], start, end)
    if not lost and not too_far and missing:
        lost = f"has no segments {ranges(missing)} any more"
    return ShardRange(start, max(start, end), lost or too_far)


def unknown_shards(shards: Sequence[ShardListing], options: ReadOptions) -> list[str]:
    """The nsqds in the offsets of the options of which there is no shard. Pure."""
    known = {shard.nsqd for shard in shards}
    named: set[str] = set()
    for offset in (options.starting_offsets, options.ending_offsets):
        if not isinstance(offset, (str, int)) and offset is not None:
            named |= offset.keys()
    return sorted(named - known)


def _stored_at(shard: ShardListing) -> Callable[[int], float]:
    times = {one.number: one.stored for one in shard.segments}
    return times.__getitem__
