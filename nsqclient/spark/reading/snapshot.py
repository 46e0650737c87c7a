"""The results of drains: a log for each, under the storage.

The messages are finished at nsqd, so a snapshot is their only copy until you release it.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
from typing import NamedTuple

from nsqclient.display import counted
from nsqclient.errors import ConfigError
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.reading.receiver import Receiver
from nsqclient.spark.reading.replay import count_messages, select_stored
from nsqclient.spark.shards.listing import list_channels, list_shards
from nsqclient.spark.shards.reader_claim import ReaderClaim
from nsqclient.spark.storage import open_store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Where snapshots are. No topic has a name with a percent sign.
_FOLDER = "%snapshots"
#: The object that says that a snapshot has all that was there.
_COMPLETE = "%complete"


class Snapshot(NamedTuple):
    """What one drain took."""

    name: str
    rows: int
    is_complete: bool  #: False: the drain was cut off; load it again by its name to go on


def url_of(storage: str, name: str) -> str:
    """The storage of one snapshot, below that of all."""
    return f"{storage.rstrip('/')}/{_FOLDER}/{name}"


def snapshots(storage: str) -> list[Snapshot]:
    """List the snapshots of a storage that were not released, by name.

    Raises:
        StorageError: the storage cannot be used.
    """
    found = []
    for name in open_store(storage).list_folders(_FOLDER):
        store = open_store(url_of(storage, name))
        rows = sum(count_messages(store, *names) for names in list_channels(store))
        found.append(Snapshot(name, rows, bool(store.list_objects(_COMPLETE))))
    return found


def release(storage: str, name: str) -> None:
    """Delete a snapshot: DataFrames that were loaded from it cannot be computed any more.

    Raises:
        ConfigError: there is none of that name.
        LogInUseError: a drain is filling it.
        StorageError: the storage cannot be used.
    """
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
    # It is no longer complete first: a release that is cut off may be repeated.
    whole.delete(one.key for one in whole.list_objects(f"{folder}/{_COMPLETE}"))
    whole.delete(one.key for one in whole.list_objects(folder))


def take_snapshot(options: ReadOptions, name: str) -> tuple[str, list[tuple[str, int]]]:
    """Drain a channel into a snapshot, unless that was done; return its storage and segments.

    Blocks: until all that is there has come, or ``maxMessages``.

    Raises:
        StorageError: it cannot be used; what was not stored is still nsqd's.
        NSQError: no nsqd can be reached.
    """
    url = url_of(options.storage, name)
    store = open_store(url)
    if not store.list_objects(_COMPLETE):
        for other in snapshots(options.storage):
            logger.warning(
                "snapshot %s in %s holds %s and was not released (%s)", other.name,
                options.storage, counted(other.rows, "message"),
                "complete" if other.is_complete else "cut off",
            )
        _drain(dataclasses.replace(options, storage=url))
        store.create(f"{_COMPLETE}/{name}", b"")
    if not list_shards(store, options.topic, options.channel):  # an unknown topic
        return url, []
    return url, select_stored(dataclasses.replace(options, storage=url)).segments


def _drain(options: ReadOptions) -> None:
    # It is read when it is complete, so a full log would stay full for ever.
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
