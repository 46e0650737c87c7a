"""``LineLimit``: how many log lines of one kind a peer can cause."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
    Logger = Union[logging.Logger, _Adapter]
else:
    _Adapter = logging.LoggerAdapter  # takes no brackets before Python 3.11

#: Lines of one kind within ``INTERVAL`` seconds that keep their level.
MOST_LINES, INTERVAL = 50, 60.0


class LineLimit:
    """The lines of one kind, whose number a peer decides: one for each address that it lists, say.

    The first ``MOST_LINES`` of a minute keep their level. Then one line says that there are more,
    and these are logged at DEBUG until the minute is over. Threads: any.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self.reset()

    def reset(self) -> None:
        """Begin a new minute."""
        # Since when, and how many lines. Swapped as a whole, without a lock: of two lines at the
        # same instant one may not be counted.
        self._counted = float("-inf"), 0

    def level(self, level: int) -> int:
        """Return the level for the next line, which would have ``level``. Counts it."""
        now = time.monotonic()
        began, lines = self._counted
        if now - began >= INTERVAL:
            began, lines = now, 0
        lines += 1
        self._counted = began, lines
        if lines == MOST_LINES + 1:
            self._logger.log(
                level if level > logging.INFO else logging.INFO,
                "more than %d lines like the last one in a minute: further ones are at DEBUG",
                MOST_LINES,
            )
        return level if lines <= MOST_LINES else logging.DEBUG


class SwitchLimit:
    """Which changes of a state are logged: its beginning once in ``INTERVAL``, and that one's end.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._logged_at = float("-inf")
        self._is_logged = False

    def is_news(self, has_begun: bool, now: float) -> bool:
        """Return whether to log that the state has begun, or that it has ended."""
        was_logged, self._is_logged = self._is_logged, False
        if not has_begun:
            return was_logged
        if now - self._logged_at >= INTERVAL:
            self._logged_at, self._is_logged = now, True
        return self._is_logged


class PrefixedLogger(_Adapter):
    """Puts a prefix in front of every line, and fields into every record. Threads: any.

    Args:
        fields: attributes of every record; the ``extra`` of a call adds to them.
    """

    def __init__(
        self, logger: logging.Logger, prefix: str, fields: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(logger, {})
        self._fields = dict(fields or {})
        self._prefix = prefix.replace("%", "%%")

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """For ``logging``: build the line, whose arguments are not filled in yet."""
        kwargs["extra"] = {**self._fields, **(kwargs.get("extra") or {})}
        return f"{self._prefix}{msg}", kwargs
