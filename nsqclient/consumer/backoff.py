"""When a consumer slows down, and when it dares again: go-nsq's machine as pure code.

One counter for the whole consumer. A failure stops the flow (RDY 0 everywhere) for a time that
grows with the counter; then one message is let through (RDY 1 on one connection), and the first
result after the wait decides, be it of that message or of an older one. Source: client guide,
"Backoff".
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Phase(Enum):
    """What the flow of messages may be."""

    FLOWING = "flowing"  #: full shares
    WAITING = "waiting"  #: RDY 0 everywhere until the wait is over
    TESTING = "testing"  #: RDY 1 on one connection, until one result is known


class Outcome(Enum):
    """How one message ended."""

    SUCCESS = "success"  #: finished
    FAILURE = "failure"  #: requeued, and the consumer should slow down
    NEUTRAL = "neutral"  #: requeued without backoff


class Backoff:
    """The state of a consumer's backoff. Not thread-safe: the caller holds a lock.

    Args:
        delay: failures in a row -> seconds.
        maximum: longest wait in seconds; 0 turns backoff off.
    """

    def __init__(self, delay: Callable[[int], float], maximum: float) -> None:
        self._delay = delay
        self._maximum = maximum
        self.phase: Phase = Phase.FLOWING
        #: Failures not yet made good; saturates where the delay would pass the maximum.
        self.counter: int = 0

    def on_result(self, outcome: Outcome) -> float | None:
        """Take the result of one message.

        Returns: the seconds of a wait that begins now (set RDY 0 everywhere, and call
        ``on_wait_over()`` when it has passed), or None. Look at ``phase`` afterwards: it is
        FLOWING again when a test succeeded for the last time.
        """
        if self.phase is Phase.WAITING:
            return None  # one result for each wait: those of older messages do not count
        counter = self.counter
        if outcome is Outcome.FAILURE:
            if self._maximum <= 0:
                return None
            # As in go-nsq the counter stops where the delay would pass the maximum; but the
            # first failure always counts, else a large multiplier would mean "no backoff".
            if counter == 0 or self._delay(counter + 1) <= self._maximum:
                counter += 1
        elif outcome is Outcome.SUCCESS and counter:
            counter -= 1
        # Before anything changes: a strategy of the user's may raise, and a phase of waiting
        # whose end nobody knows would never end.
        wait = min(self._delay(counter), self._maximum) if counter else None
        self.counter = counter
        self.phase = Phase.WAITING if counter else Phase.FLOWING
        return wait

    def on_wait_over(self) -> None:
        """The wait has passed: let one message through."""
        if self.phase is Phase.WAITING:
            self.phase = Phase.TESTING
