"""``SpoolFolder``: the files of a spool. What is written is durable when a method returns.

No decision is taken here. Every failure of the system is a SpoolError that says what to do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import logging
import os
import stat
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nsqclient.display import counted
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.errors import (
    SpoolError,
    SpoolFullError,
    SpoolLockedError,
    SpoolMismatchError,
)
from nsqclient.spark.spool.access import user_name
from nsqclient.spark.spool.names import (
    COMMITTED,
    LOCK,
    META,
    TMP_PREFIX,
    UNFINISHED,
    SegmentName,
    checksum_of,
    epoch_name,
    is_spool_file,
    parse_epoch,
    parse_segment,
)

logger = logging.getLogger("nsqclient.spark")

#: Version of what is written here: since 2 the names of segments have a checksum.
FORMAT = 2
#: Notes of starts that are kept. A writer so many starts old is surely gone.
_MOST_EPOCHS = 100

_counter = itertools.count()


class UnfinishedMessages(NamedTuple):
    """Messages that are durable and perhaps not finished at nsqd."""

    #: Of the segments up to this one, only the listed ids can be meant; of later ones, all.
    clean_to: int
    ids: Mapping[str, Sequence[bytes]]  #: by nsqd


class CommitNote(NamedTuple):
    """What the spool knows of the query."""

    number: int = 0  #: what Spark has committed
    clean_to: int = 0  #: as that of ``UnfinishedMessages``, which is written more rarely
    started: str = ""  #: where the query was to begin, until its first commit


class TmpFile(NamedTuple):
    """A file that is written and has no name of its own yet. Pickles."""

    path: str
    checksum: int  #: of what was to be written


class SpoolFolder:
    """A spool's folder. Threads: any; the caller sees to it that one writes at a time."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._lock_file: int | None = None

    def __str__(self) -> str:
        return self.path

    @contextlib.contextmanager
    def _explained(
        self, doing: str, passing: tuple[type[OSError], ...] = (), needed: int = 0
    ) -> Iterator[None]:
        """Turn the system's errors, save those that the caller understands, into one of ours."""
        try:
            yield
        except passing:
            raise
        except OSError as exc:
            hint = "nothing that was not written has been acknowledged to nsqd"
            if exc.errno in (errno.ENOSPC, errno.EDQUOT):
                size = f" for {counted(needed, 'byte')}" if needed else ""
                reason = f"{doing}: {exc.strerror}{size} (free some space; {hint})"
                raise SpoolFullError(self.path, reason, needed) from exc
            if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                hint = f"the user that runs the driver must be able to write there; {hint}"
            raise SpoolError(self.path, f"{doing}: {exc.strerror or exc} ({hint})") from exc

    # -- opening

    def lock(self, patience: float) -> None:
        """Make the folder, and take the lock that its writer holds until ``close()``.

        Blocks: up to ``patience`` seconds; an earlier run may be about to end.

        Raises:
            SpoolLockedError: another process has it.
        """
        with self._explained("cannot be used"):
            make_durably(self.path)
            descriptor = os.open(self._name(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.make_private()
        try:
            self._wait_for_lock(descriptor, Deadline(patience))
            with contextlib.suppress(OSError):  # a full disk; others read it for their errors only
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

    def make_private(self) -> None:
        """Take from other users what an earlier version, or somebody, has given them.

        A folder that has other files too keeps its mode: it is more than this spool's.
        """
        with self._explained("cannot be listed"), os.scandir(self.path) as listing:
            entries = list(listing)
        ours = [entry for entry in entries if is_spool_file(entry.name)]
        for entry in ours:
            with contextlib.suppress(FileNotFoundError):
                file = entry.stat(follow_symlinks=False)
                is_own = stat.S_ISREG(file.st_mode) and file.st_uid == os.geteuid()
                if is_own and file.st_mode & 0o777 != 0o600:
                    _change_mode(entry.path, 0o600)
        found = os.stat(self.path)
        mode = stat.S_IMODE(found.st_mode)
        if not mode & 0o077 or len(ours) < len(entries):
            return
        if found.st_uid == os.geteuid():
            _change_mode(self.path, mode & ~0o077)
            logger.info("spool %s had mode %04o; now only the owner can read it", self, mode)
        else:
            logger.warning(
                "spool %s has mode %04o and belongs to %s: other users can list it",
                self, mode, user_name(found.st_uid))

    def check_meta(self, topic: str, channel: str) -> None:
        """Compare ``meta.json`` with what the query reads; write it the first time.

        A spool of format 1 is read on, and becomes one of format 2. One without an id, by which
        executors recognise it, is given one.

        Raises:
            SpoolMismatchError: it belongs to something else.
        """
        found = self._read_json(META)
        if found is None:
            self._replace(META, _meta(topic, channel))
            return
        version = found.get("version")
        if version not in (1, FORMAT):
            raise self._other_format(version)
        if (found.get("topic"), found.get("channel")) != (topic, channel):
            raise SpoolMismatchError(
                self.path, f"belongs to topic {found.get('topic')!r}, channel"
                f" {found.get('channel')!r}: give this query a spoolDir of its own")
        if version != FORMAT or not found.get("id"):
            with contextlib.suppress(SpoolFullError):  # the next start does it
                self._replace(META, _meta(topic, channel))

    def begin_epoch(self, epoch: int, first: int) -> None:
        """Take an epoch, which begins at number ``first``.

        Raises:
            SpoolLockedError: another process has taken it.
        """
        tmp = self.write_tmp(str(first).encode())
        try:
            self._link(tmp, epoch_name(epoch))
        except FileExistsError:
            raise SpoolLockedError(
                self.path, "another process started with it at the same moment") from None
        for old in sorted(self.epochs())[:-_MOST_EPOCHS]:
            self.delete(epoch_name(old))

    # -- reading

    def read_names(self) -> tuple[str, str]:
        """Read of which topic and channel it is. Nothing is changed, and no lock is needed.

        Raises:
            SpoolMismatchError: there is no spool, or one of another format.
        """
        found = self._read_json(META)
        if found is None:
            raise SpoolMismatchError(
                self.path, f"there is none: {META} is missing. Give the spoolDir of a query")
        if found.get("version") not in (1, FORMAT):
            raise self._other_format(found.get("version"))
        with self._undamaged(META):
            return str(found["topic"]), str(found["channel"])

    def _other_format(self, version: object) -> SpoolMismatchError:
        return SpoolMismatchError(
            self.path, f"has format {version!r}, this version reads 1 and {FORMAT}")

    def segments(self) -> list[tuple[SegmentName, int]]:
        """List every segment and its size in bytes, strays too."""
        found = []
        with self._explained("cannot be listed"), os.scandir(self.path) as entries:
            for entry in entries:
                segment = parse_segment(entry.name)
                if segment is not None:
                    # Its size is what was written: segments are never changed. To a reader that
                    # has no lock they may vanish at any moment.
                    with contextlib.suppress(FileNotFoundError):
                        found.append((segment, entry.stat().st_size))
        return found

    def names(self) -> list[str]:
        """List every file, without a look at it."""
        with self._explained("cannot be listed"):
            return os.listdir(self.path)

    def epochs(self) -> dict[int, int]:
        """Read every start's epoch: epoch -> the first number that it may use."""
        epochs = {}
        with self._explained("cannot be listed"):
            for name in os.listdir(self.path):
                epoch = parse_epoch(name)
                if epoch is not None:
                    # The oldest ones are deleted by a start, also while they are read here.
                    with self._undamaged(name), contextlib.suppress(FileNotFoundError):
                        text = Path(self._name(name)).read_text(encoding="ascii")
                        epochs[epoch] = int(text)
        return epochs

    def read_committed(self) -> CommitNote:
        """Read what ``write_committed`` wrote last."""
        found = self._read_json(COMMITTED)
        if found is None:
            return CommitNote()
        with self._undamaged(COMMITTED):
            return CommitNote(
                int(found["seq"]), int(found.get("clean_to", 0)), str(found.get("started", "")))

    def read_unfinished(self) -> UnfinishedMessages:
        """Read what ``write_unfinished`` wrote last."""
        found = self._read_json(UNFINISHED)
        if found is None:
            return UnfinishedMessages(0, {})
        with self._undamaged(UNFINISHED):
            ids = {nsqd: [text.encode() for text in texts]
                   for nsqd, texts in found["ids"].items()}
            return UnfinishedMessages(int(found["clean_to"]), ids)

    def segment_path(self, segment: SegmentName) -> str:
        """The path of a segment."""
        return self._name(str(segment))

    def size(self, segment: SegmentName) -> int:
        """Bytes of a segment's file."""
        with self._explained(f"{segment} cannot be read"):
            return os.stat(self.segment_path(segment)).st_size

    def stored_at(self, segment: SegmentName) -> float:
        """When a segment's file was written, in seconds since 1970; 0: it is not there any more."""
        with contextlib.suppress(FileNotFoundError), self._explained(
            f"{segment} cannot be read", (FileNotFoundError,)
        ):
            return os.stat(self.segment_path(segment)).st_mtime
        return 0.0

    # -- writing

    def put(self, name: str, data: bytes) -> None:
        """Write a small file of any name, whole or not at all."""
        self._replace(name, data)

    def write_committed(self, note: CommitNote) -> None:
        """Save what Spark has committed."""
        content: dict[str, Any] = {"seq": note.number, "clean_to": note.clean_to}
        if note.started:
            content["started"] = note.started
        self._replace(COMMITTED, json.dumps(content).encode())

    def write_unfinished(self, unfinished: UnfinishedMessages) -> None:
        """Save ids that are perhaps not finished at nsqd."""
        ids = {nsqd: [key.decode() for key in keys] for nsqd, keys in unfinished.ids.items()}
        content = {"clean_to": unfinished.clean_to, "ids": ids}
        self._replace(UNFINISHED, json.dumps(content).encode())

    def write_tmp(self, data: Any) -> TmpFile:
        """Write a temporary file, to disk."""
        path = self._name(f"{TMP_PREFIX}{os.getpid()}-{next(_counter)}")
        with self._explained("cannot be written", needed=memoryview(data).nbytes):
            try:
                write_durably(path, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise
        return TmpFile(path, checksum_of(data))

    def publish(self, tmp: TmpFile, segment: SegmentName) -> None:
        """Give a written file its final name, in a way that survives a power failure.

        Raises:
            SpoolLockedError: the name is taken, or the file is gone: another process writes here.
            SpoolFullError: the segment is not there, and its number may be given again.
        """
        try:
            self._link(tmp, str(segment))
        except (FileExistsError, FileNotFoundError) as exc:
            raise SpoolLockedError(
                self.path, f"segment {segment.number} cannot be added ({exc.strerror}): another"
                " process has taken this spool over") from exc

    def probe(self, size: int) -> None:
        """Do all that a segment of so many bytes needs, and delete it.

        Raises:
            SpoolFullError: there is no space for it.
        """
        tmp = self.write_tmp(bytes(size))
        name = f"{os.path.basename(tmp.path)}-probe"
        self._link(tmp, name)
        self.delete(name)

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        missing = (FileNotFoundError,)
        with contextlib.suppress(*missing), self._explained("cannot be cleaned up", missing):
            os.unlink(self._name(name))

    def delete_segments(self, segments: Iterable[SegmentName]) -> None:
        """Delete segments."""
        for segment in segments:
            self.delete(str(segment))

    def delete_all_tmp(self) -> None:
        """Delete what earlier processes left half written."""
        with self._explained("cannot be listed"):
            names = [name for name in os.listdir(self.path) if name.startswith(TMP_PREFIX)]
        for name in names:
            self.delete(name)

    def delete_tmp(self, tmp: TmpFile) -> None:
        """Delete a temporary file; if that fails, the next start does it."""
        with contextlib.suppress(OSError):
            os.unlink(tmp.path)

    def _name(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _link(self, tmp: TmpFile, name: str) -> None:
        """Link, which fails where a rename would replace; then forget the other name."""
        known = (FileExistsError, FileNotFoundError)
        try:
            with self._explained("cannot link files (is it a mounted disk?)", known):
                os.link(tmp.path, self._name(name))
            try:
                with self._explained("cannot be written"):
                    sync_folder(self.path)
            except SpoolFullError:
                self._take_back(name)
                raise
        finally:
            self.delete_tmp(tmp)

    def _take_back(self, name: str) -> None:
        # If power fails now the link may be back: the next start finds it, as after a crash.
        try:
            os.unlink(self._name(name))
        except OSError as exc:  # never a SpoolFullError, after which the name may be given again
            raise SpoolError(self.path, f"{name} cannot be deleted: {exc.strerror}") from exc

    def _replace(self, name: str, data: bytes) -> None:
        tmp = self.write_tmp(data)
        try:
            with self._explained("cannot be written"):
                os.replace(tmp.path, self._name(name))
                sync_folder(self.path)
        finally:
            self.delete_tmp(tmp)

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


def _meta(topic: str, channel: str) -> bytes:
    return json.dumps({"version": FORMAT, "topic": topic, "channel": channel,
                       "id": uuid.uuid4().hex}).encode()


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
            _change_mode(folder, 0o700)  # the umask may have taken more
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    for folder in fresh:
        # The permission to create a folder does not include the one to read its parent.
        with contextlib.suppress(PermissionError):
            sync_folder(os.path.dirname(folder))


def write_durably(path: str, data: Any) -> None:
    """Write bytes to a new file and bring them to disk. Raises OSError."""
    descriptor = open_private(path)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_private(path: str) -> int:
    """Make a file for its owner alone; return its descriptor, to write. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    if os.fstat(descriptor).st_mode & 0o777 != 0o600:  # the umask has taken more
        _change_mode(descriptor, 0o600)
    return descriptor


def _change_mode(target: int | str, mode: int) -> None:
    with contextlib.suppress(PermissionError):  # a file system without modes, or of another user
        os.chmod(target, mode)


def sync_folder(path: str) -> None:
    """Bring the names in a folder to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
