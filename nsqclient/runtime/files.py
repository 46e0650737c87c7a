"""Renames a file without replacing another one, also on volumes without hard links."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any

#: Errors of link() on a volume without hard links: FAT, SMB, and most of FUSE.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
#: Errors of renameat2() if the kernel or the volume does not know its flag.
_NO_FLAG = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1


def rename_exclusive(source: str, target: str, *, may_reserve: bool = False) -> None:
    """Rename a file without replacing an existing ``target``.

    Args:
        may_reserve: on a volume with neither hard links nor RENAME_NOREPLACE (gcsfuse), reserve
            the name with an empty file. Others may see it, and a crash may leave it.

    Raises:
        FileExistsError: ``target`` exists.
        OSError: the file was not renamed.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        # Over NFS the link may exist although link() failed; a crash may have left both names.
        if not os.path.samefile(source, target):
            raise
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        _rename_without_link(source, target, may_reserve)
        return
    os.unlink(source)


def _rename_without_link(source: str, target: str, may_reserve: bool) -> None:
    import ctypes  # here, since it takes milliseconds

    rename: Any = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        names = os.fsencode(source), os.fsencode(target)
        if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in _NO_FLAG:
            raise OSError(code, os.strerror(code), source, None, target)
    if not may_reserve:
        raise OSError(errno.EOPNOTSUPP, "the volume has neither hard links nor a rename that"
                      " replaces nothing", source, None, target)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        os.rename(source, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(target)
        raise


def sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
