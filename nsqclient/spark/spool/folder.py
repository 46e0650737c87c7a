"""``Folder``: the files of a spool. What is written is durable when a method returns.

No decision is taken here. Every failure of the system is a SpoolError that says what to do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.errors import SpoolError, SpoolLockedError, SpoolMismatchError
from nsqclient.spark.spool.names import (
    COMMITTED,
    LOCK,
    META,
    TMP_PREFIX,
    UNFINNED,
    SegmentName,
    epoch_name,
    parse_epoch,
    parse_segment,
)

#: Version of what is written here.
FORMAT = 1
#: Notes of starts that are kept. A writer so many starts old is surely gone.
_MOST_EPOCHS = 100

_counter = itertools.count()


class Unfinned(NamedTuple):
    """Messages that are durable and perhaps not finished at nsqd."""

    #: Of the segments up to this one, only the listed ids can be meant; of later ones, all.
    clean_to: int
    ids: Mapping[str, Sequence[bytes]]  #: by nsqd


class Folder:
    """A spool's folder. Threads: any; the caller sees to it that one writes at a time."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._lock_file: int | None = None

    def __str__(self) -> str:
        return self.path

    @contextlib.contextmanager
    def _explained(
        self, doing: str, passing: tuple[type[OSError], ...] = ()
    ) -> Iterator[None]:
        """Turn the system's errors, save those that the caller understands, into one of ours."""
        try:
            yield
        except passing:
            raise
        except OSError as exc:
            hint = "nothing that was not written has been acknowledged to nsqd"
            if exc.errno in (errno.ENOSPC, errno.EDQUOT):
                hint = f"free some space and start the query again; {hint}"
            elif exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                hint = f"the user that runs the driver must be able to write there; {hint}"
            raise SpoolError(self.path, f"{doing}: {exc.strerror or exc} ({hint})") from exc

    # -- opening

    def lock(self, patience: float) -> None:
        """Make the folder, and take the lock that its writer holds until ``close()``.

        Blocks: up to ``patience`` seconds; an earlier run may be about to end.

        Raises:
            SpoolLockedError: somebody else has it.
        """
        with self._explained("cannot be used"):
            make_durably(self.path)
            descriptor = os.open(self._name(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for_lock(descriptor, Deadline(patience))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._lock_file = descriptor

    def _wait_for_lock(self, descriptor: int, deadline: Deadline) -> None:
        pause = threading.Event()
        while True:
            try:
                # The system has no flock with a timeout.
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                if exc.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise SpoolError(self.path, f"cannot be locked: {exc.strerror}") from exc
                if deadline.expired():
                    owner = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
                    raise SpoolLockedError(
                        self.path, f"is used by process {owner or '(unknown)'}: each query needs a"
                        " spoolDir of its own; if that is an earlier run of this query, end it"
                        " first") from exc
            pause.wait(0.1)

    def close(self) -> None:
        """Give the lock back. Idempotent."""
        descriptor, self._lock_file = self._lock_file, None
        if descriptor is not None:
            os.close(descriptor)

    def check_meta(self, topic: str, channel: str) -> None:
        """Compare ``meta.json`` with what the query reads; write it the first time.

        Raises:
            SpoolMismatchError: it belongs to something else.
        """
        mine = {"version": FORMAT, "topic": topic, "channel": channel}
        found = self._read_json(META)
        if found is None:
            self._replace(META, json.dumps(mine).encode())
            return
        if found.get("version") != FORMAT:
            raise SpoolMismatchError(
                self.path, f"has format {found.get('version')!r}, this version reads {FORMAT}")
        if found != mine:
            raise SpoolMismatchError(
                self.path, f"belongs to topic {found.get('topic')!r}, channel"
                f" {found.get('channel')!r}: give this query a spoolDir of its own")

    def begin_epoch(self, first: int) -> int:
        """Take a new epoch, which begins at number ``first``; return it."""
        epochs = self.epochs()
        epoch = max(epochs, default=0) + 1
        tmp = self.write_tmp(str(first).encode())
        try:
            self._link(tmp, epoch_name(epoch))
        except FileExistsError:
            raise SpoolLockedError(
                self.path, "another process started with it at the same moment") from None
        for old in sorted(epochs)[:-_MOST_EPOCHS]:
            self.delete(epoch_name(old))
        return epoch

    # -- reading

    def segments(self) -> list[tuple[SegmentName, int]]:
        """List every segment and its size in bytes, strays too."""
        found = []
        with self._explained("cannot be listed"), os.scandir(self.path) as entries:
            for entry in entries:
                segment = parse_segment(entry.name)
                if segment is not None:
                    # Its size is what was written: segments are never changed.
                    found.append((segment, entry.stat().st_size))
        return found

    def epochs(self) -> dict[int, int]:
        """Read every start's epoch: epoch -> the first number that it may use."""
        epochs = {}
        with self._explained("cannot be listed"):
            for name in os.listdir(self.path):
                epoch = parse_epoch(name)
                if epoch is not None:
                    with self._undamaged(name):
                        text = Path(self._name(name)).read_text(encoding="ascii")
                        epochs[epoch] = int(text)
        return epochs

    def read_committed(self) -> int:
        """What Spark has committed, as far as the spool knows; 0 at first."""
        found = self._read_json(COMMITTED)
        with self._undamaged(COMMITTED):
            return 0 if found is None else int(found["seq"])

    def read_unfinned(self) -> Unfinned:
        """What ``write_unfinned`` wrote last."""
        found = self._read_json(UNFINNED)
        if found is None:
            return Unfinned(0, {})
        with self._undamaged(UNFINNED):
            ids = {nsqd: [text.encode() for text in texts]
                   for nsqd, texts in found["ids"].items()}
            return Unfinned(int(found["clean_to"]), ids)

    def segment_path(self, segment: SegmentName) -> str:
        """The path of a segment."""
        return self._name(str(segment))

    def size(self, segment: SegmentName) -> int:
        """Bytes of a segment's file."""
        with self._explained(f"{segment} cannot be read"):
            return os.stat(self.segment_path(segment)).st_size

    # -- writing

    def put(self, name: str, data: bytes) -> None:
        """Write a small file of any name, whole or not at all."""
        self._replace(name, data)

    def write_committed(self, number: int) -> None:
        """Note what Spark has committed."""
        self._replace(COMMITTED, json.dumps({"seq": number}).encode())

    def write_unfinned(self, unfinned: Unfinned) -> None:
        """Note ids that are perhaps not finished at nsqd."""
        ids = {nsqd: [key.decode() for key in keys] for nsqd, keys in unfinned.ids.items()}
        self._replace(UNFINNED, json.dumps({"clean_to": unfinned.clean_to, "ids": ids}).encode())

    def write_tmp(self, data: Any) -> str:
        """Write a file that nobody sees yet, to disk; return its path."""
        path = self._name(f"{TMP_PREFIX}{os.getpid()}-{next(_counter)}")
        with self._explained("cannot be written"):
            try:
                write_durably(path, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise
        return path

    def publish(self, tmp: str, segment: SegmentName) -> None:
        """Give a written file its name for good, in a way that survives a power failure.

        Raises:
            SpoolLockedError: the name is taken, or the file is gone: somebody else writes here.
        """
        try:
            self._link(tmp, str(segment))
        except (FileExistsError, FileNotFoundError) as exc:
            raise SpoolLockedError(
                self.path, f"segment {segment.number} cannot be added ({exc.strerror}): another"
                " process has taken this spool over") from exc

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        missing = (FileNotFoundError,)
        with contextlib.suppress(*missing), self._explained("cannot be cleaned up", missing):
            os.unlink(self._name(name))

    def delete_segments(self, segments: Iterable[SegmentName]) -> None:
        """Delete segments."""
        for segment in segments:
            self.delete(str(segment))

    def delete_tmp(self) -> None:
        """Delete what earlier processes left half written."""
        with self._explained("cannot be listed"):
            names = [name for name in os.listdir(self.path) if name.startswith(TMP_PREFIX)]
        for name in names:
            self.delete(name)

    def _name(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _link(self, tmp: str, name: str) -> None:
        """Link, which fails where a rename would replace; then forget the other name."""
        known = (FileExistsError, FileNotFoundError)
        with self._explained("cannot link files (is it a mounted disk?)", known):
            os.link(tmp, self._name(name))
        with self._explained("cannot be written"):
            sync_folder(self.path)
            os.unlink(tmp)

    def _replace(self, name: str, data: bytes) -> None:
        tmp = self.write_tmp(data)
        with self._explained("cannot be written"):
            os.replace(tmp, self._name(name))
            sync_folder(self.path)

    def _read_json(self, name: str) -> dict[str, Any] | None:
        with self._explained(f"{name} cannot be read"):
            try:
                text = Path(self._name(name)).read_text(encoding="utf-8")
            except FileNotFoundError:
                return None
        with self._undamaged(name):
            found = json.loads(text)
            if not isinstance(found, dict):
                raise ValueError("not an object")
        return found

    @contextlib.contextmanager
    def _undamaged(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise SpoolMismatchError(self.path, f"{name} is damaged: {exc!r}") from exc


def make_durably(path: str) -> None:
    """Make a folder for its owner alone, and bring its name and those of new ones above to disk.

    Raises OSError.
    """
    fresh = []
    folder = path
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        fresh.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(fresh):  # os.makedirs() gives its mode to the last one only
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    for folder in fresh:
        # Who may make a folder somewhere may perhaps not list what is there.
        with contextlib.suppress(PermissionError):
            sync_folder(os.path.dirname(folder))


def write_durably(path: str, data: Any) -> None:
    """Write bytes to a new file and bring them to disk. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Bring the names in a folder to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
