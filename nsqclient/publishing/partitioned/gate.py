"""``Gate``: finds out which kind of cluster a producer has, and leads to the right one.

The first nsqd that is connected says it, in its answer to IDENTIFY. A stock cluster costs nothing
more than that: no further request, and one look at a flag for each publish.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.errors import ClosedError, NSQError, PublishNotSent
from nsqclient.partitions.sharding import Sharding
from nsqclient.partitions.tracing import TraceSwitch
from nsqclient.protocol.extended import Stored
from nsqclient.publishing.links import Links
from nsqclient.publishing.partitioned.deferred import Deferred
from nsqclient.publishing.partitioned.front import Extras, PartitionedFront, not_here
from nsqclient.publishing.partitioned.handover import HandOver
from nsqclient.publishing.statistics import Statistics
from nsqclient.runtime.deadline import Deadline


class Gate:
    """Life: usable at once, ``close()``. Threads: every method, any thread."""

    def __init__(
        self, lookupds: list[str], links: Links, start_discovery: Callable[[], None],
        make_front: Callable[[], PartitionedFront], deferred: Deferred,
    ) -> None:
        #: Known to be one; read without a lock with every publish.
        self.is_stock = not lookupds
        self._has_lookupds = bool(lookupds)
        self._links = links
        self._start_discovery = start_discovery
        self._make_front = make_front
        self._lock = threading.Lock()
        self._front: PartitionedFront | None = None  # made under _lock
        self._is_closed = False  # by _lock
        self.deferred = deferred
        self.hand_over = HandOver(self)

    def front(self, deadline: Deadline, extras: Extras = Extras()) -> PartitionedFront | None:
        """Return the way to the partitions; None where there are none, or nobody knows yet.

        Blocks: until a nsqd is connected, the first time; at most until the deadline.

        Raises:
            PartitionError: extras were asked for that a stock cluster does not have.
            PublishNotSent: they were, and no nsqd was connected in time.
        """
        front = self._front
        if front is None and not self.is_stock:
            front = self._find_out(deadline, extras)
        if front is None and extras:
            raise not_here(extras, self._has_lookupds)
        return front

    def _find_out(self, deadline: Deadline, extras: Extras) -> PartitionedFront | None:
        conn = None
        try:
            self._start_discovery()
            while conn is None:  # it may have ended just now
                conn = self._links.take(deadline).conn
        except ClosedError:
            raise
        except NSQError as exc:
            if extras:
                raise PublishNotSent(f"no nsqd was connected in time: {exc}") from exc
            return None  # the stock way says what is wrong
        return self.front_behind(conn)

    def front_behind(self, conn: Connection) -> PartitionedFront | None:
        """Return the way to the partitions of this nsqd's cluster; None where it has none."""
        if not conn.is_partitioned:
            self.is_stock = True
            return None
        with self._lock:
            if self._front is None:
                if self._is_closed:
                    raise ClosedError("the producer is closed")
                self._front = self._make_front()
            return self._front

    def known_front(self, extras: Extras) -> PartitionedFront | None:
        """As ``front``, without waiting. Raises PartitionError as that."""
        if self._front is None and not self.is_stock:
            conns = [link.conn for link in self._links.ready]
            for conn in conns:
                if conn is not None:  # it may have ended just now
                    self.front_behind(conn)
        if self.is_stock and extras:
            raise not_here(extras, self._has_lookupds)
        return self._front

    def publish_when_known(
        self, topic: str, body: bytes, is_deferred: bool, extras: Extras, deadline: Deadline
    ) -> Future[Stored | None]:
        """Queue one message with extras before anybody knows whether there are partitions."""
        def publish() -> Stored | None:
            front = self.front(deadline, extras)
            assert front is not None  # or it had raised, because of the extras
            if is_deferred:
                front.refuse_deferral()
            return front.publish(topic, body, extras, deadline)

        return self.deferred.put(extras.key, publish, len(body), deadline)

    def publish_later(
        self, front: PartitionedFront, topic: str, body: bytes, extras: Extras, deadline: Deadline
    ) -> Future[Stored | None]:
        """Queue one message; see ``Deferred.put``."""
        return self.deferred.put(
            extras.key, lambda: front.publish(topic, body, extras, deadline), len(body), deadline
        )

    @property
    def addresses(self) -> list[str]:
        """The nsqds that are connected for partitions."""
        return [] if self._front is None else self._front.addresses

    def close(self, deadline: Deadline) -> list[str]:
        """End it; return the names of threads that stay."""
        with self._lock:
            self._is_closed = True
            front = self._front
        stuck = [] if front is None else front.close(deadline)
        return self.deferred.close(deadline) + stuck

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back, fail what was handed over."""
        self.hand_over.abandon()
        if self._front is not None:
            self._front.abandon()


def make_gate(
    lookupds: list[str], links: Links, start_discovery: Callable[[], None], config: Config,
    sharding: Sharding, tracing: TraceSwitch, statistics: Statistics,
    *, retry_unknown: bool, max_pending: int, block: bool,
) -> Gate:
    """Put the parts together."""
    return Gate(
        lookupds, links, start_discovery,
        lambda: PartitionedFront(
            lookupds, config, sharding, tracing, retry_unknown,
            lambda: statistics.count("retried", 1),
        ),
        Deferred(max_pending, block, statistics),
    )
