"""What a consumer reports about itself: the stop report, its health and the statistics."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StopReport:
    """How a stop went.

    False when a message that was being handled had to be abandoned, or when it is not over.
    """

    finished: int  #: messages finished while stopping
    requeued_unstarted: int  #: messages that no handler had seen, requeued at once
    #: messages that a handler still had at the deadline, or that nobody had answered after
    #: ``enable_async()``; nsqd will deliver them again
    abandoned: int
    threads: tuple[str, ...] = ()  #: names of threads that did not end
    #: False when stop() did not wait (from a handler or a callback), or a step of it failed
    complete: bool = True

    def __bool__(self) -> bool:
        return self.complete and self.abandoned == 0


@dataclass(frozen=True)
class DrainReport:
    """What ``run_until_empty()`` did.

    True when the channel was drained and the stop abandoned nothing.
    """

    finished: int  #: messages finished
    requeued: int  #: messages requeued by handlers
    given_up: int  #: messages given up; these are in ``finished``, too
    deferred: int  #: messages that are left with a delay that is not over, where it is known
    paused: int  #: messages that are left in a paused channel or topic, where it is known
    #: addresses of nsqds and nsqlookupds that could not be asked: there a silence was the end
    unknown: tuple[str, ...]
    is_empty: bool  #: nothing was left; False when a signal or ``stop()`` ended it
    stop: StopReport  #: how the stop afterwards went

    def __bool__(self) -> bool:
        return self.is_empty and bool(self.stop)


@dataclass(frozen=True)
class Health:
    """Whether a consumer does what it should, and why."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


@dataclass
class ConnectionCounters:
    """What happened on one connection."""

    received: int = 0
    finished: int = 0
    requeued: int = 0
    given_up: int = 0  #: given up, and kept by ``on_giving_up``; these are in ``finished``, too
    touched: int = 0
    requeued_unstarted: int = 0  #: requeued unstarted: at stop, or far above ``max_queued_bytes``
    expired: int = 0  #: dropped unhandled, because nsqd had given them to another consumer
    lost_answers: int = 0  #: answers that could not be sent any more
    late_answers: int = 0  #: answers that nsqd refused: the message had timed out
    orphaned: int = 0  #: in flight when the connection was lost, or never answered


@dataclass(frozen=True)
class ConnectionStats:
    """One connection at the time of the snapshot."""

    address: str  #: host:port of the nsqd
    rdy: int  #: the RDY that was sent last
    in_flight: int  #: messages that are not answered yet
    version: str  #: of the nsqd
    counters: ConnectionCounters
    #: nsqd's answer to IDENTIFY under its own names; empty where it negotiates nothing
    negotiated: Mapping[str, Any] = field(repr=False)
    partition: int | None = None  #: of a partitioned NSQ


@dataclass(frozen=True)
class ConsumerStats:
    """A consumer at the time of the snapshot."""

    connections: list[ConnectionStats]
    total: ConnectionCounters  #: sums over all connections, closed ones included
    queued: int  #: messages that wait for a worker
    queued_bytes: int  #: what these take in memory, 512 bytes for each beside its body
    running: int  #: handlers that run now
    backoff: str  #: "flowing", "waiting" or "testing"
    repairs: int  #: how often the watchdog had to repair the flow; always 0, or it is a bug
    is_paused: bool
    is_held: bool  #: RDY is 0 because of ``max_queued_bytes``
    max_in_flight: int


class ClosedConnectionTotals:
    """Keeps the counters of closed connections. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: list[ConnectionCounters] = [ConnectionCounters()]  # guarded by _lock

    def add(self, counters: ConnectionCounters) -> None:
        """Keep the counters of a connection that ended."""
        with self._lock:
            self._closed.append(counters)
            if len(self._closed) > 16:
                # Late answers may still be counted on a young one; old ones do not change.
                self._closed = [_sum(self._closed[:8]), *self._closed[8:]]

    def total(self, live: Iterable[ConnectionCounters]) -> ConnectionCounters:
        """Sums over the closed connections and the ``live`` ones."""
        with self._lock:
            closed = list(self._closed)
        # A connection that just ended may be in both.
        seen = {id(counters) for counters in closed}
        return _sum(closed + [counters for counters in live if id(counters) not in seen])


def _sum(parts: list[ConnectionCounters]) -> ConnectionCounters:
    return ConnectionCounters(**{
        field.name: sum(getattr(counters, field.name) for counters in parts)
        for field in dataclasses.fields(ConnectionCounters)
    })
