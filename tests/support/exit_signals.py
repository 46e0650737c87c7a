"""How a program of the tests ends on SIGTERM and SIGINT: once, without a second interruption."""

import signal
import sys
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def exit_on_first_signal() -> None:
    """Let SIGTERM and SIGINT raise SystemExit in the main thread, the first of them alone.

    Servers and processes end in a ``finally``; a second signal must not break that off.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for each in _SIGNALS:
        signal.signal(each, end)
