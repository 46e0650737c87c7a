"""``ProducerStats``: the numbers of a producer."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from dataclasses import dataclass

from nsqclient.errors import PublishError, PublishUnknownError, ReentrantCallError
from nsqclient.runtime.deques import copy_deque
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.stats import Histogram, HistogramSnapshot

#: Synchronous publishes to collect before ``add_recent`` sums them.
MAX_RECENT = 1000
#: Latencies that the summary looks back on.
_LATENCIES = 2000


@dataclass(frozen=True)
class ProducerStats:
    """A producer at the time of the snapshot."""

    published: int  #: messages that nsqd stored
    rejected: int  #: messages that surely were not stored
    unknown: int  #: messages that nsqd may or may not have stored
    retried: int  #: messages in attempts that failed and may be repeated, once per attempt
    bytes: int  #: total size of the bodies stored by synchronous publishes
    pending: int  #: publishes without an outcome yet
    latency_p50: float  #: seconds, of the last 2000 synchronous publishes; 0.0 without any
    latency_p99: float
    latency: HistogramSnapshot  #: seconds of all synchronous publishes that were stored
    connected: list[str]  #: addresses of the nsqds that are connected
    known: list[str]  #: addresses of all nsqds
    connections: dict[str, int]  #: nsqd -> number of connections


class Statistics:
    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()  # guarded by _lock
        self._histogram = Histogram()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)  # extended without a lock
        #: Synchronous publishes that were stored: messages, bytes, seconds. Any thread may append.
        #: The thread that reaches MAX_RECENT calls ``add_recent``.
        self.recent: list[tuple[int, int, float]] = []

    def count_published(self, messages: int) -> None:
        with self._lock:
            self._counts["published"] += messages

    def count_retried(self, messages: int) -> None:
        with self._lock:
            self._counts["retried"] += messages

    def count_failure(self, error: PublishError, messages: int = 1) -> None:
        is_unknown = isinstance(error, PublishUnknownError)
        with self._lock:
            self._counts["unknown" if is_unknown else "rejected"] += messages

    def add_recent(self) -> None:
        """Sum the records. Does nothing if it interrupts a call of the same thread."""
        with contextlib.suppress(ReentrantCallError):  # a later call adds them
            self._add_recent()

    def _add_recent(self) -> None:
        with self._lock:
            recent = self.recent[:]
            number = len(recent)
            counts = self._counts.copy()
            counts["published"] += sum([messages for messages, _, _ in recent])
            counts["bytes"] += sum([size for _, size, _ in recent])
            # No call between these lines: Python could run a signal handler there, and records
            # would count twice.
            self._counts = counts
            del self.recent[:number]
        latencies = [latency for _, _, latency in recent]
        self._latencies.extend(latencies)
        self._histogram.observe(*latencies)

    def snapshot(
        self, pending: int, connected: list[str], known: list[str], connections: dict[str, int]
    ) -> ProducerStats:
        self.add_recent()
        with self._lock:
            counts = self._counts.copy()
        latencies = sorted(copy_deque(self._latencies))
        return ProducerStats(
            published=counts["published"],
            rejected=counts["rejected"],
            unknown=counts["unknown"],
            retried=counts["retried"],
            bytes=counts["bytes"],
            pending=pending,
            latency_p50=latencies[len(latencies) // 2] if latencies else 0.0,
            latency_p99=latencies[len(latencies) * 99 // 100] if latencies else 0.0,
            latency=self._histogram.snapshot(),
            connected=connected,
            known=known,
            connections=connections,
        )
