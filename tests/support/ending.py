"""How a program of the tests ends when it is told to: once, and then in peace."""

from __future__ import annotations

import signal
import sys
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def end_once() -> None:
    """Let SIGTERM and SIGINT raise SystemExit in the main thread, the first of them alone.

    What was started ends in a ``finally``; a second signal must not break that off.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for each in _SIGNALS:
        signal.signal(each, end)
