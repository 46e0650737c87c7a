"""Calls between which the exception of a signal handler can do no harm."""

from __future__ import annotations

from _thread import LockType

from nsqclient.runtime.lock import Lock


def is_foreign(error: BaseException) -> bool:
    """Return whether an exception comes from a function that was called, as a signal handler is.

    For ``except IndexError`` and the like around calls of functions in C: what these raise has the
    traceback of the one frame that called them. A signal handler runs between any two calls, may
    raise the same type, and then its exception belongs to the caller.
    """
    traceback = error.__traceback__
    return traceback is not None and traceback.tb_next is not None


def try_lock(lock: Lock | LockType, held: list[bool]) -> bool:
    """Take the lock if it is free; return whether it was, and note it in ``held``, an empty list.

    A signal handler that raises, as Ctrl-C does, may do so just when ``acquire`` has returned and
    nothing knows the result yet. So the note is made in the same call. Call it inside the ``try``
    whose ``finally`` releases the lock ``if held == [True]``.

    Threads: any. Does not block.
    """
    held.extend(map(lock.acquire, (False,)))  # no bytecode in between
    return held[0]
