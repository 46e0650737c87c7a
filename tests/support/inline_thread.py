"""A thread whose work is done by ``launch()``, in the calling thread."""

from collections import deque
from collections.abc import Callable
from typing import ClassVar


class InlineThread:
    """A ``LibraryThread`` for tests that look at each step.

    A thread that another one launches runs after it.
    """

    _launched: ClassVar[deque["InlineThread"]] = deque()

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self.name = name
        self._target = target

    def launch(self) -> None:
        self._launched.append(self)
        if len(self._launched) > 1:
            return
        while self._launched:
            try:
                self._launched[0]._target()
            finally:
                self._launched.popleft()

    def join(self, timeout: float | None = None) -> None:
        """Do nothing: the thread has already ended."""

    def is_alive(self) -> bool:
        """Return False: it has ended."""
        return False
