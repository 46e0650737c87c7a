"""``Patience``: how long a publish waits for nsqd's answer, and what follows. Pure."""

from __future__ import annotations

from enum import Enum

#: Seconds between two looks of a publish for progress, and the part of its timeout if shorter.
INTERVAL, INTERVAL_PART = 1.0, 0.25
#: Seconds between two looks while the same nsqd is dialed for comparison.
_PROBE_INTERVAL = 0.1
#: A connection idle for this many seconds may have ended without notice, as behind a load balancer.
_IDLE = 1.0


class Step(Enum):
    """The next step of a publish without an answer; the values are texts for errors."""

    WAIT = "wait on"
    PROBE = "wait on, and dial the same nsqd"
    LATE = "connected, but no answer in time"
    SILENT = "connected, but silent"
    STALLED = "connected, but no answer"
    DEAD = "no answer, but a new connection works"


class Patience:
    """Decides for one publish on one connection. All times are on one clock. Not thread-safe.

    Args:
        began, until: when the publish was sent, and its deadline.
        interval: seconds between two looks.
        used_at: when nsqd last answered a publish on this connection.
        silence: a connection without a byte for this many seconds is lost.
        progress: a value that changes while nsqd takes bytes or answers publishes.
    """

    def __init__(
        self, began: float, until: float, interval: float, used_at: float, silence: float,
        progress: object,
    ) -> None:
        self.began = began
        self.until = until
        self._interval = interval
        self._was_idle = began - used_at >= _IDLE
        self._silence = silence
        self._progress = progress
        self._has_probed = False

    def decide(
        self, now: float, progress: object, heard_at: float, has_others: bool, dialed_at: float
    ) -> Step:
        """Return what to do, when an interval is over.

        Args:
            heard_at: when the last byte arrived.
            has_others: another nsqd is connected that can take the message.
            dialed_at: when the same nsqd was last connected.
        """
        if now >= self.until:
            return Step.LATE
        if now - max(self.began, heard_at) >= self._silence:
            return Step.SILENT
        if progress != self._progress:
            self._progress = progress
            return Step.WAIT
        if has_others:
            return Step.STALLED
        if self._was_idle and dialed_at > self.began:
            return Step.DEAD
        if self._was_idle and not self._has_probed:
            self._has_probed, self._interval = True, min(self._interval, _PROBE_INTERVAL)
            return Step.PROBE
        return Step.WAIT

    def next_look(self, now: float) -> float:
        """Return when to look again."""
        return min(self.until, now + self._interval)
