"""What can go wrong between nsqd and Spark.

::

    NSQError
    └── SpoolError             the spool folder cannot be used or written: .folder
        ├── SpoolLockedError   another query, or an earlier run of this one, uses it
        ├── SpoolMismatchError it belongs to another topic or channel, or to another format
        └── DataLossError      segments that a batch needs are gone
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


class SpoolLockedError(SpoolError):
    """Somebody else writes to this spool."""


class SpoolMismatchError(SpoolError):
    """The spool belongs to another topic or channel, or has another format."""


class DataLossError(SpoolError):
    """Segments that a batch needs are gone: acknowledged messages are lost."""
