"""``Places``: where files are made, and where they go when they are done."""

from __future__ import annotations

import errno
import os
import shutil

from nsqclient.cli.archive.codecs import CodecFactory
from nsqclient.cli.archive.log import Log
from nsqclient.cli.archive.naming import fill_rev
from nsqclient.cli.archive.output_file import OutputFile, sync_directory

#: Mode of directories, as the original makes them.
_DIRECTORY_MODE = 0o770


class Places:
    """The work directory and the output directory; one of them may be both.

    Args:
        output_dir, work_dir: directories; made when they are needed.
        codec: for the files.
        exclusive: a file is never opened twice.
        end_line: see :class:`OutputFile`.
        rotate_size: a file that exists and has more bytes is not opened again; 0: no limit.
        log: where to say it.

    Threads: one at a time.
    """

    def __init__(
        self, output_dir: str, work_dir: str, codec: CodecFactory, *, exclusive: bool,
        end_line: bool, rotate_size: int, log: Log,
    ) -> None:
        self._output_dir = os.path.abspath(output_dir)
        self._work_dir = os.path.abspath(work_dir)
        self._codec = codec
        self._exclusive = exclusive
        self._end_line = end_line
        self._rotate_size = rotate_size
        self._log = log

    @property
    def moves(self) -> bool:
        """Tell whether files move when they are done."""
        return self._work_dir != self._output_dir

    def open(self, name: str, rev: int, now: float) -> OutputFile:
        """Open the first file of a name that may be had, from revision ``rev`` on.

        Raises:
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
        """Bring a closed file to the output directory, never over another; return its path.

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
        file = OutputFile(
            name, rev, path, self._codec, exclusive=self._exclusive, end_line=self._end_line,
            now=now,
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
        return os.path.normpath(os.path.join(directory, fill_rev(name, rev).lstrip("/")))


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
        with open(source, "rb") as reader, open(partial, "wb") as writer:
            shutil.copyfileobj(reader, writer, 1024 * 1024)
            writer.flush()
            os.fsync(writer.fileno())
        os.link(partial, target)
    finally:
        if os.path.lexists(partial):
            os.unlink(partial)
