"""``OutputPaths``: where files are created, and where they move when they are finished."""

from __future__ import annotations

import errno
import os
import shutil
from typing import BinaryIO

from nsqclient.cli.archive.naming import fill_rev
from nsqclient.cli.archive.output_file import CodecFactory, OutputFile, sync_directory
from nsqclient.runtime.log_lines import PrefixedLogger

#: Mode of directories, as the original makes them.
_DIRECTORY_MODE = 0o770


class OutsideError(PermissionError):
    """The name of a file leads out of its directory, with dots or by a symbolic link."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(f"{name!r} is outside of {directory}")


class OutputPaths:
    """The work directory and the output directory; they may be the same.

    Args:
        output_dir, work_dir: directories; created when they are needed.
        codec: for the files.
        exclusive: a file is never opened twice.
        end_line: see :class:`OutputFile`.
        rotate_size: a file that exists and has more bytes is not opened again; 0: no limit.
        file_mode: permissions of new files, before the umask.
        log: for files that are opened and moved.

    Threads: one at a time.
    """

    def __init__(
        self, output_dir: str, work_dir: str, codec: CodecFactory, *, exclusive: bool,
        end_line: bool, rotate_size: int, file_mode: int, log: PrefixedLogger,
    ) -> None:
        self._output_dir = os.path.abspath(output_dir)
        self._work_dir = os.path.abspath(work_dir)
        self._codec = codec
        self._exclusive = exclusive
        self._end_line = end_line
        self._rotate_size = rotate_size
        self._file_mode = file_mode
        self._log = log

    @property
    def moves(self) -> bool:
        """Return whether files move when they are finished."""
        return self._work_dir != self._output_dir

    def check(self, name: str) -> None:
        """Check that the files of a name are inside of both directories, as they are now.

        Raises:
            OutsideError: they are not.
        """
        for directory in (self._work_dir, self._output_dir):
            self._path(directory, name, 0)

    def open(self, name: str, rev: int, now: float) -> OutputFile:
        """Open the first file of a name that is free, from revision ``rev`` on.

        Raises:
            OutsideError: it would not be inside of its directory.
            OSError: directories or file cannot be made.
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

    def publish(self, file: OutputFile) -> str:
        """Move a closed file to the output directory, never over another; return its path.

        Raises:
            OSError: it stays where it is, and may be published again.
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
            return final

    def _open(self, name: str, rev: int, path: str, now: float) -> OutputFile:
        if not self._exclusive:
            path = os.path.realpath(path)  # a link to another file of the directory
        file = OutputFile(
            name, rev, path, self._codec, exclusive=self._exclusive, end_line=self._end_line,
            mode=self._file_mode, now=now,
        )
        self._log.info("opening %s", path)
        return file

    def _is_full(self, path: str) -> bool:
        try:
            return 0 < self._rotate_size < os.stat(path).st_size
        except FileNotFoundError:
            return False

    @staticmethod
    def _path(directory: str, name: str, rev: int) -> str:
        """The path of a file, with all links below the directory followed but in its last part."""
        base = os.path.realpath(directory)
        folder, last = os.path.split(os.path.join(base, fill_rev(name, rev).lstrip("/")))
        path = os.path.join(os.path.realpath(folder), last)
        # The file itself may be a link, too.
        for resolved in (path, os.path.realpath(path)):
            if last in ("", ".", "..") or os.path.commonpath([base, resolved]) != base:
                raise OutsideError(directory, name)
        return os.path.join(directory, os.path.relpath(path, base))


def _make_parents(path: str) -> None:
    """Make the directories above a file. ``os.makedirs`` gives its mode to the last one only."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        _make_parents(parent)
        try:
            os.mkdir(parent, _DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(parent):
                raise


def _move(source: str, target: str) -> None:
    """Move a file without ever replacing one. FileExistsError where ``target`` exists."""
    try:
        os.link(source, target)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
        _copy(source, target)
    sync_directory(target)
    os.unlink(source)


def _copy(source: str, target: str) -> None:
    """Copy to another file system; the target appears whole or not at all."""
    partial = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.moving")
    try:
        with open(source, "rb") as reader, _create_like(reader, partial) as writer:
            shutil.copyfileobj(reader, writer, 1024 * 1024)
            writer.flush()
            os.fsync(writer.fileno())
        os.link(partial, target)
    finally:
        if os.path.lexists(partial):
            os.unlink(partial)


def _create_like(source: BinaryIO, path: str) -> BinaryIO:
    """Open a new file that has the permissions of another one from the start."""
    if os.path.lexists(path):
        os.unlink(path)  # of a copy that a crash cut off
    mode = os.fstat(source.fileno()).st_mode & 0o777
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    os.fchmod(descriptor, mode)  # whatever the umask is now
    return os.fdopen(descriptor, "wb")
