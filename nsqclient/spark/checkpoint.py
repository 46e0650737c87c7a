"""``Checkpoint``: the offsets of a query in Spark's checkpoint, as far as a migration needs them.

A file of ``offsets`` has a line with its version, a line of JSON about the batch, and a line for
each source. A file of ``commits`` says that the batch of its number is committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nsqclient.spark.errors import CheckpointError
from nsqclient.spark.spool.folder import sync_folder, write_durably

#: Of the format of the offsets.
_VERSION = "v1"


class _Batch(NamedTuple):
    """The offsets at the end of a batch."""

    path: Path
    lines: list[str]
    source: int  #: which line is the source's
    offset: dict[str, Any]


class Checkpoint:
    """The batches of a checkpoint that Spark reads when the query starts.

    These are the last batch that is committed, whose offsets are the start of the next, and what is
    planned behind it. It is read when this is created.

    Args:
        path: of the folder.

    Raises:
        CheckpointError: it is no checkpoint, or not that of a query with one spool.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        if not os.path.isdir(path):
            raise self._mismatch("there is no such folder: give the checkpoint of the query")
        commits, offsets = self._numbers("commits"), self._numbers("offsets")
        committed = max(commits, default=-1)
        needed = [number for number in offsets if number >= committed]
        self._batches = [self._read(Path(path, "offsets", str(number))) for number in needed]
        if commits and committed not in needed:
            raise self._mismatch(f"batch {committed} is committed and has no offsets")
        self._has_commits = bool(commits)

    @property
    def position(self) -> int | None:
        """The number of the spool that is committed; None: none is, or it is replaced already."""
        if not self._has_commits:
            return None
        number: int | None = self._batches[0].offset.get("seq")
        return number

    @property
    def is_replaced(self) -> bool:
        """Return whether some of it names shards already."""
        return any("shards" in batch.offset for batch in self._batches)

    @property
    def numbers(self) -> set[int]:
        """The numbers of the spool that are to be replaced."""
        return {batch.offset["seq"] for batch in self._batches if "seq" in batch.offset}

    @property
    def last(self) -> int:
        """The highest of these; 0: there is none."""
        return max(self.numbers, default=0)

    def replace(self, offsets: Mapping[int, Mapping[str, Any]]) -> None:
        """Write other offsets in place of numbers of the spool. May be repeated.

        Raises:
            CheckpointError: the files cannot be written.
        """
        for batch in self._batches:
            if "seq" not in batch.offset:
                continue
            lines = list(batch.lines)
            lines[batch.source] = json.dumps(offsets[batch.offset["seq"]])
            try:
                _replace(batch.path, "\n".join(lines).encode())
            except OSError as exc:
                raise self._mismatch(f"{batch.path} cannot be written: {exc.strerror}") from exc

    def _numbers(self, name: str) -> list[int]:
        try:
            names = os.listdir(os.path.join(self._path, name))
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise self._mismatch(f"{name} cannot be listed: {exc.strerror}") from exc
        return sorted(int(name) for name in names if name.isdecimal())

    def _read(self, path: Path) -> _Batch:
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as exc:
            raise self._mismatch(f"{path} cannot be read: {exc}") from exc
        if lines[0] != _VERSION:
            raise self._mismatch(f"{path} has format {lines[0]!r:.20}, and not {_VERSION}")
        found = [(number, offset) for number, offset in enumerate(map(_offset, lines))
                 if offset is not None]
        if len(found) != 1:
            raise self._mismatch(f"{path} has {len(found)} offsets of nsq: the query must have one"
                                 " source of this format")
        return _Batch(path, lines, *found[0])

    def _mismatch(self, reason: str) -> CheckpointError:
        return CheckpointError(self._path, reason)


def _offset(line: str) -> dict[str, Any] | None:
    """Read the offset of one of our sources, of either kind."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    is_ours = isinstance(found, dict) and set(found) in ({"seq"}, {"v", "shards"})
    return found if is_ours else None


def _replace(path: Path, data: bytes) -> None:
    # Hadoop checks a file where there is a checksum of it.
    with contextlib.suppress(FileNotFoundError):
        path.with_name(f".{path.name}.crc").unlink()
    tmp = path.with_name(f".{path.name}.nsq-tmp")
    tmp.unlink(missing_ok=True)
    write_durably(str(tmp), data)
    os.chmod(tmp, stat.S_IMODE(path.stat().st_mode))
    os.replace(tmp, path)
    sync_folder(str(path.parent))
