"""When a drain has everything that was there: a snapshot in, a decision out. Pure.

NSQ does not distinguish old messages from new ones. What is known: how many waited at the start, if
the HTTP ports were asked; how many have been stored since; how many wait now; how long no message
has come.
"""

from __future__ import annotations

from typing import NamedTuple


class DrainState(NamedTuple):
    """The progress of a drain."""

    stored: int  #: since the start, copies too
    silence: float  #: seconds without a message, or since the first connection; as ``Silence``
    is_connected: bool  #: to at least one nsqd
    dials_failed: int
    is_idle: bool  #: every message that came is stored
    waiting: int  #: depth over all nsqds, where it is known
    out: int  #: in flight over all nsqds, as above
    is_complete: bool  #: the two above are known of every nsqd
    is_stale: bool  #: the nsqds were not asked, or messages have come since
    is_unknown: bool = False  #: every nsqlookupd says that no nsqd has the topic


class Drain:
    """Decides the end of one drain.

    Args:
        target: messages that waited or were in flight at the start; None: unknown, be it of one
            nsqd of many.
        idle: seconds without a message that count as the end where the depth is unknown.
        return_time: seconds after which a message that another consumer holds has surely come back.
    """

    def __init__(self, target: int | None, idle: float, return_time: float) -> None:
        self._target = target
        self._idle = idle
        self._return_time = max(idle, return_time)
        #: Seconds without a message that count as the end where the depth is unknown. If more were
        #: there at the start than came, they may still come back.
        self.patience = idle if target is None else self._return_time

    def is_over(self, now: DrainState) -> bool:
        """Return whether nothing more is to be waited for."""
        if not now.is_idle:
            return False
        if self.has_reached_target(now):
            return True
        if not now.is_connected:
            return now.is_unknown
        if now.is_stale:
            return False
        if now.waiting or now.out:
            # A paused channel; or others took some, or a crash left some: those come back, in time.
            return now.silence >= self._return_time
        return now.is_complete or now.silence >= self.patience

    def has_reached_target(self, now: DrainState) -> bool:
        """Return whether as many messages were stored as waited at the start."""
        return self._target is not None and now.stored >= self._target

    def is_hopeless(self, now: DrainState, waited: float) -> bool:
        """Return whether no nsqd can be reached at all, after that many seconds."""
        return not now.is_connected and now.dials_failed > 0 and waited >= max(5.0, self._idle)
