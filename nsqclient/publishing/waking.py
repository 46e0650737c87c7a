"""``WakingLine``: wakes threads one after the other, each by the one before it.

A thread that is woken needs the interpreter. When many are woken at once they all ask for it while
the one that wakes them still has it, sleep again, and are woken a second time: twice the cost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from nsqclient.publishing.attempts import Companion
from nsqclient.runtime.bell import TICK
from nsqclient.runtime.trying import is_foreign

#: Seconds for one thread to be woken, after which the others do not wait for their turn: something
#: else computes in this process and each turn would cost a switch interval.
_SLOW = 0.001


class WakingLine:
    """Companions with an outcome, whose threads are still asleep.

    Threads: any. There is no lock. Who shares something sets its own flag first and looks at the
    other's afterwards, so that at least one of two sees the other.

    Args:
        on_over: called when the last one was woken and runs. Does not block.
    """

    def __init__(self, on_over: Callable[[], None]) -> None:
        self._on_over = on_over
        self._line: deque[Companion] = deque()
        self._woken_at = 0.0  # the last of them, on time.monotonic()
        #: Somebody is yet to be woken, or was and does not run yet; ``on_over`` hears the end.
        self.is_moving = False
        #: The last turn took long: the next ones do not wait for each other.
        self.is_slow = False

    def wake(self, companions: Iterable[Companion]) -> None:
        """Add some with an outcome. Does not block."""
        self._line.extend(companions)
        if self.is_moving:
            return  # who finds the line empty says so, and looks once more
        try:
            self.is_moving = True
            self._woken_at = time.monotonic()
            self._go_on(self.is_slow)
        except BaseException:  # Ctrl-C in a thread that receives for others
            self.is_moving = False
            raise

    def sleep(self, companion: Companion, seconds: float) -> None:
        """Sleep until this one has its outcome, is asked to receive, or is woken for no reason.

        Blocks: at most about so long, and at most about ``TICK``.
        """
        companion.is_waiting = True
        try:
            if not (companion.is_done or companion.receives_from):
                if seconds >= TICK:
                    companion.bell.sleep()
                else:
                    companion.bell.nap(seconds)
        except InterruptedError:
            pass  # by a signal, and its handler has run: a wake-up for no reason
        finally:
            companion.is_waiting = False
            # On any way out: this may be the one that was to wake the next, or who was may be gone.
            if companion.has_turn:
                companion.has_turn = False
                now = time.monotonic()
                self.is_slow = now - self._woken_at > _SLOW
                self._woken_at = now
                self._go_on(self.is_slow)
            elif not (companion.is_done or companion.receives_from):
                self._go_on(False)

    def _go_on(self, all_at_once: bool) -> None:
        """Wake the next one, or all of them."""
        line = self._line
        while True:
            try:
                while True:
                    one = line.popleft()
                    one.has_turn = True
                    if one.is_waiting:
                        one.bell.ring()
                        if not all_at_once:
                            return
                    else:
                        one.has_turn = False
            except IndexError as exc:
                if is_foreign(exc):
                    raise
                self.is_moving = False
            if not line:
                break
            self.is_moving = True
        self._on_over()
