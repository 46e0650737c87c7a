"""``Signals``: lets a thread wait for signals. A forked child gets the program's handlers back.

To ignore a signal, the library sets a function, because programs started by a message handler
would inherit ``SIG_IGN``.

Until a command calls ``has_begun()``, SIGINT or SIGTERM ends the process with status 0. After the
command's end, the first signal is only noted, and a second one ends the process at once.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import select
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from types import FrameType
from typing import Any, NamedTuple

from nsqclient.runtime.forking import run_after_fork

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds. ``poll`` takes at most 24 days.
_LONGEST_POLL = 86400.0

_has_begun = False
_came = False


class _Taken(NamedTuple):
    former: Any  #: the program's handler
    current: Any  #: our handler


_taken: dict[int, _Taken] = {}


def take(number: int, handler: Callable[[int, FrameType | None], object]) -> Any:
    """Handle a signal. Main thread only.

    Returns: the value to pass to ``give_back``.
    """
    former = signal.getsignal(number)
    taken = _taken.get(number)
    # Before the handler is installed, because another thread may fork meanwhile.
    is_ours = taken is not None and taken.current == former
    _taken[number] = _Taken(taken.former if taken and is_ours else former, handler)
    signal.signal(number, handler)
    return former


def give_back(number: int, former: Any) -> None:
    """Restore what ``take`` returned. Main thread only."""
    _restore(number, former)
    taken = _taken.get(number)
    if taken is not None:
        if former == taken.former:
            del _taken[number]
        else:
            _taken[number] = taken._replace(current=former)


def disregard(number: int, frame: FrameType | None) -> None:
    """Does nothing."""


def _restore(number: int, former: Any) -> None:
    # None: the handler was set by C code, and Python cannot restore it.
    signal.signal(number, signal.SIG_DFL if former is None else former)


_masks = threading.local()


def _block() -> None:
    """Before a fork: block signals until the child has the program's handlers."""
    if _taken:
        _masks.former = signal.pthread_sigmask(signal.SIG_BLOCK, _taken)


def _unblock() -> None:
    if hasattr(_masks, "former"):
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.former)
        del _masks.former


def _give_back_all() -> None:
    """In a forked child: restore the program's handlers, unless they were replaced since."""
    taken = dict(_taken)
    _taken.clear()
    try:
        for number, (former, current) in taken.items():
            if signal.getsignal(number) == current:
                _restore(number, former)
        if taken:
            signal.set_wakeup_fd(-1)  # the parent's pipe
    except ValueError:  # not the main thread: uWSGI forked the child
        pass
    _unblock()


run_after_fork(_give_back_all)
os.register_at_fork(before=_block, after_in_parent=_unblock)


def handle_signals() -> None:
    """Handle SIGINT and SIGTERM until the end of the process. Main thread only.

    An ignored signal, such as SIGINT in a background job of a shell, stays ignored.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            take(number, _on_signal)
    ignore_at_exit()


def ignore_at_exit() -> None:
    """Ignore SIGINT and SIGTERM at shutdown, when Python restores the default handlers.

    Call it early, because ``atexit`` calls its functions in reverse order.
    """
    atexit.register(_ignore)


def has_begun() -> None:
    global _has_begun
    _has_begun = True


def note_signal() -> None:
    global _came
    _came = True


def end_at_once(number: int) -> None:
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed
        if select.select([], [2], [], 0)[1]:  # nobody may read it
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


class Second(Enum):
    """What a second SIGINT or SIGTERM does."""

    FORMER = "former"  #: what it did before ``with``, so that a second Ctrl-C interrupts
    EXIT = "exit"  #: ends the process at once with status 128 plus its number
    NOTED = "noted"  #: the same as the first one


class Signals:
    """Catches signals between ``with`` and its end. The first SIGINT or SIGTERM asks for a stop.

    A handler only writes a byte to a pipe, because the code that it interrupts may hold the lock of
    a ``threading.Event``. Outside the main thread no signal is caught.

    Args:
        second: what a second SIGINT or SIGTERM does.
        others: further signals to catch.
        on_hangup: called by :meth:`wait` after a SIGHUP; None: SIGHUP is not caught.

    Threads: ``with``, ``wait`` and ``take`` in one; ``stop`` and ``is_stopping`` in any.
    """

    def __init__(
        self, second: Second, *, others: Iterable[int] = (),
        on_hangup: Callable[[], None] | None = None,
    ) -> None:
        self._second = second
        self._numbers = [*SIGNALS, *others, *([signal.SIGHUP] if on_hangup is not None else [])]
        self._on_hangup = on_hangup
        self._received: deque[int] = deque()
        #: True after the first SIGINT or SIGTERM, or after stop().
        self.is_stopping: bool = False
        self._has_come = False
        self._former: dict[int, Any] = {}

    def stop(self) -> None:
        self.is_stopping = True
        self._wake()

    def fileno(self) -> int:
        """A descriptor for ``select``, readable when ``wait`` would return."""
        return self._read

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a stop; return whether there is one. A SIGHUP ends the timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while not self.is_stopping:
            left = math.inf if until is None else max(0.0, until - time.monotonic())
            if poll.poll(min(left, _LONGEST_POLL) * 1000):
                if signal.SIGHUP in self.take() and self._on_hangup is not None:
                    self._on_hangup()
                    if until is not None:
                        break
            elif left <= _LONGEST_POLL:
                break
        return self.is_stopping

    def take(self) -> list[int]:
        """Return the signals that have come since the last call. Call it if ``fileno`` is readable.
        """
        os.read(self._read, 4096)
        return [self._received.popleft() for _ in range(len(self._received))]

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full, so its reader wakes anyway; or nobody reads it
            os.write(self._write, b"x")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        if number in SIGNALS:
            if self._has_come and self._second is Second.EXIT:
                end_at_once(number)
            self._has_come = self.is_stopping = True
            note_signal()
            if self._second is Second.FORMER:
                self._put_back()
        self._wake()

    def _put_back(self) -> None:
        with contextlib.suppress(KeyError):  # both signals may arrive at once
            while True:
                number, former = self._former.popitem()
                if signal.getsignal(number) == self._on_signal:
                    give_back(number, former)

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        # Not closed by __exit__: a thread in stop() would write to another file of this number.
        weakref.finalize(self, os.close, self._write)
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            # The system may hand a signal to any thread, and Python's handlers run in the main
            # thread only, when it next runs Python: a byte from the C handler wakes it.
            self._former_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            for number in self._numbers:
                self._former[number] = take(number, self._on_signal)
            has_begun()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._put_back()
        if self._is_main:
            signal.set_wakeup_fd(self._former_fd)
        os.close(self._read)
