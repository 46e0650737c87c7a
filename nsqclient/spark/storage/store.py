"""``Store``: what is needed of a storage, and the probe.

Everything that decides between two writers is one operation, ``create``: it stores an object
unless there is one of that key. No object is ever changed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from nsqclient.spark.errors import ObjectNotFoundError, StorageError, StorageUnsuitableError

#: Where the probe writes. No topic has a name with a percent sign.
_PROBES = "%probe"


class StoredObject(NamedTuple):
    """An object as a listing has it."""

    key: str  #: below the URL of the storage
    size: int  #: bytes
    stored: float = 0.0  #: when it was created, in seconds since 1970, by the clock of the storage


class Store(Protocol):
    """A storage. Threads: every method, any thread. Every method may block for the storage.

    Raises, all methods: StorageError when the storage cannot be used or does not answer.
    """

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        ...

    def create(self, key: str, data: Any) -> bool:
        """Store an object, unless there is one of that key; it is durable when this returns.

        Returns: whether the object is ours: this call has stored it, or it has exactly these
        bytes, as after a call whose answer was lost. So the bytes must name their writer.
        """
        ...

    def read(self, key: str) -> bytes:
        """Read an object."""
        ...

    def list_objects(self, folder: str, after: str = "") -> list[StoredObject]:
        """List what is under ``folder/``, or with an empty name in the storage, by their keys.

        Args:
            after: only keys behind this text; keys before it cost nothing.
        """
        ...

    def list_folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder, or with an empty name in the storage."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, as far as they are there, in this order."""
        ...

    def missing_space(self, size: int) -> int:
        """How many bytes are missing for so many; 0: none, or that is not known.

        Some space is kept back for small objects: those that let others be deleted.
        """
        ...


def probe(store: Store) -> None:
    """Do once all that is needed of a storage.

    Raises:
        StorageUnsuitableError: it replaces an object that is to be created, or does not read or
            list what it has stored.
        StorageError: it cannot be used.
    """
    folder = f"{_PROBES}/{uuid.uuid4().hex}"
    key = f"{folder}/object"
    try:
        if not store.create(key, b"first"):
            raise StorageUnsuitableError(store.url, "a new object is said to be there already")
        if store.create(key, b"second") or store.read(key) != b"first":
            raise StorageUnsuitableError(
                store.url, "it replaces an object that was to be created only if there was none."
                " Two writers could not be kept apart: use a storage that honours"
                " If-None-Match, as S3 and MinIO do")
        listed = [found.key for found in store.list_objects(folder)]
        if listed != [key] or store.list_objects(folder, key):
            raise StorageUnsuitableError(store.url, "it does not list what it has just stored")
    finally:
        with contextlib.suppress(StorageError):  # of a storage that cannot be used at all
            store.delete([key])


def is_ours(store: Store, key: str, data: bytes) -> bool:
    """Return whether the object that is there already has exactly these bytes.

    It is ours then: the answer of the storage to our create was lost, and a repetition is refused.
    """
    try:
        return store.read(key) == data
    except ObjectNotFoundError:
        return False  # deleted since
