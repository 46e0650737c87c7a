"""SIGINT and SIGTERM in the process of a command, before and after the command handles them itself.

Before, nothing has begun, and the first signal ends the process with status 0, at once. After, the
command has ended, and its status is under way: only a second signal changes it. Programs that
import the library have no part in this.
"""

from __future__ import annotations

import atexit
import os
import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_has_begun = False
_came = False


def handle_signals() -> None:
    """Handle both signals until the end of the process, where nothing else does.

    A signal that is ignored, such as SIGINT in a background job of a shell, stays so. Call it in
    the main thread.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    # The first function that is registered is the last that is called. Later, the interpreter
    # would replace a handler in Python by the default.
    atexit.register(_ignore)


def has_begun() -> None:
    """Note that the command handles signals itself from now on. Call it when it does."""
    global _has_begun
    _has_begun = True


def note_signal() -> None:
    """Note that the command has received a signal. The next one after its end is the second."""
    global _came
    _came = True


def end_at_once(number: int) -> None:
    """End the process on a second signal, with status 128 plus its number."""
    os.write(2, b"second signal: ending at once\n")
    os._exit(128 + number)


def _on_signal(number: int, frame: FrameType | None) -> None:
    if not _has_begun:
        os._exit(0)
    if _came:
        end_at_once(number)
    note_signal()


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
