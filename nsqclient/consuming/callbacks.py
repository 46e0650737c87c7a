"""``Callbacks``: what the user wants to be told, and what happens when that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("nsqclient.consumer")


class Callbacks:
    """The user's functions by name. Threads: any."""

    def __init__(self, **functions: Callable[..., Any] | None) -> None:
        self._functions = functions

    def tell(self, name: str, *arguments: object) -> None:
        """Call one, if it was given; log what it raises."""
        function = self._functions[name]
        if function is not None:
            try:
                function(*arguments)
            except BaseException:  # a SystemExit would end a thread of ours
                logger.exception("%s failed", name)
