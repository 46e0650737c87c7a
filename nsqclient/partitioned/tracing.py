"""The trace log, ``nsqclient.trace``, and the topics that are traced."""

from __future__ import annotations

import logging
from typing import Any

trace_logger: logging.Logger = logging.getLogger("nsqclient.trace")


class TraceSwitch:
    """The topics that are traced. Threads: any; one reference is replaced at a time."""

    def __init__(self) -> None:
        self._everywhere = False
        self._topics: dict[str, bool] = {}  # replaced, never changed

    def set(self, enabled: bool, topic: str | None = None) -> None:
        """Turn tracing on or off for one topic, or for all, including topics set before."""
        if topic is None:
            self._everywhere = enabled
            self._topics = {}
        else:
            self._topics = {**self._topics, topic: enabled}

    def is_on(self, topic: str) -> bool:
        return self._topics.get(topic, self._everywhere)


def log_trace(verb: str, **fields: Any) -> None:
    """Write one line to the trace log, with every known field as ``name=value``."""
    known = [f"{name}={value}" for name, value in fields.items() if value is not None]
    trace_logger.info("%s", " ".join([verb, *known]), extra={"nsq": fields})
