"""``WakingLine``: wakes threads one after the other, each by the one before it.

A thread that is woken needs the interpreter. When many are woken at once they all ask for it while
the one that wakes them still has it, sleep again, and are woken a second time: twice the cost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from nsqclient.publishing.attempts import Companion

#: Seconds for one thread to be woken, after which the others do not wait for their turn: something
#: else computes in this process and each turn would cost a switch interval.
_SLOW = 0.001


class WakingLine:
    """Companions with an outcome, whose threads are still asleep.

    Threads: any. There is no lock: a thread says that it waits before it looks at its outcome, and
    is given its outcome before anybody looks whether it waits.

    Args:
        on_over: called when the last one was woken. Does not block.
    """

    def __init__(self, on_over: Callable[[], None]) -> None:
        self._on_over = on_over
        self._line: deque[Companion] = deque()
        self._woken_at = 0.0  # the last of them, on time.monotonic()

    def is_moving(self) -> bool:
        """Tell whether somebody is yet to be woken; the end is told to ``on_over`` then."""
        return bool(self._line)

    def wake(self, companions: Iterable[Companion]) -> None:
        """Add some with an outcome. Does not block."""
        self._line.extend(companions)
        self._woken_at = time.monotonic()
        self._go_on()

    def wait(self, companion: Companion, timeout: float) -> bool:
        """Wait until this one has its outcome; False when it had none in time."""
        companion.is_waiting = True
        try:
            return companion.is_done or companion.wait(timeout)
        finally:
            companion.is_waiting = False
            self._go_on()  # on any way out: this may be the one that was to wake the next

    def _go_on(self) -> None:
        """Wake the next one, or all of them when this takes too long."""
        now = time.monotonic()
        is_slow = now - self._woken_at > _SLOW
        self._woken_at = now
        try:
            while True:
                one = self._line.popleft()
                if one.is_waiting:
                    one.wake()
                    if not is_slow:
                        return
        except IndexError:
            self._on_over()
