"""``OutputFile``: one open file, plain or compressed, and how much of it is durable.

What is written after the last ``sync()`` belongs to messages that nsqd still holds, so it may be
rolled back after an error, and is when possible: a half-written record or gzip member in the
middle of a file would spoil what follows.

What is compressed between two ``sync()`` is one gzip member or zstd frame. Files are such parts
in a row, which every reader of the format reads as one stream; a crash costs at most the last.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import stat
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from nsqclient.cli.archive.naming import FileState
from nsqclient.cli.flags import CommandLineError


class Codec(Protocol):
    """Compresses one part of a file: a gzip member, a zstd frame."""

    def compress(self, data: bytes) -> bytes:
        """Take bytes; return those that can be written already."""
        ...

    def flush(self) -> bytes:
        """End the part; return the rest to write. The object cannot be used again."""
        ...


class Plain:
    """No compression."""

    def compress(self, data: bytes) -> bytes:
        """Return ``data``."""
        return data

    def flush(self) -> bytes:
        """Return nothing."""
        return b""


#: Makes the codec of the next part.
CodecFactory = Callable[[], Codec]


def gzip_codec(level: int) -> CodecFactory:
    """Compress to gzip members; ``level`` is 1 to 9."""

    def make() -> Codec:
        return zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

    return make


def zstd_codec(level: int) -> CodecFactory:
    """Compress to zstd frames.

    Raises:
        CommandLineError: the package ``zstandard`` is not installed, or it has no such level.
    """
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        raise CommandLineError("--zstd needs the package zstandard") from None
    highest = zstandard.MAX_COMPRESSION_LEVEL
    if not 1 <= level <= highest:
        raise CommandLineError(f"invalid --zstd-level value ({level}), should be 1-{highest}")
    compressor: Any = zstandard.ZstdCompressor(level=level)

    def make() -> Codec:
        codec: Codec = compressor.compressobj()
        return codec

    return make


class OutputFile:
    """A file that grows by records.

    Args:
        name, rev: what its name was made of.
        path: where it is.
        codec: makes the codec of each part.
        exclusive: the file must not exist; else records are appended to it.
        end_line: end a line that a crash left unfinished, lest the first record continue it.
        mode: permissions of a new file, before the umask.
        now: for the rotation.

    Raises:
        FileExistsError: only with ``exclusive``.
        OSError: it cannot be opened. All methods raise it for an error of the disk.

    Threads: one at a time.
    """

    def __init__(
        self, name: str, rev: int, path: str, codec: CodecFactory, *, exclusive: bool,
        end_line: bool, mode: int, now: float,
    ) -> None:
        self.name = name
        self.rev = rev
        self.path = path
        self.opened = now
        #: Whether anything was written since it was set to False.
        self.is_used: bool = True
        self._make_codec = codec
        self._codec: Codec | None = None  # None: the next part has not begun
        # The caller has followed a link in place of the file, and checked its target.
        kind = os.O_EXCL if exclusive else os.O_NOFOLLOW
        _refuse_special(path)
        # O_NONBLOCK: the opening of a FIFO that appears meanwhile does not wait for its reader.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | kind
        self._fd = os.open(path, flags, mode)
        try:
            #: Bytes found at the opening and written since, before compression.
            self.size: int = os.fstat(self._fd).st_size
            self._end = self.size
            if end_line and self.size and not _ends_with_newline(path):
                self._write(b"\n")
                self.size += 1
        except BaseException:
            os.close(self._fd)
            raise
        self._synced = (self._end, self.size)
        sync_directory(path)

    @property
    def current(self) -> FileState:
        """The state for the rotation."""
        return FileState(self.name, self.opened, self.size)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing in it is durable."""
        return self._synced[0] == 0

    def write(self, data: bytes) -> None:
        """Add records. They are durable after ``sync()``."""
        if self._codec is None:
            self._codec = self._make_codec()
        self.is_used = True
        self.size += len(data)
        self._write(self._codec.compress(data))

    def sync(self) -> None:
        """End the part that was begun and wait until the disk has it. Blocks: fsync."""
        if self._codec is not None:
            self._write(self._codec.flush())
            self._codec = None
        if self._end != self._synced[0]:
            os.fsync(self._fd)
            self._synced = (self._end, self.size)

    def roll_back(self) -> bool:
        """Cut off what came after the last ``sync()``; False when that is impossible.

        Raises nothing. Where another process appends to the same file nothing is cut off.
        """
        self._codec = None
        try:
            if os.fstat(self._fd).st_size != self._end:
                return False
            os.ftruncate(self._fd, self._synced[0])
        except OSError:
            return False
        self._end, self.size = self._synced
        return True

    def close(self) -> None:
        """Sync and close. After an OSError it is still open.

        A compressed file without records gets an empty part: no bytes at all are no gzip file.
        """
        if self._end == 0 and self._codec is None:
            self._codec = self._make_codec()
        self.sync()
        os.close(self._fd)

    def abandon(self) -> None:
        """Close without a sync. Raises nothing."""
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def _write(self, data: bytes) -> None:
        # A full disk may take a part of it before it reports that.
        view = memoryview(data)
        while view:
            count = os.write(self._fd, view)
            self._end += count
            view = view[count:]


def sync_directory(path: str) -> None:
    """Make the entry of a file in its directory durable, where the file system can."""
    with contextlib.suppress(OSError):
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _refuse_special(path: str) -> None:
    """Raise OSError for a FIFO or a device: nothing in it is durable, and its opening may hang."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)


def _ends_with_newline(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True  # write-only for us: assume that it is complete
