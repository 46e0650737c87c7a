"""When a drain of the source has everything that was there: it asks ``drain_decision``. Pure.

It may end earlier than a drain of a consumer: when as many messages are stored as were there at its
start, so that a topic to which others publish all the time has an end.
"""

from __future__ import annotations

from typing import NamedTuple

from nsqclient.consumer.drain_decision import (
    DepthHistory, DrainRules, NsqdState, Step, decide,
)
from nsqclient.http.channel_depth import ChannelDepths

#: The most seconds between two looks that count: in the rest the process was suspended, or busy.
_LONGEST_LOOK = 0.5


class Progress(NamedTuple):
    """The progress of a drain."""

    stored: int  #: since the start, without copies
    last_arrival: float  #: when a message came, or a connection was made
    silence: float  #: seconds since then, as ``Silence``
    is_connected: bool  #: to at least one nsqd
    is_idle: bool  #: every message that came is stored


class Drain:
    """Decides the end of one drain.

    Args:
        target: messages that waited or were in flight at the start; None: unknown, be it of one
            nsqd of many.
    """

    def __init__(self, target: int | None, rules: DrainRules) -> None:
        self._target = target
        self._rules = rules
        self._history = DepthHistory(rules, _LONGEST_LOOK)
        self._last_arrival = 0.0

    def note(self, asked: float, depths: ChannelDepths, now: float) -> None:
        """Note what the nsqds said when they were asked at that time."""
        self._history.on_answer(asked, depths, now)

    def decide(self, progress: Progress, now: float) -> Step:
        """Return what the drain does next; ``FLUSH`` is not returned."""
        if progress.last_arrival != self._last_arrival:
            self._last_arrival = progress.last_arrival
            self._history.on_change(progress.last_arrival, is_message=True)
        if not progress.is_idle:
            return Step.WAIT
        if self.has_reached_target(progress):
            return Step.END
        return decide(self._rules, self._history.state(
            now, was_connected=progress.is_connected, are_all_connected=progress.is_connected,
            silence=progress.silence, quiet=progress.silence))

    def nsqds(self, progress: Progress, now: float) -> tuple[NsqdState, ...]:
        """Return what is known of each nsqd."""
        return self._history.nsqds(now, progress.silence)

    def has_reached_target(self, progress: Progress) -> bool:
        """Return whether as many messages were stored as were there at the start."""
        return self._target is not None and progress.stored >= self._target
