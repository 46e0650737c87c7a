"""When an nsqd has stopped to deliver although RDY allows it. Pure.

nsqd compares RDY with its own count of the messages in flight. If that count is too high, it
delivers nothing and reports no error: the connection must be replaced.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: A connection is replaced at most once in msg_timeout; without success less and less often.
_LONGEST_PATIENCE = 32


class Observed(NamedTuple):
    """One connection at the time of a look."""

    connection: object
    received: int  #: messages that have arrived on it
    rdy: int
    in_flight: int
    msg_timeout: float


@dataclass
class _Silence:
    connection: object = None
    received: int = 0
    seconds: float = 0.0  # with RDY above 0, nothing in flight, and no message
    patience: int = 1  # in units of msg_timeout


class StarvationWatch:
    """Measures for how long each nsqd was silent, and says which to replace.

    Only ``longest_look`` seconds count between two looks: after more, this process was suspended
    or busy, and nsqd is not the cause of the silence. Not thread-safe.
    """

    def __init__(self, longest_look: float) -> None:
        self._longest_look = longest_look
        self._looked: float | None = None
        self._silences: dict[Hashable, _Silence] = {}

    def look(self, now: float, seen: Mapping[Hashable, Observed]) -> list[Hashable]:
        """Return the keys of the nsqds that were silent for too long."""
        waited = 0.0 if self._looked is None else min(now - self._looked, self._longest_look)
        self._looked = now
        # The patience with an nsqd stays while its connection is replaced.
        self._silences = {key: one for key, one in self._silences.items()
                          if key in seen or one.patience > 1}
        found = []
        for key, one in seen.items():
            silence = self._silences.setdefault(key, _Silence())
            if one.connection is not silence.connection:
                silence.connection, silence.received, silence.seconds = one.connection, 0, 0.0
            if one.received != silence.received:
                silence.received, silence.patience = one.received, 1
                silence.seconds = 0.0
            elif one.rdy <= 0 or one.in_flight:
                silence.seconds = 0.0
            else:
                silence.seconds += waited
                if silence.seconds >= one.msg_timeout * silence.patience:
                    found.append(key)
        return found

    def reset(self, key: Hashable, *, replaced: bool = False) -> None:
        """Begin to count again: nothing waits at this nsqd, or its connection was ``replaced``."""
        silence = self._silences.get(key)
        if silence is not None:
            silence.seconds = 0.0
            if replaced:
                silence.patience = min(2 * silence.patience, _LONGEST_PATIENCE)
