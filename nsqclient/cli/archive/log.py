"""``Log``: the tool's own lines, with ``--log-prefix`` and what they are about."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class Log(logging.LoggerAdapter[logging.Logger]):
    """Puts a prefix before every line.

    Args:
        prefix: the ``--log-prefix``.
        about: topic and channel, where a line is about one.
    """

    def __init__(self, prefix: str, about: str = "") -> None:
        super().__init__(logging.getLogger("nsqclient.nsq_to_file"), {})
        self._prefix = prefix
        self._shown = (prefix + (f"[{about}] " if about else "")).replace("%", "%%")

    def about(self, topic: str, channel: str) -> Log:
        """The same for one topic and channel."""
        return Log(self._prefix, f"{topic}/{channel}")

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Called by ``logging``."""
        return self._shown + str(msg), kwargs
