"""A thread whose work is done by ``launch()``, in the calling thread."""

from collections.abc import Callable


class InlineThread:
    """A ``LibraryThread`` for tests that look at each step."""

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self.name = name
        self._target = target

    def launch(self) -> None:
        self._target()

    def join(self, timeout: float | None = None) -> None:
        """It has ended."""

    def is_alive(self) -> bool:
        """Return False: it has ended."""
        return False
