"""SIGINT and SIGTERM as an event, for a consumer that runs in the main thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def first_signal() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets.

    The former handlers are put back with the first signal, so a second Ctrl-C interrupts, and at
    the end of the block. Outside the main thread no signal is caught.
    """
    came = threading.Event()
    former: dict[int, Any] = {}

    def put_back() -> None:
        for signum, handler in former.items():
            signal.signal(signum, handler)

    def on_signal(signum: int, frame: FrameType | None) -> None:
        put_back()
        came.set()

    if threading.current_thread() is threading.main_thread():
        for signum in _SIGNALS:
            former[signum] = signal.signal(signum, on_signal)
    try:
        yield came
    finally:
        put_back()
