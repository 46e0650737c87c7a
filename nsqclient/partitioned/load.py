"""``PartitionLoad``: which partitions publishes use now, and which ones leave them unanswered."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

#: Most asynchronous publishes to one nsqd at once; most of them that partitions which left
#: publishes unanswered may occupy, so that others always get their turn.
MAX_AT_ONCE, _MAX_SUSPECT = 32, 16
#: Seconds for which a partition that left a publish unanswered may leave further ones so.
_SUSPECT_TIME = 5.0


class _Attempt(NamedTuple):
    nsqd: str
    name: str  #: the topic and the partition
    began: float  #: on time.monotonic()
    is_async: bool


class PartitionLoad:
    """Thread-safe without a lock: its dicts are changed and copied by single calls."""

    def __init__(self) -> None:
        self._suspects: dict[tuple[str, str], float] = {}  # (nsqd, name) -> until when
        self._under_way: dict[object, _Attempt] = {}

    @contextlib.contextmanager
    def attempt(self, nsqd: str, name: str, is_async: bool) -> Iterator[None]:
        """The block publishes to a partition: ``name``, its topic and number."""
        ticket = object()
        try:
            self._under_way[ticket] = _Attempt(nsqd, name, time.monotonic(), is_async)
            yield
        finally:
            self._under_way.pop(ticket, None)

    def note(self, nsqd: str, name: str, is_answered: bool, seconds: float) -> None:
        """Record whether a partition answered a publish within ``seconds``."""
        if not is_answered:
            self._suspects[nsqd, name] = time.monotonic() + seconds + _SUSPECT_TIME
        elif self._suspects:
            self._suspects.pop((nsqd, name), None)

    def unanswered(self, seconds: float) -> set[str]:
        """Return the partitions that left a publish unanswered for so long, or just did.

        0 seconds: also partitions that a publish uses just now.
        """
        now = time.monotonic()
        under_way = self._under_way.copy().values()
        found = {attempt.name for attempt in under_way if attempt.began <= now - seconds}
        found.update(name for (_, name), until in self._suspects.copy().items() if until > now)
        return found

    def may_begin(self, nsqd: str, name: str) -> bool:
        """True if another asynchronous publish to that partition may begin."""
        beside = [attempt for attempt in self._under_way.copy().values()
                  if attempt.is_async and attempt.nsqd == nsqd]
        if len(beside) >= MAX_AT_ONCE:
            return False
        now = time.monotonic()
        suspects = {name for (_, name), until in self._suspects.copy().items() if until > now}
        return name not in suspects or (
            len([one for one in beside if one.name in suspects]) < _MAX_SUSPECT)
