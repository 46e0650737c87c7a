"""``migrate``: a query with a spool goes on with shared storage, from the same checkpoint.

What Spark has not committed of the spool is copied into the logs of shards, and the last offsets of
the checkpoint are written anew. Every step gives the same result when it is done again, so a
migration that was killed is repeated from its beginning:

1. Take the lock of the spool: its query does not run.
2. Note on the storage that a migration has begun, and from where. From now on no owner begins.
3. Copy the segments, under keys and with bytes that follow from the spool alone.
4. Note which messages may come again from nsqd, and that there are these shards.
5. Replace the offsets of the checkpoint.
6. Note in the spool that it was read to its end, and on the storage that the migration is over.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from nsqclient.display import counted
from nsqclient.spark.checkpoint import Checkpoint
from nsqclient.spark.errors import CheckpointError, ObjectNotFoundError, StorageError
from nsqclient.spark.shards.admission import make_offset
from nsqclient.spark.shards.epochs import begin_epoch, find_epoch
from nsqclient.spark.shards.names import (
    MigrationKeys, NoteKey, ShardKeys, parse_shard, registry,
)
from nsqclient.spark.shards.recovery import End
from nsqclient.spark.shards.segments import (
    WRITER_LENGTH, encode_note, seal, segment_ids, writer_of,
)
from nsqclient.spark.spool.access import read_id
from nsqclient.spark.spool.folder import CommitNote, SpoolFolder
from nsqclient.spark.spool.offsets import COMMITTED
from nsqclient.spark.spool.segment import (
    encode_segment, load_segment, read_ids, read_messages,
)
from nsqclient.spark.spool.spool import Spool
from nsqclient.spark.storage.store import Store, probe

#: Segments that are stored at once.
_WRITERS = 8
#: Seconds for an earlier run of the query to end.
_PATIENCE = 15.0
#: The names of writers are made of the spool's id in this namespace.
_NAMESPACE = uuid.UUID("6f0e27a4-86b3-4a0f-9d0c-3c6c7b0f5d11")


class Migrated(NamedTuple):
    """What a migration has done."""

    topic: str
    channel: str
    messages: int  #: that were copied, and that the query will read
    shards: list[str]  #: nsqds

    def __str__(self) -> str:
        return (f"{counted(self.messages, 'message')} of {self.topic}/{self.channel} copied into"
                f" {counted(len(self.shards), 'shard')}")


def migrate(spool_dir: str, checkpoint: str, store: Store) -> Migrated:
    """Move a query from its spool to shared storage.

    The query must not run, and owners must not have begun. Start both when this has returned.

    Args:
        spool_dir: the spool of the query.
        checkpoint: path of its checkpoint.

    Raises:
        SpoolLockedError: the query runs.
        SpoolMismatchError: there is no such spool.
        CheckpointError: the checkpoint is not that of a query with one spool.
        DataLossError: the spool lacks what the checkpoint needs.
        StorageError: the storage cannot be used, or owners have written there.
    """
    probe(store)
    topic, channel = SpoolFolder(spool_dir).read_names()
    keys = MigrationKeys(topic, channel)
    offsets = Checkpoint(checkpoint)
    spool = Spool(spool_dir, topic, channel)
    begun = _read_begun(store, keys)
    if begun is None and offsets.is_replaced:
        raise CheckpointError(checkpoint, "is of a query with storage already, another one")
    position = offsets.position if begun is None else begun.position
    # The lock is held from here on, so the checkpoint does not change.
    spool.open(offsets.last, True, _PATIENCE, COMMITTED if position is None else position)
    try:
        before, offsets = offsets.position, Checkpoint(checkpoint)
        if offsets.position != before:
            raise CheckpointError(checkpoint, "the query has run meanwhile: end it, and repeat")
        found = _Begun(read_id(spool_dir), spool.committed)
        if begun is not None and begun != found:
            raise StorageError(
                store.url, f"has a migration of another spool into {topic}/{channel}: give another"
                " prefix or folder")
        if begun is None:
            _begin(store, keys, found)
        copy = _Copy(store, keys, spool, found)
        copy.run(offsets.numbers)
        offsets.replace({number: make_offset(copy.offset_at(number))
                         for number in offsets.numbers})
        spool.folder.write_committed(CommitNote(spool.last, spool.last))
        store.create(keys.done, b"")
        return Migrated(topic, channel, copy.messages, sorted(copy.ends))
    finally:
        spool.close()


class _Begun(NamedTuple):
    """The note that a migration has begun."""

    spool: str  #: its id
    position: int  #: segments behind this one are copied


def _read_begun(store: Store, keys: MigrationKeys) -> _Begun | None:
    try:
        found = json.loads(store.read(keys.begun))
    except ObjectNotFoundError:
        return None
    return _Begun(found["spool"], found["position"])


def _begin(store: Store, keys: MigrationKeys, begun: _Begun) -> None:
    """Note that a migration has begun, unless there are shards already.

    An owner registers its shard first, and then looks for this note: one of both sees the other.
    """
    _check_empty(store, keys)
    store.create(keys.begun, json.dumps(begun._asdict()).encode())
    try:
        _check_empty(store, keys)
    except StorageError:
        store.delete([keys.begun])
        raise


def _check_empty(store: Store, keys: MigrationKeys) -> None:
    found = store.list_objects(registry(keys.topic, keys.channel))
    if found:
        nsqds = ", ".join(parse_shard(one.key) for one in found)
        raise StorageError(
            store.url, f"has shards of {keys.topic}/{keys.channel} already ({nsqds}): migrate"
            " before owners (nsqclient spark ingest) are started, or give another prefix or folder")


class _Copy:
    """Copies what a spool has into the logs of shards, one for each nsqd."""

    def __init__(self, store: Store, keys: MigrationKeys, spool: Spool, begun: _Begun) -> None:
        self._store = store
        self._names = (keys.topic, keys.channel)
        self._spool = spool
        self._position = begun.position
        name = uuid.uuid5(_NAMESPACE, f"{begun.spool}/{begun.position}").hex
        self._writer = f"{name} (nsqclient spark migrate)"
        self._at: dict[int, dict[str, int]] = {}
        self.ends: dict[str, End] = {}  #: of the log of each nsqd
        self.messages = 0

    def offset_at(self, number: int) -> Mapping[str, int]:
        """What a number of the spool is in the logs of shards."""
        found = self._at.get(number, {})
        return {nsqd: found.get(nsqd, 0) for nsqd in self.ends}

    def run(self, numbers: set[int]) -> None:
        """Copy all; remember the offsets that these numbers of the spool become."""
        spool = self._spool
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(_WRITERS, "nsq-storage") as pool:
            for entry in spool.batch(self._position, spool.last):
                for key, data in self._split(spool.path_of(entry.number)):
                    pending.append(pool.submit(self._store_segment, key, data))
                    while len(pending) > _WRITERS:
                        pending.popleft().result()
                self.messages += entry.rows
                if entry.number in numbers:
                    self._at[entry.number] = {nsqd: end.number for nsqd, end in self.ends.items()}
            while pending:
                pending.popleft().result()
        doubtful = spool.unfinished()
        for nsqd in sorted({*self.ends, *doubtful}):
            keys = ShardKeys(*self._names, nsqd)
            if nsqd in doubtful:
                self._write_note(keys, doubtful[nsqd])
            if nsqd in self.ends:
                if not find_epoch(self._store, keys, self._writer).number:
                    begin_epoch(self._store, keys, self._writer)
                self._store.create(keys.shard, b"")

    def _split(self, path: str) -> Iterator[tuple[str, bytes]]:
        """Make the segments of shards of a segment of the spool: keys and bytes."""
        ids = read_ids(path)
        parts = dict(read_messages(path)) if len(ids) > 1 else {}
        for nsqd in sorted(ids):
            end = self.ends.get(nsqd, End())
            key = ShardKeys(*self._names, nsqd).segment(end.number + 1, end.rows)
            self.ends[nsqd] = end.next(len(ids[nsqd]))
            data = encode_segment(*self._names, [(nsqd, parts[nsqd])]) if parts else (
                load_segment(path))
            yield key, seal(data, self._writer)

    def _store_segment(self, key: str, data: bytes) -> None:
        if self._store.create(key, data):
            return
        # Another version of pyarrow may have written other bytes for the same rows.
        stored = self._store.read(key)
        segment_ids(self._store.url, key, stored)
        if writer_of(stored) != self._writer[:WRITER_LENGTH]:
            raise StorageError(
                self._store.url, f"{key} was written by an owner meanwhile. The spool and the"
                " checkpoint are as they were: end the owner, and give another prefix or folder")

    def _write_note(self, keys: ShardKeys, ids: list[bytes]) -> None:
        data = encode_note(self._writer, {keys.nsqd: ids})
        note = NoteKey(0, 1)
        while not self._store.create(keys.note(note), data):
            note = note._replace(serial=note.serial + 1)
