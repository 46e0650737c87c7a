"""Resets a forked child, which must not use the threads, locks and sockets of its parent.

A child of ``os.fork`` is reset in a fork hook. uWSGI forks its workers without Python's hooks, so
code that is about to use a socket, a lock or a thread calls :func:`check_process` first.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import Protocol

from nsqclient.runtime.lock import Lock

logger: logging.Logger = logging.getLogger("nsqclient.forking")


class ForkResettable(Protocol):
    """Owns threads, locks or sockets."""

    def _reset_after_fork(self) -> None:
        """Drop everything that belongs to the parent, without acquiring its locks."""
        ...


# Both are read by atomic calls, because another thread may register meanwhile.
_functions: list[Callable[[], object]] = []
_subjects: set[weakref.ref[ForkResettable]] = set()
#: The process in which the registered objects were created or reset.
_process_id = os.getpid()
#: Process -> the lock that guards its reset. The parent's lock may be acquired forever.
_guards: dict[int, Lock] = {}


def register_for_fork(subject: ForkResettable) -> None:
    """Call ``subject._reset_after_fork()`` in every forked child, while the subject lives."""
    _subjects.add(weakref.ref(subject, _subjects.discard))


def run_after_fork(function: Callable[[], object]) -> None:
    """Call ``function`` in every forked child, before the subjects are reset."""
    _functions.append(function)


def check_process() -> None:
    """Reset the registered objects if this is a forked child in which no fork hook ran.

    Blocks: while another thread resets them.

    Raises:
        ReentrantCallError: in a signal handler or finalizer during the reset.
    """
    process_id = os.getpid()
    if process_id != _process_id:
        with _guards.setdefault(process_id, Lock()):
            if process_id != _process_id:
                _reset()


def _reset() -> None:
    global _process_id
    for function in _functions:
        function()
    for reference in list(_subjects):
        subject = reference()
        try:
            if subject is not None:
                subject._reset_after_fork()
        except Exception:
            # The other subjects must still drop the parent's sockets.
            logger.exception("%r could not restart after a fork", subject)
    _process_id = os.getpid()
    _guards.clear()


os.register_at_fork(after_in_child=_reset)
