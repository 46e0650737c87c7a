"""The names of the files in a spool folder. Pure.

::

    meta.json                        what the spool is for, and its id, which executors compare
    lock                             held (flock) by the process that writes
    epoch-000003                     the third start; holds the first number it may use
    000000000042-000003-2500-9ae0daaf.arrow
                                     segment 42, written by start 3, 2500 rows, its checksum
    000000000042-000003-2500.arrow   the same in format 1, without a checksum
    committed                        what Spark has committed, and up to where the next is complete
    unfinned.json                    ids that are durable and perhaps not finished at nsqd
    complete                         of a drain's snapshot: all that was there is stored
    .tmp-...                         being written; ignored by readers

The checksum of a segment stands in its name: no damage of the file can hide that it has one.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, NamedTuple

META, LOCK, COMMITTED, UNFINISHED = "meta.json", "lock", "committed", "unfinned.json"
COMPLETE = "complete"
TMP_PREFIX = ".tmp-"

_SEGMENT = re.compile(r"(\d{12,})-(\d{6,})-(\d+)(?:-([0-9a-f]{8}))?\.arrow", re.ASCII)
_EPOCH = re.compile(r"epoch-(\d{6,})", re.ASCII)


class SegmentName(NamedTuple):
    """A segment as its name says it. Sorts by number."""

    number: int
    epoch: int
    rows: int
    checksum: int | None = None  #: of the file's bytes; None in format 1

    def __str__(self) -> str:
        checksum = "" if self.checksum is None else f"-{self.checksum:08x}"
        return f"{self.number:012d}-{self.epoch:06d}-{self.rows}{checksum}.arrow"


def checksum_of(data: Any) -> int:
    """Compute the checksum of a segment's bytes."""
    # The standard library's: 5 GB/s, and any CRC of 32 bits finds every burst of up to 32 bits. A
    # faster CRC32C or xxh3 would be one more dependency on every executor; pyarrow has none.
    return zlib.crc32(data)


def parse_segment(name: str) -> SegmentName | None:
    """Read a file name; None when it is no segment's."""
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    number, epoch, rows, checksum = match.groups()
    return SegmentName(
        int(number), int(epoch), int(rows), None if checksum is None else int(checksum, 16))


def epoch_name(epoch: int) -> str:
    """Build the name of an epoch's file."""
    return f"epoch-{epoch:06d}"


def parse_epoch(name: str) -> int | None:
    """Read a file name; None when it is no epoch's."""
    match = _EPOCH.fullmatch(name)
    return None if match is None else int(match[1])


def is_spool_file(name: str) -> bool:
    """Return whether a file of this name belongs to a spool."""
    return (
        name in (META, LOCK, COMMITTED, UNFINISHED, COMPLETE) or name.startswith(TMP_PREFIX)
        or parse_segment(name) is not None or parse_epoch(name) is not None)
