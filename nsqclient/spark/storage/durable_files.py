"""Files that are on the disk when a call returns, and that belong to their owner alone."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any


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
