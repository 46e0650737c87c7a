"""``OutputFile``: one open file, of which it is known up to where it is safe on the disk.

What is written after the last ``sync()`` belongs to messages that nsqd still holds, so it may be
rolled back after an error, and is when possible: a half-written record or gzip member in the
middle of a file would spoil what follows.
"""

from __future__ import annotations

import contextlib
import os

from nsqclient.cli.archive.codecs import Codec, CodecFactory
from nsqclient.cli.archive.rotation import Current


class OutputFile:
    """A file that grows by records.

    Args:
        name, rev: what its name was made of.
        path: where it is.
        codec: makes the codec of each part.
        exclusive: the file must not exist; else records are appended to one that does.
        end_line: end a line that a crash left unfinished, lest the first record continue it.
        mode: permissions of a new file, before the umask.
        now: for the rotation.

    Raises:
        FileExistsError: only with ``exclusive``.
        OSError: it cannot be opened. So do all methods, when the disk refuses.

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
        #: Whether anything came since the last look of whoever sets it to False.
        self.is_used = True
        self._make_codec = codec
        self._codec: Codec | None = None  # None: the next part has not begun
        # A link in place of the file was followed by the caller, who saw where it leads.
        kind = os.O_EXCL if exclusive else os.O_NOFOLLOW
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | kind, mode)
        try:
            #: Bytes found at the opening and written since, before compression.
            self.size = self._end = os.fstat(self._fd).st_size
            if end_line and self.size and not _ends_with_newline(path):
                self._write(b"\n")
                self.size += 1
        except BaseException:
            os.close(self._fd)
            raise
        self._synced = (self._end, self.size)
        sync_directory(path)

    @property
    def current(self) -> Current:
        """What the rotation needs to know."""
        return Current(self.name, self.opened, self.size)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is safe in it."""
        return self._synced[0] == 0

    def write(self, data: bytes) -> None:
        """Add records. They are safe after ``sync()``."""
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
        """Cut off what came after the last ``sync()``; False when that cannot be.

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
        """Close without a look at what is in it. Raises nothing."""
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def _write(self, data: bytes) -> None:
        # The disk may take a part of it before it says that it is full.
        view = memoryview(data)
        while view:
            count = os.write(self._fd, view)
            self._end += count
            view = view[count:]


def sync_directory(path: str) -> None:
    """Make the entry of a file in its directory safe, where the file system can."""
    with contextlib.suppress(OSError):
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _ends_with_newline(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True  # write-only for us: believe that it is whole
