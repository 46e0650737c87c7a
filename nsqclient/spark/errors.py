"""The errors of the log between nsqd and Spark.

::

    NSQError
    ├── LogError               the log cannot be used as it is: .url
    │   ├── LogInUseError      another query reads it
    │   ├── LogMismatchError   a checkpoint or a snapshot belongs to another topic or channel
    │   └── DataLossError      segments that a batch needs are gone
    │       └── DamagedSegmentError  a segment is not what was written: .damage
    └── StorageError           its storage cannot be used, or did not answer: .url
        ├── ObjectNotFoundError     it has no such object: .key
        ├── StorageFullError        it has no space left: .missing
        └── StorageUnsuitableError  it cannot create an object only if there is none
"""

from __future__ import annotations

from typing import Any

from nsqclient.errors import NSQError


class _PlacedError(NSQError):
    """An error at a URL. Its arguments are kept as they are, so that it pickles."""

    kind = ""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.kind} {self.url}: {self.reason}"


class LogError(_PlacedError):
    """The log cannot be used as it is. ``url`` is where it is."""

    kind = "log"


class LogInUseError(LogError):
    """Another query reads this log."""


class LogMismatchError(LogError):
    """A checkpoint or a snapshot belongs to another topic or channel, or to another drain."""


class DataLossError(LogError):
    """Segments that a batch needs are gone: acknowledged messages are lost."""


class DamagedSegmentError(DataLossError):
    """A segment is not what was written. ``damage`` says what is known of its messages."""

    def __init__(self, url: str, damage: str) -> None:
        super().__init__(url, f"{damage}. Restore it, or set failOnDataLoss=false to read the rest"
                              " without it")
        self.args: tuple[Any, ...] = (url, damage)
        self.damage = damage


class StorageError(_PlacedError):
    """The storage cannot be used, or did not answer. ``url`` is where it is."""

    kind = "storage"


class ObjectNotFoundError(StorageError):
    """The storage has no object of this ``key``."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, f"there is no object {key}")
        self.args: tuple[Any, ...] = (url, key)
        self.key = key


class StorageFullError(StorageError):
    """The disk, or the user's quota, has no space left: ``missing`` more bytes are needed."""

    def __init__(self, url: str, reason: str, missing: int) -> None:
        super().__init__(url, reason)
        self.args: tuple[Any, ...] = (url, reason, missing)
        self.missing = missing


class StorageUnsuitableError(StorageError):
    """The storage cannot create an object only if there is none, so it cannot be used."""
