"""What a consumer tells about itself: the stop report and the statistics."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nsqclient.consuming.in_flight import Counts
from nsqclient.consuming.subscription import Subscription


@dataclass(frozen=True)
class StopReport:
    """How a stop went.

    False when a message that was being handled had to be abandoned, or when it is not over.
    """

    finished: int  #: messages finished while stopping
    handed_back: int  #: messages that no handler had seen, requeued at once
    #: messages that a handler still had at the deadline, or that nobody had answered after
    #: ``enable_async()``; nsqd will deliver them again
    abandoned: int
    threads: tuple[str, ...] = ()  #: names of threads that did not end
    #: False when stop() did not wait (from a handler or a callback), or a step of it failed
    complete: bool = True

    def __bool__(self) -> bool:
        return self.complete and self.abandoned == 0


@dataclass(frozen=True)
class Health:
    """Whether a consumer does what it should, and why."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class ConnectionStats:
    """One connection at the time of the snapshot."""

    address: str  #: host:port of the nsqd
    rdy: int  #: the RDY that was sent last
    in_flight: int  #: messages that are not answered yet
    version: str  #: of the nsqd
    counts: Counts
    #: nsqd's answer to IDENTIFY under its own names; empty where it negotiates nothing
    negotiated: Mapping[str, Any] = field(repr=False)
    partition: int | None = None  #: of a partitioned NSQ

    @classmethod
    def of(cls, sub: Subscription, rdy: int) -> ConnectionStats:
        """Take the numbers of one Subscription."""
        settings = sub.conn.settings
        counts = dataclasses.replace(sub.counts)
        return cls(
            sub.address, rdy, len(sub), settings.version, counts, dict(settings.raw),
            sub.place.partition,
        )


@dataclass(frozen=True)
class ConsumerStats:
    """A consumer at the time of the snapshot."""

    connections: list[ConnectionStats]
    total: Counts  #: sums over all connections, closed ones included
    queued: int  #: messages that wait for a worker
    queued_bytes: int  #: what these take in memory, 512 bytes for each beside its body
    running: int  #: handlers that run now
    backoff: str  #: "flowing", "waiting" or "testing"
    repairs: int  #: how often the watchdog had to repair the flow; always 0, or it is a bug
    is_paused: bool
    is_held: bool  #: RDY is 0 because of ``max_queued_bytes``
    max_in_flight: int


class Ledger:
    """Keeps the counts of closed connections. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: list[Counts] = [Counts()]  # guarded by _lock; one sum and those to add

    def add(self, sub: Subscription) -> None:
        """Keep the counts of a connection that ended."""
        with self._lock:
            self._closed.append(sub.counts)
            if len(self._closed) > 16:
                # Late answers may still be counted on a young one; old ones do not change.
                self._closed = [_sum(self._closed[:8]), *self._closed[8:]]

    def total(self, live: list[Subscription]) -> Counts:
        """Sums over the closed connections and the ``live`` ones."""
        with self._lock:
            counts = list(self._closed)
        # One that just ended may be in both.
        known = {id(count) for count in counts}
        return _sum(counts + [sub.counts for sub in live if id(sub.counts) not in known])


def _sum(counts: list[Counts]) -> Counts:
    return Counts(**{
        field.name: sum(getattr(count, field.name) for count in counts)
        for field in dataclasses.fields(Counts)
    })
