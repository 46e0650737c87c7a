"""A timer whose clock moves only when a test says so."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable


class VirtualTask:
    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class VirtualTimer:
    """Stands for ``runtime.timer.Timer``; ``delays`` has the requested delays."""

    def __init__(self) -> None:
        self.now = 0.0
        self.delays: list[float] = []
        self._heap: list[tuple[float, int, VirtualTask]] = []
        self._order = itertools.count()
        self._background: deque[Callable[[], None]] = deque()

    def schedule(self, delay: float, action: Callable[[], None]) -> VirtualTask:
        """Run ``action`` when the clock has moved so far."""
        task = VirtualTask(action)
        self.delays.append(delay)
        heapq.heappush(self._heap, (self.now + delay, next(self._order), task))
        return task

    def put_background(self, task: Callable[[], None]) -> None:
        """Stand for ``run_in_background``: run the task after the current one."""
        self._background.append(task)

    def run_background(self) -> None:
        while self._background:
            self._background.popleft()()

    def advance(self, seconds: float) -> None:
        """Run what becomes due, in order, each at its time."""
        until = self.now + seconds
        self.run_background()
        while self._heap and self._heap[0][0] <= until:
            self.now, _, task = heapq.heappop(self._heap)
            if task.action is not None:
                task.action()
                self.run_background()
        self.now = until
