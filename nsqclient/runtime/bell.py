"""``Bells``: each wakes the one thread that sleeps at it, and leaves it the interpreter.

``threading.Lock.release()`` wakes a waiter while the interpreter is still held: the waiter runs,
finds that, sleeps once more, and is woken once more. Ringing one of these bells is a system call
during which the interpreter is free. Knows nothing of NSQ.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread, ThreadStartError
from nsqclient.runtime.trying import is_foreign

#: Seconds after which a sleeper is woken in any case. Waiting for a ring or a point of time, where
#: the kernel does both, costs a tenth more than waiting for a ring.
TICK = 0.25
#: The same at the end, when what still sleeps is about to wake by itself.
_LAST_TICKS = 0.01
#: Ticks without a sleeper after which the thread that wakes them ends.
_IDLE = 20
#: File descriptors that bells take at most; also, of all that the process may have, the part.
_MOST, _PART = 64, 0.125


def _release(lock: threading.Lock) -> None:
    try:
        lock.release()
    except RuntimeError as exc:  # it was rung already
        if is_foreign(exc):
            raise


class Bell:
    """One thread sleeps, any other rings. A ring that nobody waits for is kept; two may be one.

    So whoever is woken looks whether what it waits for has happened, and sleeps again if not.

    Threads: ``ring`` from any, the others from one at a time. Not to be used in a forked child.
    """

    __slots__ = ("ring", "sleep", "ref", "_lock", "__weakref__")

    #: Wake the thread that sleeps. Does not block.
    ring: Callable[[], object]
    #: Wait for a ring, or for about ``TICK``.
    sleep: Callable[[], object]

    def __init__(self) -> None:
        self.ref = weakref.ref(self)
        self._lock = threading.Lock()
        self._lock.acquire()
        self.ring = partial(_release, self._lock)  # not a method: no circle
        self.sleep = partial(self._lock.acquire, True, TICK)

    def nap(self, seconds: float) -> None:
        """Wait for a ring, at most so long."""
        self._lock.acquire(timeout=seconds)

    def abandon(self) -> None:
        """In a forked child: give back what it shares with the parent's."""


if sys.platform == "linux":

    class _KernelBell(Bell):
        """An eventfd. That ``sleep`` ends without a ring is up to ``Bells``."""

        __slots__ = ("_fd",)

        def __init__(self) -> None:
            self._fd = -1
            self.ref = weakref.ref(self)
            self._fd = fd = os.eventfd(0, os.EFD_CLOEXEC)
            self.ring = partial(os.eventfd_write, fd, 1)
            self.sleep = partial(os.eventfd_read, fd)

        def nap(self, seconds: float) -> None:
            """Wait for a ring, at most so long."""
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            if poll.poll(seconds * 1000):
                self.sleep()

        def abandon(self) -> None:
            """In a forked child: give back what it shares with the parent's."""
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

        def __del__(self, close: Callable[[int], None] = os.close) -> None:
            # Not before nobody can ring it: the number may be another file's then.
            if self._fd >= 0:
                close(self._fd)


def _make() -> Bell:
    """Make the best one that can be had."""
    # Where threads are something else (gevent), to wait in the kernel would stop them all.
    if sys.platform == "linux" and type(threading.Lock()).__module__ == "_thread":
        with contextlib.suppress(OSError):  # no file descriptor is left
            return _KernelBell()
    return Bell()


def _most() -> int:
    """How many file descriptors bells may take."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if limit < 0 else min(_MOST, int(limit * _PART))


class Bells:
    """The bells of a producer, and a thread that rings those in use every ``TICK``.

    The thread, ``nsq-ticker``, is there while bells are in use, and some seconds longer.

    Threads: any.
    """

    def __init__(self) -> None:
        self._free: list[Bell] = []  # these two are changed without a lock
        self._used: set[weakref.ref[Bell]] = set()  # weak: one may get lost, by Ctrl-C
        self._most = _most()
        self._lock = threading.Lock()
        self._thread: LibraryThread | None = None  # written under _lock
        self._hurry = threading.Event()
        self._is_closed = False

    def take(self) -> Bell:
        """Return one that nobody else uses; ``give`` it back. It may have been rung."""
        try:
            bell = self._free.pop()
        except IndexError as exc:
            if is_foreign(exc):
                raise
            bell = _make() if len(self._used) < self._most else Bell()
        self._used.add(bell.ref)
        if self._thread is None:  # looked at after it was added
            return self._tick_for(bell)
        return bell

    def give(self, bell: Bell) -> None:
        """Nobody sleeps at it any more. Whom a late ring wakes then sleeps again."""
        self._used.discard(bell.ref)
        self._free.append(bell)

    def close(self, deadline: Deadline, is_idle: bool) -> bool:
        """End the thread as soon as no bell is in use; True when it has ended.

        Args:
            is_idle: nobody sleeps, whatever the books say.
        """
        self._is_closed = True
        if is_idle:
            self._used.clear()
        self._hurry.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(deadline.remaining())
        return not thread.is_alive()

    def abandon(self) -> None:
        """In a forked child: give back the file descriptors that it shares with the parent."""
        for bell in [*self._free, *(ref() for ref in self._used)]:
            if bell is not None:
                bell.abandon()

    def _tick_for(self, bell: Bell) -> Bell:
        """Start the thread for one in use; where none can be had, use one that needs none."""
        if type(bell) is Bell:
            return bell
        with self._lock:
            if self._thread is None:
                thread = LibraryThread(self._tick, "nsq-ticker")
                try:
                    thread.launch()
                except ThreadStartError:
                    self._used.discard(bell.ref)
                    bell = Bell()
                    self._used.add(bell.ref)
                else:
                    self._thread = thread
        return bell

    def _tick(self) -> None:
        idle = 0
        while True:
            self._hurry.wait(_LAST_TICKS if self._is_closed else TICK)
            self._hurry.clear()
            self._ring_all()
            idle = 0 if self._used else idle + 1
            if idle > _IDLE or (idle and self._is_closed):
                with self._lock:
                    thread, self._thread = self._thread, None
                    if not self._used:  # looked at after that was written
                        self._free.clear()
                        return
                    self._thread = thread

    def _ring_all(self) -> None:
        for ref in list(self._used):
            bell = ref()
            if bell is None:
                self._used.discard(ref)
            else:
                with contextlib.suppress(OSError):  # somebody has closed files that are not his
                    bell.ring()
