"""When everything that was there has come: a snapshot in, a verdict out. Pure.

NSQ cannot tell old messages from new ones. What can be known: how many waited at the start, where
the HTTP ports were asked; how many have been stored since; how many wait now; how long it has
been silent.
"""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """How far a drain is."""

    stored: int  #: since the start, copies too
    silence: float  #: seconds without a message, or since the first connection
    is_connected: bool  #: to at least one nsqd
    dials_failed: int
    is_idle: bool  #: nothing that came is still to be stored
    waiting: int | None  #: depth over all nsqds; None: nobody answers
    out: int | None  #: in flight over all nsqds, as above
    is_stale: bool  #: messages have come since these two were asked for
    is_unknown: bool = False  #: every nsqlookupd says that no nsqd has the topic


class Drain:
    """Decides the end of one drain.

    Args:
        target: messages that waited or were out at the start; None: nobody could be asked.
        idle: seconds of silence that count as the end where nothing else is known.
        return_time: seconds after which a message that somebody holds has surely come back.
    """

    def __init__(self, target: int | None, idle: float, return_time: float) -> None:
        self._target = target
        self._idle = idle
        self._return_time = max(idle, return_time)

    def is_over(self, now: Progress) -> bool:
        """Tell whether nothing more is to be waited for."""
        if not now.is_idle:
            return False
        if self._target is not None and now.stored >= self._target:
            return True
        if not now.is_connected:
            return now.is_unknown
        if now.is_stale:
            return False
        if now.waiting is None:
            return now.silence >= self._idle
        if now.waiting:
            return now.silence >= self._return_time  # a paused channel, or others have the turn
        # Others took some of it, or a crash had left some out: those come back, in time.
        return now.out == 0 or now.silence >= self._return_time

    def is_hopeless(self, now: Progress, waited: float) -> bool:
        """Tell whether no nsqd can be reached at all, after that many seconds."""
        return not now.is_connected and now.dials_failed > 0 and waited >= max(5.0, self._idle)
