"""How long requests took, logged every so often: ``--status-every``."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable

from nsqclient.runtime.go_duration import format_duration

logger = logging.getLogger("nsqclient.cli")

_AGGREGATE = "aggregate"


class Timings:
    """Collects durations and logs percentiles after every ``every`` of one name, and of all.

    Args:
        names: what is measured; with one alone, only the aggregate is logged.
        every: how many make a line; 0: none.

    Threads: any.
    """

    def __init__(self, names: Iterable[str], every: int) -> None:
        names = list(names)
        self._every = every
        self._lock = threading.Lock()
        self._seconds: dict[str, list[float]] = {_AGGREGATE: []}  # guarded by _lock
        if len(names) > 1:
            self._seconds.update({name: [] for name in names})
        if 0 < every < 100:
            logger.warning("use more than 100 status values for accurate percentiles"
                           " (configured with %d)", every)

    def add(self, name: str, seconds: float) -> None:
        """Note one duration."""
        if not self._every:
            return
        full = []
        with self._lock:
            for key in (_AGGREGATE, name):
                if key in self._seconds:
                    self._seconds[key].append(seconds)
                    if len(self._seconds[key]) >= self._every:
                        full.append((key, self._seconds[key]))
                        self._seconds[key] = []
        for key, values in full:
            logger.info("%s", describe(key, values))


def describe(name: str, values: list[float]) -> str:
    """One line about durations."""
    ordered = sorted(values)

    def percentile(part: float) -> str:
        return _short(ordered[max(0, math.ceil(part * len(ordered)) - 1)])

    return (f"[{name}]: finished {len(ordered)} - 99th: {percentile(0.99)} - 95th:"
            f" {percentile(0.95)} - avg: {_short(sum(ordered) / len(ordered))}")


def _short(seconds: float) -> str:
    return format_duration(round(seconds, 5))
