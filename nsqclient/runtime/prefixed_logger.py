"""``PrefixedLogger``: a logger whose lines all begin with what they are about."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter  # takes no brackets before Python 3.11


class PrefixedLogger(_Adapter):
    """Puts a prefix in front of every line. Threads: any."""

    def __init__(self, logger: logging.Logger, prefix: str) -> None:
        super().__init__(logger, {})
        self._prefix = prefix.replace("%", "%%")

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """For ``logging``: build the line, whose arguments are not filled in yet."""
        return f"{self._prefix}{msg}", kwargs
