"""``WorkLock``: one archiver of a topic for each work directory, also across processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os

from nsqclient.cli.flags import CommandLineError


class WorkLock:
    """Keeps other archivers out, and remembers which files are not finished.

    The lock ends with its process. The lock file lists the unfinished files, so the next archiver
    can finish the files of a process that was killed.

    Args:
        path: the lock file.
        what: name of the locked resource, for the error.

    Raises:
        CommandLineError: another archiver has the lock.
        OSError: the file cannot be opened or locked.

    Threads: one at a time.
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
        #: Name and revision of each file that the last owner has not finished.
        self.left: list[tuple[str, int]] = []
        for line in self._lines()[1:]:
            with contextlib.suppress(ValueError):  # the rest of a longer line
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
        """Forget a file that is finished. It leaves the lock file with the next ``add``."""
        self._files.pop((name, rev), None)

    def release(self) -> None:
        """Let another archiver have the directory. The object cannot be used again."""
        os.close(self._fd)

    def _lines(self) -> list[bytes]:
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0).split(b"\n")
