"""Tells objects that they woke up in a forked child.

After ``os.fork`` only the forking thread lives on in the child, and locks may be held by threads
that do not exist there. Whoever owns threads or sockets registers here, and starts afresh.
"""

from __future__ import annotations

import logging
import os
import weakref
from typing import Protocol


logger = logging.getLogger("nsqclient.forking")


class ForkAware(Protocol):
    """Something that owns threads, locks or sockets."""

    def after_fork_in_child(self) -> None:
        """Drop what belongs to the parent. Runs in the child, in the only thread there is."""
        ...


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def notify_after_fork(subject: ForkAware) -> None:
    """Have ``subject.after_fork_in_child()`` called in every child forked from now on."""
    _registered.add(subject)


def _after_fork_in_child() -> None:
    for subject in list(_registered):
        try:
            subject.after_fork_in_child()
        except Exception:
            # The others must still let go of the parent's sockets.
            logger.exception("%r could not start afresh after a fork", subject)


os.register_at_fork(after_in_child=_after_fork_in_child)
