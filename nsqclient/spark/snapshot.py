"""The results of drains: one spool for each, under the option ``spoolDir``.

The messages are finished at nsqd, so a snapshot is their only copy until you release it.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import sys
from typing import NamedTuple

from nsqclient.display import counted
from nsqclient.errors import ConfigError
from nsqclient.spark.ingest.receiver import Receiver
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.spool.folder import SpoolFolder
from nsqclient.spark.spool.names import COMPLETE, META
from nsqclient.spark.spool.segment_index import Entry
from nsqclient.spark.spool.selection import classify_segments
from nsqclient.spark.spool.spool import warn_of_unchecked

logger: logging.Logger = logging.getLogger("nsqclient.spark")


class Snapshot(NamedTuple):
    """What one drain took."""

    name: str
    rows: int
    is_complete: bool  #: False: the drain was cut off; load it again by its name to go on


def snapshots(spool_dir: str) -> list[Snapshot]:
    """List the snapshots of a ``spoolDir`` that were not released, by name."""
    found = []
    for name in sorted(os.listdir(spool_dir)) if os.path.isdir(spool_dir) else []:
        path = os.path.join(spool_dir, name)
        if os.path.exists(os.path.join(path, META)):
            rows = sum(segment.rows for segment, _ in SpoolFolder(path).segments())
            done = os.path.exists(os.path.join(path, COMPLETE))
            found.append(Snapshot(name, rows, done))
    return found


def release(spool_dir: str, name: str) -> None:
    """Delete a snapshot: DataFrames that were loaded from it cannot be computed any more.

    Raises:
        ConfigError: there is none of that name.
        SpoolLockedError: a drain is filling it.
    """
    if name not in [snapshot.name for snapshot in snapshots(spool_dir)]:
        raise ConfigError(f"no snapshot {name!r} in {spool_dir}")
    folder = SpoolFolder(os.path.join(spool_dir, name))
    folder.lock(patience=0)
    try:
        shutil.rmtree(folder.path)
    finally:
        folder.close()


def take_snapshot(options: ReadOptions, name: str) -> list[tuple[Entry, str]]:
    """Drain a channel into a snapshot, unless that was done; return its segments and paths.

    Blocks: until all that is there has come, or ``maxMessages``.

    Raises:
        SpoolError: it cannot be used; what was not stored is still nsqd's.
        NSQError: no nsqd can be reached.
    """
    path = os.path.join(options.spool_dir, name)
    folder = SpoolFolder(path)
    if os.path.exists(os.path.join(path, COMPLETE)):
        folder.make_private()
    else:
        for other in snapshots(options.spool_dir):
            logger.warning(
                "snapshot %s in %s holds %s and was not released (%s)", other.name,
                options.spool_dir, counted(other.rows, "message"),
                "complete" if other.is_complete else "cut off",
            )
        _drain(options, path)
        folder.put(COMPLETE, b"")
    sizes = dict(folder.segments())
    valid = classify_segments(sizes, folder.epochs()).valid
    warn_of_unchecked(folder, valid)
    return [(Entry(segment.number, segment.rows, sizes[segment]), folder.segment_path(segment))
            for segment in valid]


def _drain(options: ReadOptions, path: str) -> None:
    # It is read when it is complete, so a full spool would stay full for ever.
    options = dataclasses.replace(
        options, max_spool_messages=sys.maxsize, max_spool_bytes=sys.maxsize
    )
    receiver = Receiver(options, path, limit=options.max_messages or None)
    receiver.prepare_drain()
    try:
        receiver.open()
        while not receiver.drain_is_over():
            receiver.check_space()
            receiver.spool.wait_for_more(receiver.spool.last, 0.1)
    finally:
        receiver.stop()
