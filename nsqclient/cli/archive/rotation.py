"""When a file of nsq_to_file ends and the next one begins. Pure: ``now`` is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nsqclient.display import counted


class RotationRules(NamedTuple):
    """The limits of a file; 0 turns a rule off."""

    size: int = 0  #: bytes; a file that has more is full
    interval: float = 0.0  #: seconds; a file that is open for longer is old


class FileState(NamedTuple):
    """What rotation needs to know of the open file."""

    name: str  #: with ``<REV>`` left open
    opened: float  #: on the clock of ``now``
    size: int  #: bytes found at its opening and written since, before compression


def rotation_reason(current: FileState, name: str, now: float, rules: RotationRules) -> str | None:
    """Return why the next record may not go into ``current``; None when it may.

    Args:
        name: the name that a file opened now would have.
    """
    if name != current.name:
        return f"new filename {name}"
    if 0 < rules.interval < now - current.opened:
        return f"{now - current.opened:.3f}s since last open"
    if 0 < rules.size < current.size:
        return f"currently {counted(current.size, 'byte')} (> {rules.size})"
    return None


def count_that_fit(sizes: Iterable[int], size: int, rules: RotationRules) -> int:
    """How many records go into a file of ``size`` bytes before it is full.

    A file is full when it has more than the limit, so the last record may pass it, and a file
    of exactly the limit takes one more.
    """
    count = 0
    for record in sizes:
        if 0 < rules.size < size:
            break
        size += record
        count += 1
    return count
