"""What a producer tells about itself."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass

from nsqclient.runtime.exit_status import fail_exit
from nsqclient.runtime.histogram import Histogram, HistogramSnapshot
from nsqclient.runtime.threads import is_interpreter_ending

#: Counters of publishes that may not be stored.
_FAILURES = ("rejected", "unknown")
#: Latencies that the summary looks back on.
_LATENCIES = 2000


@dataclass(frozen=True)
class ProducerStats:
    """A producer at the time of the snapshot."""

    published: int  #: messages that nsqd stored
    rejected: int  #: messages that surely were not stored
    unknown: int  #: messages without a verdict
    retried: int  #: tries that were repeated
    bytes: int  #: of the bodies of synchronous publishes that were stored
    pending: int  #: publishes without an outcome yet
    latency_p50: float  #: seconds, of the last 2000 synchronous publishes; 0.0 without any
    latency_p99: float
    latency: HistogramSnapshot  #: seconds of all synchronous publishes that were stored
    connected: list[str]  #: addresses of the nsqds that are connected
    known: list[str]  #: addresses of all nsqds


class Statistics:
    """Counts. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()  # guarded by _lock, as the next two
        self._published = 0  # synchronous ones
        self._bytes = 0
        self._histogram = Histogram()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)  # appended without a lock

    def count(self, name: str, number: int) -> None:
        """Add to one of the counters.

        A failure while the interpreter ends is one that the process ends with: who has called may
        be a function at exit, whose exceptions Python prints and forgets.
        """
        with self._lock:
            self._counts[name] += number
        if is_interpreter_ending() and name in _FAILURES:
            fail_exit("a publish at exit was not stored")

    def on_published(self, messages: int, size: int, latency: float) -> None:
        """A synchronous publish was stored."""
        with self._lock:
            self._published += messages
            self._bytes += size
        self._latencies.append(latency)
        self._histogram.observe(latency)

    def snapshot(self, pending: int, connected: list[str], known: list[str]) -> ProducerStats:
        """Put the numbers together."""
        with self._lock:
            counts = Counter(self._counts)
            counts["published"] += self._published
            size = self._bytes
        latencies = sorted(self._latencies.copy())
        return ProducerStats(
            published=counts["published"],
            rejected=counts["rejected"],
            unknown=counts["unknown"],
            retried=counts["retried"],
            bytes=size,
            pending=pending,
            latency_p50=latencies[len(latencies) // 2] if latencies else 0.0,
            latency_p99=latencies[len(latencies) * 99 // 100] if latencies else 0.0,
            latency=self._histogram.snapshot(),
            connected=connected,
            known=known,
        )
