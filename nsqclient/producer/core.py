"""``ProducerCore``: the parts of a Producer. A forked child makes them again."""

from __future__ import annotations

import atexit
import logging
import sys
import weakref
from collections import deque
from typing import NamedTuple

from nsqclient.config import Config
from nsqclient.display import counted
from nsqclient.errors import other_nsqd_error, with_hint
from nsqclient.producer.async_publisher import AsyncPublisher, Window
from nsqclient.producer.discovery import NodeDiscovery
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.nodes import NodePool
from nsqclient.producer.publisher import Publisher
from nsqclient.producer.stats import ProducerStats, Statistics
from nsqclient.protocol.events import ServerSettings
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.forking import check_process
from nsqclient.runtime.stats import Health
from nsqclient.runtime.threads import LibraryThread

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds for which the end of the process waits for publishes without an outcome.
_EXIT_TIMEOUT = 5.0
#: Seconds for closing a producer that the program has dropped.
_CLOSE_TIMEOUT = 10.0


class ProducerSettings(NamedTuple):
    """The checked arguments of a Producer."""

    nsqds: list[str]
    lookupds: list[str]
    config: Config
    retry_unknown: bool
    sticky: bool
    window: Window


class ProducerCore:
    """The nsqds, connections, queues and counters of one producer. Thread-safe.

    Its threads refer to it, and not to the Producer. So a Producer that the program drops without
    ``close()`` is collected, and ends its core.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        config = settings.config
        self.nodes: NodePool = NodePool(
            settings.nsqds, config, settings.lookupds, self._check_nsqd)
        self.statistics: Statistics = Statistics()
        self.publisher: Publisher = Publisher(
            self.nodes, settings.retry_unknown, self.statistics, settings.sticky)
        self._discovery = NodeDiscovery(
            settings.lookupds, settings.nsqds, config, self.nodes)
        self.queues: AsyncPublisher = AsyncPublisher(
            self.publisher, self.nodes.timer, settings.window, self.statistics,
            config.nsqd_max_body_size, self._take_over)
        self._is_dropped = False
        self.nodes.timer.checks.append(self._check_dropped)
        _live.add(self)

    # -- methods to override

    def _check_nsqd(self, address: str, settings: ServerSettings) -> None:
        """Raise an NSQError if publishes to this nsqd cannot succeed. On a thread that dials."""
        if not settings.is_stock:
            raise other_nsqd_error(address, settings.version)

    def _take_over(self, items: deque[PublishFuture]) -> bool:
        """Take all messages of a topic's queue if choosing an nsqd is not enough.

        Returns whether it did. On a worker. May block, and raises the error of the first
        message.
        """
        return False

    def _stop_publishing(self, deadline: Deadline) -> list[str]:
        """End publishes between two attempts; return the names of stuck threads."""
        return self._discovery.stop(deadline)

    # -- state

    @property
    def is_closed(self) -> bool:
        return self.publisher.is_closed

    @property
    def pending(self) -> int:
        return self.queues.pending + self.publisher.count_running()

    def stats(self) -> ProducerStats:
        return self.statistics.snapshot(
            pending=self.pending,
            connected=[node.address for node in self.nodes.connected],
            known=self.nodes.addresses,
            connections=self.nodes.count_connections(),
        )

    def healthy(self) -> Health:
        if self.is_closed:
            return Health(False, "closed")
        if ended := self.nodes.timer.ended():
            return Health(False, f"these threads have ended: {', '.join(ended)}")
        missing = self.nodes.missing()
        if self.nodes.connected:
            return Health(True, "connected" + (missing and f"; not connected to {missing}"))
        if not self.nodes.timer.is_started:
            return Health(True, "not connected yet: nothing was published")
        return Health(False, f"not connected to {missing or with_hint(self.nodes.why_none())}")

    # -- closing

    def close(self, deadline: Deadline) -> bool:
        """Wait for pending publishes, then end everything; True if all had an outcome in time."""
        self.publisher.is_closed = True
        is_clean = self.publisher.wait_for_running(deadline)
        is_clean = self.queues.flush(deadline) and is_clean
        rest = Deadline((deadline.remaining() or 0.0) + 0.5)
        stuck = self._stop_publishing(rest)
        stuck += self.nodes.close(rest)
        if not self.queues.close(rest):
            stuck.append("nsq-publisher")
        if stuck and not sys.is_finalizing():
            logger.warning("close: these threads did not end in time: %s", ", ".join(stuck))
        _live.discard(self)
        return is_clean and not stuck

    def close_in_place(self) -> bool:
        """At the end of the interpreter, when no other thread runs: give the sockets back."""
        self.publisher.is_closed = True
        self.nodes.abandon()
        return not self.pending

    def drop(self) -> None:
        """Close the core once nothing is pending. Does not block, because a finalizer calls it."""
        self._is_dropped = True
        self.nodes.timer.wake()

    def _check_dropped(self, now: float) -> float:
        if self._is_dropped and not self.is_closed and not self.pending:
            self.publisher.is_closed = True
            LibraryThread(self.close, "nsq-closer", (Deadline(_CLOSE_TIMEOUT),)).launch()
        return float("inf")

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets and Futures back."""
        self.nodes.abandon()
        self.queues.abandon()

    def flush_at_exit(self, deadline: Deadline) -> None:
        """Wait for pending messages, and log the number without an outcome."""
        if self.queues.pending:
            self.queues.flush(deadline)
        if self.queues.pending:
            logger.error("no outcome at exit: %s to %s",
                         counted(self.queues.pending, "publish", "publishes"),
                         ", ".join(self.queues.topics()))
        if running := self.publisher.count_running():
            logger.error("no outcome at exit: %s in other threads",
                         counted(running, "publish call", "publish calls"))
        self.queues.report_unretrieved()


_live: weakref.WeakSet[ProducerCore] = weakref.WeakSet()


@atexit.register
def _flush_at_exit() -> None:
    check_process()
    deadline = Deadline(_EXIT_TIMEOUT)
    for core in list(_live):
        core.flush_at_exit(deadline)
