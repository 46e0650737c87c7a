"""Signal handlers of the library, which a forked child replaces by those of the program.

To ignore a signal, the library sets a function, because programs started by a message handler
would inherit ``SIG_IGN``.

Until a command calls ``has_begun()``, SIGINT or SIGTERM ends the process with status 0. After the
command's end, the first signal is only noted, and a second one ends the process at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from nsqclient.runtime.forking import run_after_fork

SIGNALS = (signal.SIGINT, signal.SIGTERM)

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
