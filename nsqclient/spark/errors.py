"""The errors of the log between nsqd and Spark.

::

    NSQError
    ├── LogError               the log cannot be used: .url
    │   ├── LogInUseError      another query reads it
    │   ├── LogMismatchError   a checkpoint or a snapshot belongs to another topic or channel
    │   └── DataLossError      segments that a batch needs are lost
    │       └── DamagedSegmentError  the bytes of a segment have changed: .damage
    └── StorageError           the storage cannot be used, or did not answer: .url
        ├── ObjectNotFoundError     the object does not exist: .key
        ├── StorageFullError        the disk is full: .missing
        └── StorageUnsuitableError  it replaces objects that exist
"""

from __future__ import annotations

from typing import Any

from nsqclient.errors import NSQError


class _PlacedError(NSQError):
    """An error with a URL. ``args`` are the constructor's arguments, so that it can be pickled."""

    kind = ""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.kind} {self.url}: {self.reason}"


class LogError(_PlacedError):
    """The log at ``url`` cannot be used."""

    kind = "log"


class LogInUseError(LogError):
    """Another query reads this log."""


class LogMismatchError(LogError):
    """A checkpoint or a snapshot belongs to another topic or channel, or to another drain."""


class DataLossError(LogError):
    """Segments that a batch needs are lost, with messages that were acknowledged to nsqd."""


class DamagedSegmentError(DataLossError):
    """The bytes of a segment have changed. ``damage`` says how."""

    def __init__(self, url: str, damage: str) -> None:
        super().__init__(url, f"{damage}. Restore it, or set failOnDataLoss=false to read the rest"
                              " without it")
        self.args: tuple[Any, ...] = (url, damage)
        self.damage = damage


class StorageError(_PlacedError):
    """The storage at ``url`` cannot be used, or does not respond."""

    kind = "storage"


class ObjectNotFoundError(StorageError):
    """The object ``key`` does not exist."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, f"there is no object {key}")
        self.args: tuple[Any, ...] = (url, key)
        self.key = key


class StorageFullError(StorageError):
    """The disk, or the user's quota, is full: ``missing`` more bytes are needed."""

    def __init__(self, url: str, reason: str, missing: int) -> None:
        super().__init__(url, reason)
        self.args: tuple[Any, ...] = (url, reason, missing)
        self.missing = missing


class StorageUnsuitableError(StorageError):
    """The storage replaces an object instead of refusing to create it again."""
