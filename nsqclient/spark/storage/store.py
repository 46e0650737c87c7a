"""``Store``: the interface of a storage, and the probe.

Everything that decides between two writers is one operation, ``create``: it stores an object
unless there is one of that key. No object is ever changed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from nsqclient.spark.errors import ObjectNotFoundError, StorageError, StorageUnsuitableError

#: The folder of the probe. Names of topics have no percent sign.
_PROBES = "%probe"


class StoredObject(NamedTuple):
    key: str  #: below the URL of the storage
    size: int  #: bytes
    stored: float = 0.0  #: when it was created, in seconds since 1970, by the clock of the storage


class Store(Protocol):
    """A storage. Threads: every method, any thread. Every method may block for the storage.

    Raises, all methods: StorageError when the storage cannot be used or does not answer.
    """

    @property
    def url(self) -> str:
        ...

    def create(self, key: str, data: Any) -> bool:
        """Store an object, unless there is one of that key; it is durable when this returns.

        Returns: whether the object is ours: this call has stored it, or it has exactly these
        bytes, as after a call whose answer was lost. So the bytes must name their writer.
        """
        ...

    def read(self, key: str) -> bytes:
        """Read an object. Raises ObjectNotFoundError."""
        ...

    def list_objects(self, folder: str, after: str = "") -> list[StoredObject]:
        """List the objects under ``folder/``, or of the whole storage if it is empty, by key.

        Args:
            after: only keys greater than this text. Most storages do not even look at others.
        """
        ...

    def list_folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder, or with an empty name in the storage."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, in any order. Missing ones are ignored."""
        ...

    def missing_space(self, size: int) -> int:
        """How many bytes are missing to store ``size``; 0: none, or unknown.

        Some space is kept back for small objects, without which others cannot be deleted.
        """
        ...


def probe(store: Store) -> None:
    """Check that a storage creates an object only once, reads it, and lists it after a key.

    Raises StorageUnsuitableError if it does not, StorageError if it cannot be used.
    """
    folder = f"{_PROBES}/{uuid.uuid4().hex}"
    keys = [f"{folder}/1", f"{folder}/3"]
    try:
        if not all([store.create(key, b"first") for key in keys]):
            raise StorageUnsuitableError(store.url, "a new object is said to be there already")
        if store.create(keys[0], b"second") or store.read(keys[0]) != b"first":
            raise StorageUnsuitableError(
                store.url, "it replaces an existing object, although it must only create a new one."
                " Two writers could not be kept apart: use a storage that honours"
                " If-None-Match, as S3 and MinIO do")
        for after, wanted in (("", keys), (keys[0], keys[1:]), (f"{folder}/2", keys[1:]),
                              (keys[1], [])):
            if [found.key for found in store.list_objects(folder, after)] != wanted:
                where = " after a key" if after else ""
                raise StorageUnsuitableError(
                    store.url, f"it does not list what it has just stored{where}")
    finally:
        with contextlib.suppress(StorageError):  # the first error is raised
            store.delete(keys)


def is_ours(store: Store, key: str, data: bytes) -> bool:
    """True if the existing object has exactly these bytes.

    It is ours then: the answer of the storage to our create was lost, and a repetition is refused.
    """
    try:
        return store.read(key) == data
    except ObjectNotFoundError:
        return False  # deleted since
