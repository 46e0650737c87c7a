"""Decides when a consumer slows down and when it resumes: go-nsq's state machine. Does no I/O.

There is one counter for the whole consumer. A failure stops the flow (RDY 0 everywhere) for a time
that grows with the counter. Then one message is let through (RDY 1 on one connection), and the
first result after the wait decides, even if it is the result of an older message. Source: client
guide, "Backoff".
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Phase(Enum):
    FLOWING = "flowing"  #: full shares
    WAITING = "waiting"  #: RDY 0 everywhere until the wait is over
    TESTING = "testing"  #: RDY 1 on one connection, until one result is known


class Outcome(Enum):
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
        #: Failures minus successes. Stops growing when the delay would exceed the maximum.
        self.counter: int = 0

    def on_result(self, outcome: Outcome) -> float | None:
        """Record the result of one message.

        Returns: the seconds of a wait that begins now, or None. Call ``on_wait_over()`` at its end.
        """
        if self.phase is Phase.WAITING:
            return None  # only one result counts for each wait
        counter = self.counter
        if outcome is Outcome.FAILURE:
            if self._maximum <= 0:
                return None
            # The first failure always counts, or a large multiplier would turn backoff off.
            if counter == 0 or self._delay(counter + 1) <= self._maximum:
                counter += 1
        elif outcome is Outcome.SUCCESS and counter:
            counter -= 1
        # First, because the user's strategy may raise.
        wait = min(self._delay(counter), self._maximum) if counter else None
        self.counter = counter
        self.phase = Phase.WAITING if counter else Phase.FLOWING
        return wait

    def on_wait_over(self) -> None:
        if self.phase is Phase.WAITING:
            self.phase = Phase.TESTING
