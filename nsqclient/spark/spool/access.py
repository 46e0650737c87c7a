"""Whether an executor sees the driver's spool, by the id in its folder, and why it does not."""

from __future__ import annotations

import json
import os
import pwd
import stat
from pathlib import Path

from nsqclient.spark.errors import SpoolNotVisibleError
from nsqclient.spark.spool.names import META

_OTHER_USER = "set transport=inline, or run the executors as the user that runs the driver"
_OTHER_DISK = "set transport=inline, or let all executors share that folder under the same path"


def read_id(folder: str) -> str:
    """Read the id of a spool; empty where there is none, or one of an earlier version.

    Raises OSError: the file is there and cannot be read.
    """
    try:
        found = json.loads(Path(folder, META).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return ""
    return str(found.get("id", "")) if isinstance(found, dict) else ""


def check_visible(folder: str, spool_id: str) -> None:
    """Compare a folder, as this process sees it, with the driver's.

    Args:
        spool_id: what ``read_id`` returned where the driver runs; empty: any spool will do.

    Raises:
        SpoolNotVisibleError: it is not the driver's spool, or it may not be read.
    """
    try:
        found = read_id(folder)
    except PermissionError as exc:
        raise explain_denied(folder, os.path.join(folder, META)) from exc
    if not os.path.isdir(folder):
        raise SpoolNotVisibleError(folder, "there is no such folder here", _OTHER_DISK)
    if spool_id and found != spool_id:
        raise SpoolNotVisibleError(folder, "the folder here is not the driver's", _OTHER_DISK)


def explain_denied(folder: str, path: str = "") -> SpoolNotVisibleError:
    """Build the error for a spool that this process's user may not read.

    Args:
        folder: of the spool.
        path: the file in it that was denied; empty: the folder itself.
    """
    denied = path or folder
    while True:
        try:
            found = os.stat(denied)
            break
        except OSError:
            if denied == os.path.dirname(denied):
                return SpoolNotVisibleError(folder, "permission denied", _OTHER_USER)
            denied = os.path.dirname(denied)  # it is a folder above that may not be searched
    why = (
        f"{denied} has mode {stat.S_IMODE(found.st_mode):04o} and belongs to"
        f" {user_name(found.st_uid)}, and this process runs as {user_name(os.geteuid())}")
    return SpoolNotVisibleError(folder, why, _OTHER_USER)


def user_name(uid: int) -> str:
    """Write a user as ``name (uid)``."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:  # a container may have no such name
        return f"uid {uid}"
