"""The names of the files in a spool folder. Pure.

::

    meta.json                        what the spool is for
    lock                             held (flock) by the process that writes
    epoch-000003                     the third start; holds the first number it may use
    000000000042-000003-2500.arrow   segment 42, written by start 3, 2500 rows
    committed                        what Spark has committed
    unfinned.json                    ids that are durable and perhaps not finished at nsqd
    .tmp-...                         being written; of no meaning to anybody else
"""

from __future__ import annotations

import re
from typing import NamedTuple

META, LOCK, COMMITTED, UNFINNED = "meta.json", "lock", "committed", "unfinned.json"
TMP_PREFIX = ".tmp-"

_SEGMENT = re.compile(r"(\d{12,})-(\d{6,})-(\d+)\.arrow", re.ASCII)
_EPOCH = re.compile(r"epoch-(\d{6,})", re.ASCII)


class SegmentName(NamedTuple):
    """A segment as its name says it. Sorts by number."""

    number: int
    epoch: int
    rows: int

    def __str__(self) -> str:
        return f"{self.number:012d}-{self.epoch:06d}-{self.rows}.arrow"


def parse_segment(name: str) -> SegmentName | None:
    """Read a file name; None when it is no segment's."""
    match = _SEGMENT.fullmatch(name)
    return None if match is None else SegmentName(*map(int, match.groups()))


def epoch_name(epoch: int) -> str:
    """Build the name of an epoch's file."""
    return f"epoch-{epoch:06d}"


def parse_epoch(name: str) -> int | None:
    """Read a file name; None when it is no epoch's."""
    match = _EPOCH.fullmatch(name)
    return None if match is None else int(match[1])
