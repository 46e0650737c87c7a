"""When a file ends and the next one begins. Pure: ``now`` is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nsqclient.runtime.plurals import counted


class Rules(NamedTuple):
    """What the flags say; 0 turns a rule off."""

    size: int = 0  #: bytes; a file that has more is full
    interval: float = 0.0  #: seconds; a file that is open for longer is old


class Current(NamedTuple):
    """The file that is open."""

    name: str  #: with ``<REV>`` left open
    opened: float  #: on the clock of ``now``
    size: int  #: bytes found at its opening and written since, before compression


def rotation_reason(current: Current, name: str, now: float, rules: Rules) -> str | None:
    """Say why the next record may not go into ``current``; None when it may.

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


def next_rev(previous: tuple[str, int] | None, name: str) -> int:
    """The first revision to try: one more than the last for the same name, else 0."""
    return previous[1] + 1 if previous is not None and previous[0] == name else 0


def count_that_fit(sizes: Iterable[int], size: int, rules: Rules) -> int:
    """How many records go into a file of ``size`` bytes before it is full.

    A file is full when it has more than the limit, so the last record may pass it, and one that
    has exactly the limit takes one more.
    """
    count = 0
    for record in sizes:
        if 0 < rules.size < size:
            break
        size += record
        count += 1
    return count
