"""SIGINT and SIGTERM as a flag to wait for, for a consumer that runs in the main thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Flag:
    """Set once, by a signal handler, and waited for by the thread that it interrupts.

    Not an Event: its lock may be held by the very code that the handler interrupts, which would
    then wait for itself.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Set it. Call it once only."""
        self._unset.release()

    def wait(self, timeout: float) -> bool:
        """Wait until it is set; False when it was not, in this time. Not after it was true."""
        return self._unset.acquire(timeout=timeout)


@contextmanager
def first_signal() -> Iterator[Flag]:
    """Yield a flag that the first SIGINT or SIGTERM sets.

    The former handlers are put back with the first signal, so a second Ctrl-C interrupts, and at
    the end of the block. Outside the main thread no signal is caught.
    """
    came = Flag()
    former: dict[int, Any] = {}

    def put_back() -> None:
        while former:
            signum, handler = former.popitem()
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if former:  # the first one: both signals may be under way at once
            put_back()
            came.set()

    if threading.current_thread() is threading.main_thread():
        for signum in _SIGNALS:
            former[signum] = signal.signal(signum, on_signal)
    try:
        yield came
    finally:
        put_back()
