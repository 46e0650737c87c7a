"""Shared storage: objects that are created once and never changed.

``local`` is a folder, ``object_store`` a bucket, which needs obstore. Everything that decides
between two writers is one operation, ``Store.create``: it stores an object unless its key exists.
Needs neither pyspark nor pyarrow.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from nsqclient.errors import ConfigError
from nsqclient.spark.errors import ObjectNotFoundError, StorageError, StorageUnsuitableError
from nsqclient.spark.options import check_storage

#: The folder of probes. Names of topics have no percent sign.
_PROBES = "%probe"


class StoredObject(NamedTuple):
    key: str  #: below the URL of the storage
    size: int  #: bytes
    stored: float = 0.0  #: when it was created, in seconds since 1970, by the clock of the storage


class Store(Protocol):
    """A storage of objects that never change.

    Threads: any. Every method may block, and raises StorageError if the storage cannot be used or
    does not answer.
    """

    @property
    def url(self) -> str:
        ...

    def create(self, key: str, data: Any) -> bool:
        """Store an object durably, unless the key exists.

        Returns: True if the object has these bytes now. After a request whose answer was lost, an
        object with equal bytes is taken for the caller's. So the bytes must name their writer.
        """
        ...

    def read(self, key: str) -> bytes:
        """Read an object. Raises ObjectNotFoundError."""
        ...

    def list_objects(self, folder: str, after: str = "") -> list[StoredObject]:
        """List the objects under ``folder/`` by key; an empty folder is the whole storage.

        Args:
            after: list only keys greater than this text. Most storages then skip the others.
        """
        ...

    def list_folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder; an empty folder is the whole storage."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, in any order. Missing objects are ignored."""
        ...

    def missing_space(self, size: int) -> int:
        """How many bytes of space are missing to store ``size`` bytes; 0 if none, or unknown.

        Some space is reserved for small objects, because deletions need them.
        """
        ...


def open_store(url: str) -> Store:
    """Open a storage by its URL, without a request. Raises ConfigError."""
    scheme, place = check_storage(url)
    if scheme == "file":
        from nsqclient.spark.storage.local import LocalStore

        return LocalStore(place)
    try:
        from nsqclient.spark.storage.object_store import ObjectStore
    except ImportError as exc:
        raise ConfigError(
            f"storage {url}: obstore is needed: pip install 'nsqclient[spark-storage]' ({exc})"
        ) from exc
    return ObjectStore(f"{scheme}://{place}")


def probe(store: Store) -> None:
    """Check that a storage creates a key only once, and reads and lists objects correctly.

    Raises:
        StorageUnsuitableError: it does not.
        StorageError: it cannot be used.
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
    """True if an existing object has these bytes, and so comes from an unanswered create."""
    try:
        return store.read(key) == data
    except ObjectNotFoundError:
        return False  # deleted since
