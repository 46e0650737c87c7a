"""``Signals``: lets the main thread of a tool wait for SIGINT, SIGTERM and SIGHUP."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from nsqclient.runtime import process_signals

_STOP, _HANGUP = b"s", b"h"


class Signals:
    """Records signals between ``with`` and its end.

    The first SIGINT or SIGTERM asks for an orderly stop, the second ends the process at once with
    status 128 plus its number. A handler only writes a byte to a pipe: ``threading.Event.set``
    could hang on a lock of the interrupted thread.

    Args:
        on_hangup: called by :meth:`wait` after a SIGHUP; None: SIGHUP ends the process.

    Threads: ``with`` and ``wait`` in the main thread; ``stop`` and ``is_stopping`` in any.
    """

    def __init__(self, on_hangup: Callable[[], None] | None = None) -> None:
        self.on_hangup = on_hangup
        self._stopping = False
        self._signalled = False
        self._former: dict[int, Any] = {}

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        self._stopping = True
        self._note(_STOP)

    def fileno(self) -> int:
        """A descriptor for ``select``, readable when ``wait`` would return."""
        return self._read

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a stop; return whether there is one. A SIGHUP ends the timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._stopping:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._read], [], [], left)[0]:
                break
            # Other bytes only wake this thread, so that Python runs the handlers here.
            if _HANGUP in os.read(self._read, 512):
                if self.on_hangup is not None:
                    self.on_hangup()
                if until is not None:
                    break
        return self._stopping

    def _note(self, what: bytes) -> None:
        try:
            os.write(self._write, what)
        except BlockingIOError:
            pass  # the pipe is full, so ``wait`` returns anyway

    def _on_stop(self, signum: int, _frame: FrameType | None) -> None:
        if self._signalled:
            process_signals.end_at_once(signum)
        self._signalled = True
        process_signals.note_signal()
        self.stop()

    def _on_hangup(self, _signum: int, _frame: FrameType | None) -> None:
        self._note(_HANGUP)

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        if threading.current_thread() is threading.main_thread():
            # The system may hand a signal to any thread, and Python's handlers run in the main
            # thread only, when it next runs Python: a byte from the C handler wakes it.
            self._former_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            for signum in process_signals.SIGNALS:
                self._former[signum] = process_signals.take(signum, self._on_stop)
            if self.on_hangup is not None:
                self._former[signal.SIGHUP] = process_signals.take(
                    signal.SIGHUP, self._on_hangup)
            process_signals.has_begun()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for signum, former in self._former.items():
            process_signals.give_back(signum, former)
        if self._former:
            signal.set_wakeup_fd(self._former_fd)
        os.close(self._read)
        os.close(self._write)
