"""Resets objects in a forked child.

After ``os.fork`` only the forking thread lives on in the child, and locks may be held by threads
that do not exist there. An object that owns threads or sockets registers here, and is reset.
"""

from __future__ import annotations

import logging
import os
import weakref
from typing import Protocol


logger: logging.Logger = logging.getLogger("nsqclient.forking")


class ForkResettable(Protocol):
    """Something that owns threads, locks or sockets."""

    def _reset_after_fork(self) -> None:
        """Drop what belongs to the parent. Runs in the child, in the only thread there is."""
        ...


_registered: weakref.WeakSet[ForkResettable] = weakref.WeakSet()


def register_for_fork(subject: ForkResettable) -> None:
    """Have ``subject._reset_after_fork()`` called in every child forked from now on."""
    _registered.add(subject)


def _notify_all() -> None:
    for subject in list(_registered):
        try:
            subject._reset_after_fork()
        except Exception:
            # The others must still let go of the parent's sockets.
            logger.exception("%r could not restart after a fork", subject)


os.register_at_fork(after_in_child=_notify_all)
