"""The state of shards, as the storage shows it: which process writes, and what waits for Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import unquote

from nsqclient.protocol.names import is_valid_name
from nsqclient.spark.errors import DamagedSegmentError, ObjectNotFoundError
from nsqclient.spark.segment import check_segment, read_ids
from nsqclient.spark.shards.listing import ShardListing, list_shards
from nsqclient.spark.shards.names import Segment, ShardKeys
from nsqclient.spark.storage.store import Store

#: Shards of which the newest segment is read at once.
_READERS = 8


class ShardStatus(NamedTuple):
    """The state of one shard. Times are seconds since 1970."""

    topic: str
    channel: str
    nsqd: str  #: address
    owner: str = ""  #: the process that wrote last; empty: not known
    segment: int = 0  #: the newest one
    committed: int = 0  #: the last segment that Spark has committed
    lag_messages: int = 0  #: that Spark has not committed
    lag_bytes: int = 0  #: of these
    oldest: float = 0.0  #: when the oldest of these was stored; 0: there is none
    written: float = 0.0  #: when the newest segment was stored; 0: there is none
    stored_bytes: int | None = None  #: of all segments that are kept; None: not known
    depth: int | None = None  #: messages that wait at nsqd; None: not known
    in_flight: int | None = None  #: messages that nsqd has sent, and waits for FIN of

    def lag_seconds(self, now: float) -> float:
        """The age of the oldest message that Spark has not committed, since it was stored."""
        return max(0.0, now - self.oldest) if self.oldest else 0.0


def list_channels(store: Store, topic: str = "", channel: str = "") -> list[tuple[str, str]]:
    """List the topics with their channels that a storage has logs of.

    Args:
        topic, channel: list these only; empty: all.
    """
    topics = [topic] if topic else filter(is_valid_name, store.list_folders(""))
    return [(one, name) for one in topics
            for name in map(unquote, store.list_folders(one)) if channel in ("", name)]


def read_status(store: Store, topic: str, channel: str) -> list[ShardStatus]:
    """Find the state of every shard of a channel. Its newest segment is read, of each."""
    shards = list_shards(store, topic, channel)
    with ThreadPoolExecutor(_READERS, "nsq-storage") as pool:
        return list(pool.map(lambda one: _status_of(store, topic, channel, one), shards))


def _status_of(store: Store, topic: str, channel: str, shard: ShardListing) -> ShardStatus:
    keys = ShardKeys(topic, channel, shard.nsqd)
    rows, owner = 0, ""
    newest = shard.segments[-1] if shard.segments else None
    if newest is not None:
        rows, owner = _read(store, keys, newest)
    waiting = shard.between(shard.committed, shard.last)
    lag = 0
    if newest is not None and waiting:
        lag = newest.before + rows - waiting[0].before
    return ShardStatus(
        topic, channel, shard.nsqd, owner, shard.last, shard.committed, lag,
        sum(one.size for one in waiting), waiting[0].stored if waiting else 0.0,
        newest.stored if newest is not None else 0.0, sum(one.size for one in shard.segments))


def _read(store: Store, keys: ShardKeys, segment: Segment) -> tuple[int, str]:
    """Read the rows of a segment, and its owner; 0 and empty: it cannot be read."""
    key = keys.segment(segment.number, segment.before)
    try:
        content = read_ids(check_segment(store.url, key, store.read(key)))
    except (DamagedSegmentError, ObjectNotFoundError):
        return 0, ""
    return content.rows, content.owner
