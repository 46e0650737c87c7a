"""``LocalStore``: a folder, of this machine or mounted from another one (NFS, CephFS)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from nsqclient.runtime.files import rename_exclusive, sync_folder
from nsqclient.spark.errors import ObjectNotFoundError, StorageError, StorageFullError
from nsqclient.spark.storage import Store, StoredObject, is_ours

TMP_PREFIX = ".tmp-"
_counter = itertools.count()
#: Bytes reserved for small objects, which deletions of segments need; at most this fraction of the
#: disk.
_RESERVED, _RESERVED_PART = 1024 * 1024, 8
_FULL = (errno.ENOSPC, errno.EDQUOT)
#: Attempts of a create, whose folder may be deleted meanwhile because it is empty.
_TRIES = 5


class LocalStore(Store):
    """Objects are files: written under a temporary name, synced to disk, then linked to their name.

    A link fails if the name exists, on network file systems too; see ``rename_exclusive`` for
    volumes without links. Only the owner may read files and folders.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def url(self) -> str:
        return f"file://{self._path}"

    @contextlib.contextmanager
    def _explained(self, doing: str, needed: int = 0) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            reason = f"{doing}: {exc.strerror or exc}"
            if exc.errno in _FULL:
                raise StorageFullError(self.url, reason, needed) from exc
            raise StorageError(self.url, reason) from exc

    def create(self, key: str, data: Any) -> bool:
        path = self._name(key)
        # Unique on all machines and in all processes.
        name = f"{TMP_PREFIX}{socket.gethostname()}-{os.getpid()}-{next(_counter)}"
        tmp = os.path.join(os.path.dirname(path), name)
        with self._explained(f"{key} cannot be written", len(data)):
            for left in reversed(range(_TRIES)):
                try:
                    return self._link(tmp, path, data)
                except FileExistsError:
                    break
                except FileNotFoundError:
                    if not left:
                        raise
        return is_ours(self, key, bytes(data))  # NFS may report an error for a link that was made

    def _link(self, tmp: str, path: str, data: Any) -> bool:
        make_durably(os.path.dirname(path))
        try:
            write_durably(tmp, data)
            rename_exclusive(tmp, path)
            sync_folder(os.path.dirname(path))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(tmp)
        return True

    def read(self, key: str) -> bytes:
        with self._explained(f"{key} cannot be read"):
            try:
                with open(self._name(key), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                raise ObjectNotFoundError(self.url, key) from None

    def list_objects(self, folder: str, after: str = "") -> list[StoredObject]:
        """Folders in which all keys are before ``after`` are not opened."""
        found: list[StoredObject] = []
        with self._explained(f"{folder} cannot be listed"):
            self._walk(folder, after, found)
        return sorted(found)

    def _walk(self, folder: str, after: str, found: list[StoredObject]) -> None:
        try:
            entries = os.scandir(self._name(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                key = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith(TMP_PREFIX):
                    continue
                if entry.is_dir():
                    if f"{key}/" > after or after.startswith(f"{key}/"):
                        self._walk(key, after, found)
                elif key > after:
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        file = entry.stat()
                        found.append(StoredObject(key, file.st_size, file.st_mtime))

    def list_folders(self, folder: str) -> list[str]:
        with self._explained(f"{folder or 'it'} cannot be listed"):
            try:
                with os.scandir(self._name(folder)) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir())
            except FileNotFoundError:
                return []

    def delete(self, keys: Iterable[str]) -> None:
        """Empty folders are deleted too."""
        folders = set()
        with self._explained("cannot be cleaned up"):
            for key in keys:
                path = self._name(key)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                folders.add(os.path.dirname(path))
        for folder in folders:
            with contextlib.suppress(OSError):
                while folder != self._path:
                    os.rmdir(folder)
                    folder = os.path.dirname(folder)

    def missing_space(self, size: int) -> int:
        with self._explained("the free space is not known"):
            try:
                disk = os.statvfs(self._path)
            except FileNotFoundError:
                return 0  # nothing is stored yet
        reserved = min(_RESERVED, disk.f_blocks * disk.f_frsize // _RESERVED_PART)
        return max(0, size + reserved - disk.f_bavail * disk.f_frsize)

    def _name(self, key: str) -> str:
        return os.path.join(self._path, *key.split("/"))


# -- files and folders that are durable when a call returns, and accessible only to their owner

def make_durably(path: str) -> None:
    """Create a folder that only its owner can access, and sync the new names to disk.

    Raises OSError.
    """
    fresh = []
    folder = path
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        fresh.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(fresh):  # os.makedirs() applies its mode only to the last folder
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            _change_mode(folder, 0o700)  # the umask may have removed permissions
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    for folder in fresh:
        # The parent may be writable but not readable.
        with contextlib.suppress(PermissionError):
            sync_folder(os.path.dirname(folder))


def write_durably(path: str, data: Any) -> None:
    """Write bytes to a new file and sync it to disk. Raises OSError."""
    descriptor = open_private(path)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_private(path: str) -> int:
    """Create a file that only its owner can access; return its descriptor. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    if os.fstat(descriptor).st_mode & 0o777 != 0o600:  # the umask has removed permissions
        _change_mode(descriptor, 0o600)
    return descriptor


def _change_mode(target: int | str, mode: int) -> None:
    with contextlib.suppress(PermissionError):  # a file system without modes, or another user's
        os.chmod(target, mode)
