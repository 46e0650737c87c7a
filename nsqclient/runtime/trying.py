"""``try_lock``: takes a lock without waiting, so that Ctrl-C cannot leave it taken for good."""

from __future__ import annotations

import threading

_WITHOUT_WAITING = (False,)


def try_lock(lock: threading.Lock, held: list[bool]) -> bool:
    """Take the lock if it is free; tell whether it was, and note it in ``held``, an empty list.

    A signal handler that raises, as Ctrl-C does, may do so just when ``acquire`` has returned and
    nothing knows the result yet. So the note is made in the same call. Call it inside the ``try``
    whose ``finally`` releases the lock ``if held == [True]``.

    Threads: any. Does not block.
    """
    held.extend(map(lock.acquire, _WITHOUT_WAITING))  # no bytecode in between
    return held[0]
