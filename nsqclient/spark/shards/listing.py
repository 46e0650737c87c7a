"""Lists the logs of a topic and channel, and finds where reading begins and ends.

An offset is the number of the last segment that has been read. ``list_shards`` lists everything, so
it is for the start of a query, a replay and ``status``. A running query lists only new segments:
see ``log_reader``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import unquote

from nsqclient.protocol.names import is_valid_name
from nsqclient.spark.errors import DamagedSegmentError, ObjectNotFoundError
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.segment import SegmentIds, check_segment, read_ids
from nsqclient.spark.shards.names import (
    NoteKey, Segment, ShardKeys, parse_note, parse_number, parse_segment, parse_shard, registry,
)
from nsqclient.spark.storage import Store

#: Maximum number of concurrent requests.
_LISTINGS = 16


class ShardListing(NamedTuple):
    nsqd: str  #: address
    segments: Sequence[Segment]  #: the kept segments, in order
    committed: int  #: the last recorded commit of Spark

    @property
    def first(self) -> int:
        """The oldest kept segment; without segments, the next one that will be written."""
        return self.segments[0].number if self.segments else self.last + 1

    @property
    def last(self) -> int:
        return self.segments[-1].number if self.segments else self.committed

    def between(self, start: int, end: int) -> list[Segment]:
        return [one for one in self.segments if start < one.number <= end]


def list_shards(store: Store, topic: str, channel: str) -> list[ShardListing]:
    """List every shard of a topic and channel, in the order of their addresses."""
    found = store.list_objects(registry(topic, channel))
    with ThreadPoolExecutor(_LISTINGS, "nsq-storage") as pool:
        return list(pool.map(
            lambda one: _list(store, ShardKeys(topic, channel, parse_shard(one.key))), found))


def _list(store: Store, keys: ShardKeys) -> ShardListing:
    segments = list_segments(store, keys)
    # List floors after segments, so that a segment deleted in between is below a listed floor.
    floor = newest_number(store, keys.of("floors"))
    committed = newest_number(store, keys.of("commits"))
    return ShardListing(
        keys.nsqd, [one for one in segments if one.number > floor], committed)


def list_segments(store: Store, keys: ShardKeys, after: int = 0) -> list[Segment]:
    found = [parse_segment(*one) for one in store.list_objects(
        keys.of("segments"), keys.after_segment(after) if after else "")]
    return [one for one in found if one is not None]


def newest_number(store: Store, folder: str, after: str = "") -> int:
    """The highest number of the commits or floors in a folder; 0 if it is empty."""
    return max((parse_number(found.key) or 0 for found in store.list_objects(folder, after)),
               default=0)


def newest_note(store: Store, keys: ShardKeys) -> NoteKey:
    """The key of the newest note of a shard; ``NoteKey(0, 0)`` if it has no notes."""
    found = (parse_note(one.key) for one in store.list_objects(keys.of("notes")))
    return max((note for note in found if note is not None), default=NoteKey(0, 0))


def delete_older(store: Store, folder: str, number: int) -> None:
    store.delete(found.key for found in store.list_objects(folder)
                 if (parse_number(found.key) or number) < number)


def delete_committed(
    store: Store, keys: ShardKeys, committed: int, expired: int, most_bytes: int | None = None,
) -> tuple[int, int]:
    """Delete committed segments that a note covers and whose retention is over.

    Args:
        expired: the last segment whose retention is over.
        most_bytes: keep at most this many bytes of committed segments, the newest.

    Returns: the last deleted segment, and the bytes of all deleted segments.
    """
    clean_to = newest_note(store, keys).clean_to
    listed = list_segments(store, keys)
    if not listed:
        return 0, 0
    kept = 0  # bytes of committed segments, from the newest on
    for segment in reversed(listed):
        if segment.number <= committed and most_bytes is not None:
            kept += segment.size
            if kept > most_bytes:
                expired = max(expired, segment.number)
                break
    # A new writer needs the ids of segments after the note, and the number of the newest segment.
    floor = max(0, min(committed, expired, clean_to, listed[-1].number - 1))
    gone = [segment for segment in listed if segment.number <= floor]
    if gone:
        # The floor comes first, because a writer checks it after a create.
        store.create(keys.floor(floor), b"")
        store.delete(keys.segment(one.number, one.before) for one in gone)
        delete_older(store, keys.of("floors"), floor)
    return floor, sum(segment.size for segment in gone)


def read_segment(store: Store, keys: ShardKeys, segment: Segment) -> SegmentIds:
    key = keys.segment(segment.number, segment.before)
    return read_ids(check_segment(store.url, key, store.read(key)))


# -- pure: where reading begins and ends

class Found(NamedTuple):
    number: int  #: number of the segment
    lost: str  #: why it differs from the requested segment; empty if it does not


def find_start(shard: ShardListing, options: ReadOptions, default: str) -> Found:
    """Find the segment after which reading begins. ``default`` applies if no option says it."""
    if options.starting_timestamp is not None:
        return Found(_before_time(shard, options.starting_timestamp), "")
    first, last, offset = shard.first, shard.last, options.starting_offsets
    if not isinstance(offset, Mapping) or shard.nsqd not in offset:
        word = offset if isinstance(offset, str) else default
        return Found(
            {"committed": shard.committed, "earliest": first - 1, "latest": last}[word], "")
    number = offset[shard.nsqd]
    if number > last:
        return Found(last, f"ends at number {last}; reading should begin after {number}")
    if number < first - 1:
        missing = range(number + 1, first)
        return Found(first - 1, (
            f"has segments from {first} on; reading should begin after {number}, so"
            f" {ranges(missing)} {'is' if len(missing) == 1 else 'are'} not there (any more)"))
    return Found(number, "")


def find_end(shard: ShardListing, options: ReadOptions) -> Found:
    """Find the segment with which reading ends; 0 for a shard that an offset does not name."""
    if options.ending_timestamp is not None:
        return Found(_before_time(shard, options.ending_timestamp), "")
    if not isinstance(options.ending_offsets, Mapping):
        return Found(shard.last, "")
    number = options.ending_offsets.get(shard.nsqd, 0)
    if number > shard.last:
        return Found(
            shard.last, f"ends at number {shard.last}; reading was to end with {number}")
    return Found(number, "")


def _before_time(shard: ShardListing, seconds: float) -> int:
    later = (one.number - 1 for one in shard.segments if one.stored >= seconds)
    return next(later, shard.last)


def missing_numbers(have: Iterable[int], start: int, end: int) -> list[int]:
    return sorted(set(range(start + 1, end + 1)).difference(have))


def ranges(numbers: Iterable[int]) -> str:
    """Show sorted numbers as ranges: ``3..5, 9``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}..{b}" for a, b in parts)


# -- the state of shards: the last writer, and the uncommitted messages

class ShardStatus(NamedTuple):
    """The state of one shard. Times are seconds since 1970."""

    topic: str
    channel: str
    nsqd: str  #: address
    owner: str = ""  #: the process that wrote the newest segment; empty: unknown
    segment: int = 0  #: the newest one
    committed: int = 0  #: the last segment that Spark has committed
    lag_messages: int = 0  #: messages that Spark has not committed
    lag_bytes: int = 0  #: size of these messages
    oldest: float = 0.0  #: when the oldest of these messages was stored; 0: unknown
    written: float = 0.0  #: when the newest segment was stored; 0: never
    stored_bytes: int | None = None  #: size of all kept segments; None: unknown
    depth: int | None = None  #: messages waiting at nsqd; None: unknown
    in_flight: int | None = None  #: messages in flight at nsqd; None: unknown

    def lag_seconds(self, now: float) -> float:
        """How long ago the oldest uncommitted message was stored."""
        return max(0.0, now - self.oldest) if self.oldest else 0.0


def list_channels(store: Store, topic: str = "", channel: str = "") -> list[tuple[str, str]]:
    topics = [topic] if topic else filter(is_valid_name, store.list_folders(""))
    return [(one, name) for one in topics
            for name in map(unquote, store.list_folders(one)) if channel in ("", name)]


def read_status(store: Store, topic: str, channel: str) -> list[ShardStatus]:
    shards = list_shards(store, topic, channel)
    with ThreadPoolExecutor(_LISTINGS, "nsq-storage") as pool:
        return list(pool.map(lambda one: _status_of(store, topic, channel, one), shards))


def _status_of(store: Store, topic: str, channel: str, shard: ShardListing) -> ShardStatus:
    keys = ShardKeys(topic, channel, shard.nsqd)
    rows, owner = 0, ""
    newest = shard.segments[-1] if shard.segments else None
    if newest is not None:
        with contextlib.suppress(DamagedSegmentError, ObjectNotFoundError):
            rows, _, owner = read_segment(store, keys, newest)
    waiting = shard.between(shard.committed, shard.last)
    lag = 0
    if newest is not None and waiting:
        lag = newest.before + rows - waiting[0].before
    return ShardStatus(
        topic, channel, shard.nsqd, owner, shard.last, shard.committed, lag,
        sum(one.size for one in waiting), waiting[0].stored if waiting else 0.0,
        newest.stored if newest is not None else 0.0, sum(one.size for one in shard.segments))
