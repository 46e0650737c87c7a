"""The errors of the spool and of shared storage, between nsqd and Spark.

::

    NSQError
    └── SpoolError             the spool folder cannot be used or written: .folder
        ├── SpoolLockedError   another query, or an earlier run of this one, uses it
        ├── SpoolFullError     its disk has no space left: .needed
        │   └── StorageUnavailableError  shared storage does not take a segment now
        ├── SpoolNotVisibleError  an executor cannot read the driver's folder: .why
        ├── SpoolMismatchError it belongs to another topic or channel, or to another format
        └── DataLossError      segments that a batch needs are gone
            └── DamagedSegmentError  a segment is not what was written: .damage

    NSQError
    ├── CheckpointError        a checkpoint of Spark cannot be migrated: .path
    └── StorageError           shared storage cannot be used, or did not answer: .url
        ├── ObjectNotFoundError     it has no such object: .key
        └── StorageUnsuitableError  it cannot create an object only if there is none
"""

from __future__ import annotations

from nsqclient.errors import NSQError


class SpoolError(NSQError):
    """The spool folder cannot be used, or cannot be written. ``folder`` is its path."""

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(f"spool {folder}: {reason}")
        self.folder = folder
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.folder, self.reason)


class SpoolFullError(SpoolError):
    """The disk of the spool, or the user's quota, has no space left for ``needed`` bytes."""

    def __init__(self, folder: str, reason: str, needed: int = 0) -> None:
        super().__init__(folder, reason)
        self.needed = needed

    def __reduce__(self) -> tuple[type, tuple[str, str, int]]:  # type: ignore[override] # one more
        return type(self), (self.folder, self.reason, self.needed)


class StorageUnavailableError(SpoolFullError):
    """Shared storage does not take a segment now. As with a full disk it is tried again."""


class SpoolLockedError(SpoolError):
    """Another process writes to this spool."""


class SpoolNotVisibleError(SpoolError):
    """A task cannot read the driver's spool. ``why`` says what it found, ``remedy`` what to do."""

    def __init__(self, folder: str, why: str, remedy: str) -> None:
        super().__init__(
            folder, f"this executor does not see the driver's spool: {why}. Remedy: {remedy}")
        self.why = why
        self.remedy = remedy

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:  # type: ignore[override] # one more
        return type(self), (self.folder, self.why, self.remedy)


class SpoolMismatchError(SpoolError):
    """The spool belongs to another topic or channel, or has another format."""


class DataLossError(SpoolError):
    """Segments that a batch needs are gone: acknowledged messages are lost."""


class DamagedSegmentError(DataLossError):
    """A segment's file is not what was written. ``damage`` says what is known of its messages."""

    def __init__(self, folder: str, damage: str) -> None:
        super().__init__(folder, f"{damage}. Restore the file, or set failOnDataLoss=false to read"
                                 " the rest without it")
        self.damage = damage

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.folder, self.damage)


class CheckpointError(NSQError):
    """A checkpoint of Spark cannot be migrated. ``path`` is where it is."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"checkpoint {path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.path, self.reason)


class StorageError(NSQError):
    """Shared storage cannot be used, or did not answer. ``url`` is where it is."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"storage {url}: {reason}")
        self.url = url
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.url, self.reason)


class ObjectNotFoundError(StorageError):
    """The storage has no object of this ``key``."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, f"there is no object {key}")
        self.key = key

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.url, self.key)


class StorageUnsuitableError(StorageError):
    """The storage cannot create an object only if there is none, so it cannot be used."""
