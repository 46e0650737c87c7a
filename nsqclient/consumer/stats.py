"""The statistics of a consumer, and the reports of its stop and its drain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from nsqclient.runtime.lock import Lock


@dataclass(frozen=True)
class StopReport:
    """The result of ``Consumer.stop()``.

    False if a message was abandoned or the stop is not complete.
    """

    finished: int  #: messages finished while stopping
    requeued_unstarted: int  #: messages that no handler had started, requeued at once
    #: messages without a response at the deadline (the handler was running, or had called
    #: ``enable_async()``) or whose response was lost with a connection; nsqd delivers them again
    abandoned: int
    threads: tuple[str, ...] = ()  #: names of threads that did not end
    #: False if stop() did not wait (in a handler or a callback), or a step of it failed
    complete: bool = True

    def __bool__(self) -> bool:
        return self.complete and self.abandoned == 0


@dataclass(frozen=True)
class DrainReport:
    """The result of ``run_until_empty()``.

    True if the channel was seen empty and the stop abandoned no message.
    """

    finished: int  #: messages finished
    requeued: int  #: messages requeued by handlers
    given_up: int  #: messages given up; also counted in ``finished``
    deferred: int  #: deferred messages that are left, if known
    paused: int  #: messages that are left in a paused channel or topic, if known
    #: addresses of nsqds and nsqlookupds that did not answer when ``end_after_silence``, a signal
    #: or ``stop()`` ended the drain; messages may be left
    unknown: tuple[str, ...]
    is_empty: bool  #: every nsqd reported that no message was left
    stop: StopReport  #: the result of the stop at the end

    def __bool__(self) -> bool:
        return self.is_empty and bool(self.stop)


@dataclass
class ConnectionCounters:
    """Numbers of messages on one connection."""

    received: int = 0
    finished: int = 0
    requeued: int = 0
    given_up: int = 0  #: given up, and ``on_giving_up`` succeeded; also counted in ``finished``
    touched: int = 0
    requeued_unstarted: int = 0  #: requeued at a stop, before a handler had started
    expired: int = 0  #: timed out before they were handled; nsqd delivers them again
    lost_answers: int = 0  #: responses that were lost with the connection
    late_answers: int = 0  #: responses that nsqd rejected: the message had timed out
    orphaned: int = 0  #: in flight when the connection was lost, or never answered


@dataclass(frozen=True)
class ConnectionStats:
    """One connection at the time of the snapshot."""

    address: str  #: host:port of the nsqd
    rdy: int  #: the RDY that was sent last
    in_flight: int  #: messages without a response yet
    version: str  #: the nsqd's
    counters: ConnectionCounters
    #: nsqd's answer to IDENTIFY under its own names; empty if it negotiates nothing
    negotiated: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class ConsumerStats:
    """A consumer at the time of the snapshot."""

    connections: list[ConnectionStats]
    total: ConnectionCounters  #: sums over all connections, closed ones included
    queued: int  #: messages that wait for a worker
    queued_bytes: int  #: memory of their bodies and headers, and 512 bytes for each message
    running: int  #: handlers that run now
    backoff: str  #: "flowing", "waiting" or "testing"
    is_paused: bool
    is_held: bool  #: RDY is 0 because of ``max_queued_bytes``
    max_in_flight: int
    level: int  #: messages that may be in flight now: ``max_in_flight`` or fewer
    #: what limits the level: "max_in_flight", "handler_time", "start" before handler times are
    #: known, "held" while messages are collected, "off" with ``rdy_share_of_timeout=0``
    level_reason: str
    #: seconds that the slowest of the last 128 handlers took; None if unknown
    handler_time: float | None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            known = {field.name for field in dataclasses.fields(ConnectionCounters)}
            hint = f": write stats().total.{name}" if name in known else ""
            raise AttributeError(f"ConsumerStats has no attribute {name!r}{hint}")


class ClosedConnectionTotals:
    """Keeps the counters of closed connections. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._closed: list[ConnectionCounters] = [ConnectionCounters()]  # guarded by _lock

    def add(self, counters: ConnectionCounters) -> None:
        with self._lock:
            self._closed.append(counters)
            if len(self._closed) > 16:
                # Late answers may still be counted on recent ones; old ones do not change.
                self._closed = [_sum(self._closed[:8]), *self._closed[8:]]

    def total(self, live: Iterable[ConnectionCounters]) -> ConnectionCounters:
        """Return the sums over the closed connections and the ``live`` ones."""
        with self._lock:
            closed = list(self._closed)
        # A connection that has just ended may be in both.
        seen = {id(counters) for counters in closed}
        return _sum(closed + [counters for counters in live if id(counters) not in seen])


def _sum(parts: list[ConnectionCounters]) -> ConnectionCounters:
    return ConnectionCounters(**{
        field.name: sum(getattr(counters, field.name) for counters in parts)
        for field in dataclasses.fields(ConnectionCounters)
    })
