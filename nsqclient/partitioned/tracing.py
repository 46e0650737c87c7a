"""The fields of a line of the trace log (``nsqclient.trace``), and the topics that are traced."""

from __future__ import annotations

from typing import Any, NamedTuple


class TraceSwitch:
    """The topics that are traced. Threads: any; one reference is replaced at a time."""

    def __init__(self) -> None:
        self._everywhere = False
        self._topics: dict[str, bool] = {}  # replaced, never changed

    def set(self, enabled: bool, topic: str | None = None) -> None:
        """Turn tracing on or off, for one topic or for all.

        "All" includes topics that were set before.
        """
        if topic is None:
            self._everywhere = enabled
            self._topics = {}
        else:
            self._topics = {**self._topics, topic: enabled}

    def is_on(self, topic: str) -> bool:
        """Return whether messages of the topic are traced."""
        return self._topics.get(topic, self._everywhere)


class PublishTrace(NamedTuple):
    """One traced publish that was stored."""

    topic: str
    partition: int
    nsqd: str
    internal_id: int
    trace_id: int
    offset: int
    size: int


class ConsumeTrace(NamedTuple):
    """One message that was delivered; ``offset`` and ``size`` only with SUB_ORDERED."""

    topic: str
    channel: str
    partition: int | None
    internal_id: int
    trace_id: int
    offset: int | None
    size: int | None
    timestamp: int  #: nanoseconds since the epoch
    attempts: int
    consumer: str  #: our local IP
    nsqd: str  #: its remote IP and port


def trace_line(verb: str, trace: NamedTuple) -> str:
    """Return one line with every known field as ``name=value``."""
    fields: dict[str, Any] = trace._asdict()
    return " ".join([verb, *(f"{name}={value}" for name, value in fields.items()
                             if value is not None)])
