"""``OutputFile``: one open file, plain or compressed, and how much of it is durable.

Records written after the last ``sync()`` belong to messages that are still in flight, and can be
rolled back after an error: a half-written record or gzip member would make the following ones
unreadable. Each ``sync()`` ends one gzip member or zstd frame; readers join them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import json
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from nsqclient.cli.flags import CommandLineError
from nsqclient.runtime.files import rename_exclusive, sync_folder
from nsqclient.runtime.log_lines import PrefixedLogger

_DIRECTORY_MODE = 0o770


#: Makes the codec of the next gzip member or zstd frame; None: no compression.
CodecFactory = Optional[Callable[[], Any]]


def gzip_codec(level: int) -> CodecFactory:
    return lambda: zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)


def zstd_codec() -> CodecFactory:
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        raise CommandLineError(
            "zstandard is missing: pip install 'nsqclient[zstd]'") from None
    make: CodecFactory = zstandard.ZstdCompressor().compressobj
    return make


class RotationRules(NamedTuple):
    size: int = 0  #: bytes; a file that has more is full
    interval: float = 0.0  #: seconds; a file that is open for longer is old


class ClosedFile(NamedTuple):
    name: str  #: with ``<REV>`` left open
    rev: int
    path: str


class OutputFile:
    """A file that grows by records.

    Args:
        name, rev: the parts of its file name.
        codec: makes the codec of each part; None: none.
        exclusive: the file must not exist; otherwise records are appended behind its last line,
            which a crash may have left unfinished.

    Raises:
        FileExistsError: only with ``exclusive``.
        OSError: it cannot be opened. All methods raise it for an error of the disk.
    """

    def __init__(
        self, name: str, rev: int, path: str, codec: CodecFactory, *, exclusive: bool, mode: int,
        now: float,
    ) -> None:
        self.name = name
        self.rev = rev
        self.path = path
        self.opened = now
        self.is_used: bool = True
        self._make_codec = codec
        self._codec: Any = None  # None: the next part has not begun
        # OutputPaths has resolved a symbolic link, and checked its target.
        kind = os.O_EXCL if exclusive else os.O_NOFOLLOW
        # O_NONBLOCK: do not wait for the reader of a FIFO.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | kind
        self._fd = os.open(path, flags, mode)
        try:
            found = os.fstat(self._fd)
            if not stat.S_ISREG(found.st_mode):  # nothing in it is durable
                raise OSError(errno.EINVAL, "it is not a regular file", path)
            #: Bytes found when it was opened, and written since, before compression.
            self.size: int = found.st_size
            self._has_name = found.st_nlink > 0  # some volumes always say 0
            self._end = self.size
            if codec is None and self.size and not _ends_with_newline(path):
                self._write(b"\n")
                self.size += 1
        except BaseException:
            os.close(self._fd)
            raise
        self._synced = (self._end, self.size)
        _sync_folder_of(path)

    @property
    def is_empty(self) -> bool:
        return self._synced[0] == 0

    def write(self, data: bytes) -> None:
        """Add records. They are durable after ``sync()``."""
        self.is_used = True
        self.size += len(data)
        if self._make_codec is not None:
            self._codec = self._codec or self._make_codec()
            data = self._codec.compress(data)
        self._write(data)

    def sync(self) -> None:
        """End the current part and wait until the disk has it. Blocks: fsync.

        Raises FileNotFoundError if another program has deleted the file.
        """
        if self._codec is not None:
            self._write(self._codec.flush())
            self._codec = None
        if self._end != self._synced[0]:
            os.fsync(self._fd)
            if self._is_deleted():
                raise FileNotFoundError(
                    errno.ENOENT, "another program has deleted the open file", self.path)
            self._synced = (self._end, self.size)

    def roll_back(self) -> bool:
        """Truncate the file to the last ``sync()``; return False if that is impossible.

        Raises nothing. If another process appends to the same file, nothing is cut off.
        """
        self._codec = None
        try:
            if self._is_deleted() or os.fstat(self._fd).st_size != self._end:
                return False
            os.ftruncate(self._fd, self._synced[0])
        except OSError:
            return False
        self._end, self.size = self._synced
        return True

    def close(self) -> None:
        """Sync and close. After an OSError it is still open.

        A compressed file without records gets an empty part: an empty file is not valid gzip.
        """
        if self._end == 0 and self._make_codec is not None:
            self._codec = self._codec or self._make_codec()
        self.sync()
        os.close(self._fd)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def _is_deleted(self) -> bool:
        return self._has_name and os.fstat(self._fd).st_nlink == 0

    def _write(self, data: bytes) -> None:
        # A full disk may take a part before it reports the error.
        view = memoryview(data)
        while view:
            count = os.write(self._fd, view)
            self._end += count
            view = view[count:]


def _sync_folder_of(path: str) -> None:
    """Make the name of a file durable, if the file system can."""
    with contextlib.suppress(OSError):
        sync_folder(os.path.dirname(path) or ".")


def _ends_with_newline(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True  # write-only for us: assume that it is complete


class OutsideError(PermissionError):
    """The name of a file leads out of its directory, with dots or by a symbolic link."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(f"{name!r} is outside of {directory}")


class WorkLock:
    """Keeps other archivers out, and remembers which files are not finished.

    The lock ends with its process. The lock file lists the unfinished files, so the next archiver
    can finish those of a killed process.
    """

    def __init__(self, path: str, what: str) -> None:
        self._files: dict[tuple[str, int], None] = {}
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = self._lines()[0].decode("ascii", "replace") or "unknown"
            os.close(self._fd)
            raise CommandLineError(
                f"{what} is in use by another archiver (process {owner}): give each archiver a"
                " --work-dir of its own") from None
        except OSError:
            os.close(self._fd)
            raise
        self.left: list[tuple[str, int]] = []
        for line in self._lines()[1:]:
            with contextlib.suppress(ValueError):  # a line that was written in part
                name, rev = json.loads(line)
                self._files[str(name), int(rev)] = None
        self.left.extend(self._files)

    def add(self, name: str, rev: int) -> None:
        """Remember a file that will be created. Blocks: fsync. Raises OSError."""
        self._files[name, rev] = None
        lines = [str(os.getpid()), *map(json.dumps, self._files)]
        data = "\n".join([*lines, ""]).encode()
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))
        os.fsync(self._fd)

    def discard(self, name: str, rev: int) -> None:
        self._files.pop((name, rev), None)

    def release(self) -> None:
        os.close(self._fd)

    def _lines(self) -> list[bytes]:
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0).split(b"\n")


class OutputPaths:
    """The work directory and the output directory; they may be the same.

    Args:
        rules: a full file is not opened again; with an interval or a codec, no file is.
        file_mode: permissions of new files, before the umask.
    """

    def __init__(
        self, output_dir: str, work_dir: str, codec: CodecFactory, rules: RotationRules,
        file_mode: int, log: PrefixedLogger,
    ) -> None:
        self._output_dir = os.path.abspath(output_dir)
        self._work_dir = os.path.abspath(work_dir)
        self._codec = codec
        self._exclusive = codec is not None or rules.interval > 0
        self._rotate_size = rules.size
        self._file_mode = file_mode
        self._log = log
        self._lock: WorkLock | None = None

    @property
    def moves(self) -> bool:
        return self._work_dir != self._output_dir

    def probe(self) -> None:
        """Check that files can be created, moved and deleted."""
        name = f".nsq_to_file-{secrets.token_hex(8)}"
        path, final = (os.path.join(each, name) for each in (self._work_dir, self._output_dir))
        try:
            _make_parents(path)
            _make_parents(final)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            if self.moves:
                _move(path, final)
        except OSError as exc:
            raise CommandLineError(f"cannot create files: {exc}") from exc
        finally:
            for each in (path, final):
                with contextlib.suppress(OSError):
                    os.unlink(each)

    def lock(self, topic: str) -> None:
        """Keep other archivers of a topic (empty: of all topics) out of the work directory."""
        if not self.moves:
            return
        path = os.path.join(self._work_dir, f".nsq_to_file-{topic}.lock")
        what = f"--work-dir {self._work_dir}" + (f" for the topic {topic}" if topic else "")
        try:
            self._lock = WorkLock(path, what)
        except OSError as exc:
            raise CommandLineError(f"cannot lock the work directory: {exc}") from exc

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def left_files(self) -> list[ClosedFile]:
        """Return the files that a killed archiver of the topic did not finish."""
        found = []
        for name, rev in [] if self._lock is None else self._lock.left:
            try:
                path = self._path(self._work_dir, name, rev)
                if not os.path.isfile(path):
                    continue
                if not name.endswith((".gz", ".zst")) and not _ends_with_newline(path):
                    with open(path, "ab") as file:
                        file.write(b"\n")
            except OSError as exc:
                self._log.error("a former archiver's file cannot be finished: %s", exc)
            else:
                found.append(ClosedFile(name, rev, path))
        return found

    def check(self, name: str) -> None:
        """Raise OutsideError if files of this name would be outside of the directories."""
        for directory in (self._work_dir, self._output_dir):
            self._path(directory, name, 0)

    def open(self, name: str, rev: int, now: float) -> OutputFile:
        """Open the first free file of a name, from revision ``rev`` on.

        Raises OutsideError, OSError.
        """
        while True:
            path = self._path(self._work_dir, name, rev)
            final = self._path(self._output_dir, name, rev)
            _make_parents(path)
            if self.moves:
                _make_parents(final)
            if not (self.moves and os.path.lexists(final)):
                try:
                    if not self._is_full(path):
                        return self._open(name, rev, path, now)
                except FileExistsError:
                    pass
            if "<REV>" not in name:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._log.debug("%s exists: trying the next revision", path)
            rev += 1

    def publish(self, file: ClosedFile) -> str:
        """Move a file to the output directory, never over another; return its path.

        After an OSError the file stays in the work directory, and may be published again.
        """
        if not self.moves:
            return file.path
        rev = file.rev
        while True:
            final = self._path(self._output_dir, file.name, rev)
            _make_parents(final)
            try:
                _move(file.path, final)
            except FileExistsError:
                self._log.warning("destination file already exists: %s", final)
                rev += 1
                continue
            self._log.info("moved finished file %s to %s", file.path, final)
            if self._lock is not None:
                self._lock.discard(file.name, file.rev)
            return final

    def _open(self, name: str, rev: int, path: str, now: float) -> OutputFile:
        if not self._exclusive:
            path = os.path.realpath(path)  # a link to another file of the directory
        if self._lock is not None:
            self._lock.add(name, rev)
        file = OutputFile(
            name, rev, path, self._codec, exclusive=self._exclusive, mode=self._file_mode, now=now)
        self._log.info("opening %s", path)
        return file

    def _is_full(self, path: str) -> bool:
        try:
            return 0 < self._rotate_size < os.stat(path).st_size
        except FileNotFoundError:
            return False

    @staticmethod
    def _path(directory: str, name: str, rev: int) -> str:
        """Return the path of a file. Follows all links below the directory except the last part."""
        base = os.path.realpath(directory)
        filled = name.replace("<REV>", f"-{rev:06d}").lstrip("/")
        folder, last = os.path.split(os.path.join(base, filled))
        path = os.path.join(os.path.realpath(folder), last)
        # The file itself may be a link, too.
        for resolved in (path, os.path.realpath(path)):
            if last in ("", ".", "..") or os.path.commonpath([base, resolved]) != base:
                raise OutsideError(directory, name)
        return os.path.join(directory, os.path.relpath(path, base))


def _make_parents(path: str) -> None:
    """Make the directories above a file; ``os.makedirs`` gives its mode only to the last one."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        _make_parents(parent)
        try:
            os.mkdir(parent, _DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(parent):
                raise


def _move(source: str, target: str) -> None:
    """Move a file without replacing one. Raises FileExistsError if ``target`` exists."""
    try:
        rename_exclusive(source, target, may_reserve=True)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
        _copy(source, target)
        os.unlink(source)
    _sync_folder_of(target)


def _copy(source: str, target: str) -> None:
    """Copy to another file system atomically: a partial target never appears."""
    partial = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.moving")
    mode = os.stat(source).st_mode & 0o777

    def create(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_EXCL, mode)

    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial)  # left by a crash during the copy
    try:
        with open(source, "rb") as reader, open(partial, "wb", opener=create) as writer:
            os.fchmod(writer.fileno(), mode)  # whatever the umask is now
            shutil.copyfileobj(reader, writer, 1024 * 1024)
            writer.flush()
            os.fsync(writer.fileno())
        rename_exclusive(partial, target, may_reserve=True)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
