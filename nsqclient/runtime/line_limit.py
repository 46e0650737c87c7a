"""``LineLimit``: how many log lines of one kind a peer can cause."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    Logger = Union[logging.Logger, logging.LoggerAdapter[logging.Logger]]

#: Lines of one kind within ``INTERVAL`` seconds that keep their level.
MOST_LINES, INTERVAL = 50, 60.0


class LineLimit:
    """The lines of one kind, whose number a peer decides: one for each address that it lists, say.

    The first ``MOST_LINES`` of a minute keep their level. Then one line says that there are more,
    and these are logged at DEBUG until the minute is over. Threads: any.
    """

    def __init__(self, logger: Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._lines = 0  # since _began; guarded by _lock
        self._began = float("-inf")  # guarded by _lock

    def level(self, level: int) -> int:
        """Return the level for the next line, which would have ``level``. Counts it."""
        now = self._clock()
        with self._lock:
            if now - self._began >= INTERVAL:
                self._began, self._lines = now, 0
            self._lines += 1
            lines = self._lines
        if lines == MOST_LINES + 1:
            self._logger.log(
                level if level > logging.INFO else logging.INFO,
                "over %d lines like the last one in a minute: further ones are at DEBUG",
                MOST_LINES,
            )
        return level if lines <= MOST_LINES else logging.DEBUG
