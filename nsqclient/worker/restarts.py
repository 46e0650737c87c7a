"""When a child that ended is started again (``RestartPolicy``), and whether one hangs. Pure."""

from __future__ import annotations

#: Seconds: a child that lives for less has died at once.
AT_ONCE = 5.0
#: Seconds: after a child that lived for so long the pauses begin again at 0.
_GOOD_LIFE = 60.0
#: Deaths at once in a row after which the worker ends.
MOST_DEATHS = 5
#: Seconds before a start, which double with each death in a row, and the longest pause.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
#: Seconds that count at most between two looks at a child.
_LONGEST_LOOK = 1.0


class RestartPolicy:
    """Counts the deaths of one child and its successors.

    Args:
        at_once: seconds that a child has to live; before that it has died at once.
    """

    def __init__(self, at_once: float = AT_ONCE) -> None:
        self._at_once = at_once
        self.deaths: int = 0  #: at once, in a row
        self._pauses = 0  # in a row

    def on_death(self, lived: float, has_started: bool) -> float | None:
        """Return the seconds until the next start; None: that is enough.

        Args:
            lived: seconds since the child was made.
            has_started: whether it came to consume.
        """
        if has_started and lived >= self._at_once:
            self.deaths = 0
            if lived >= _GOOD_LIFE:
                self._pauses = 0
                return 0.0
        else:
            self.deaths += 1
            if self.deaths >= MOST_DEATHS:
                return None
        self._pauses += 1
        return min(_FIRST_PAUSE * 2.0 ** min(self._pauses - 1, 16), _LONGEST_PAUSE)


class Silence:
    """How long a child has reported nothing.

    Args:
        limit: seconds after which it hangs; 0: it never does.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._seconds = 0.0

    def on_report(self) -> None:
        """The child has reported."""
        self._seconds = 0.0

    def add(self, elapsed: float) -> None:
        """Time has passed since the last look.

        Args:
            elapsed: in seconds. A long time counts as a short one: the supervisor was suspended
                itself, as by Ctrl-Z together with its children.
        """
        self._seconds += min(elapsed, _LONGEST_LOOK)

    @property
    def is_too_long(self) -> bool:
        """Whether the child hangs."""
        return 0 < self._limit <= self._seconds
