"""The results of drains: a log for each, under the storage.

The messages are finished at nsqd, so a snapshot is their only copy until you release it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import threading
from typing import NamedTuple

from nsqclient.display import counted
from nsqclient.errors import ConfigError
from nsqclient.spark.errors import LogMismatchError, ObjectNotFoundError
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.reading.receiver import Receiver
from nsqclient.spark.reading.replay import count_messages, select_stored
from nsqclient.spark.shards.listing import list_channels, list_shards
from nsqclient.spark.shards.reader_claim import ReaderClaim
from nsqclient.spark.storage import open_store
from nsqclient.spark.storage.store import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Where snapshots are. No topic has a name with a percent sign.
_FOLDER = "%snapshots"
#: Under a snapshot: the object that names its topic and channel; and the folder whose object says
#: that the drain has ended, and names the load() that has ended it.
_CONTENT, _COMPLETE = "%content", "%complete"


class Snapshot(NamedTuple):
    """What one drain took."""

    name: str
    rows: int
    is_complete: bool  #: False: the drain was cut off; load it again by its name to go on


def url_of(storage: str, name: str) -> str:
    """The storage of one snapshot: a subfolder of the snapshots folder."""
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
        ConfigError: no snapshot has this name.
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
    # Mark it as incomplete first: a release that is cut off may be repeated.
    whole.delete(one.key for one in whole.list_objects(f"{folder}/{_COMPLETE}"))
    whole.delete(one.key for one in whole.list_objects(folder))


def take_snapshot(options: ReadOptions, load: str) -> tuple[str, list[tuple[str, int]]]:
    """Drain a channel into a snapshot; return its storage and segments.

    Blocks: until all messages that were there are stored, or ``maxMessages``.

    Args:
        load: the name of one ``load()``, and of its snapshot unless ``options`` name one. Actions
            on a DataFrame share a load, so the later ones read what the first has drained.

    Raises:
        LogMismatchError: the snapshot holds another topic or channel, or another load has
            completed it.
        StorageError: it cannot be used; messages that are not stored stay at nsqd.
        NSQError: no nsqd can be reached.
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
    """Find a complete snapshot again; return its storage and segments.

    Raises:
        ConfigError: no complete snapshot has this name.
        LogMismatchError: it holds another topic or channel.
    """
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
    if not list_shards(store, options.topic, options.channel):  # of an unknown topic
        return []
    return select_stored(dataclasses.replace(options, storage=store.url)).segments


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
