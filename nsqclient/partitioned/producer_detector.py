"""``ClusterDetector``: finds out whether a producer's cluster is partitioned.

The first nsqd that is connected sends its version in its answer to IDENTIFY. A stock cluster costs
no further request, and one look at a flag for each publish.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqclient.errors import ClosedError, NSQError, PartitionError, PublishNotSentError
from nsqclient.producer.node import NsqdNode
from nsqclient.producer.nodes import NodePool
from nsqclient.partitioned.producer import PartitionedProducer, PublishOptions
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock


class ClusterDetector:
    """Gives a producer its way to the partitions, once it is known that there are any.

    Args:
        start_discovery: begins to ask the nsqlookupds for nsqds.
        make_producer: called once, when the cluster turns out to be partitioned.

    Life: usable at once, ``close()``. Threads: every method, any thread.
    """

    def __init__(
        self, lookupds: list[str], nodes: NodePool, start_discovery: Callable[[], None],
        make_producer: Callable[[], PartitionedProducer],
    ) -> None:
        #: The cluster is known to be a stock one; read without a lock by every publish.
        self.is_stock: bool = not lookupds
        self._has_lookupds = bool(lookupds)
        self._nodes = nodes
        self._start_discovery = start_discovery
        self._make_producer = make_producer
        self._lock = Lock()
        self._producer: PartitionedProducer | None = None  # made under _lock
        self._is_closed = False  # by _lock

    def detect(
        self, deadline: Deadline, options: PublishOptions = PublishOptions()
    ) -> PartitionedProducer | None:
        """Return the way to the partitions; None for a stock cluster, or an unknown one.

        Blocks: until an nsqd is connected, the first time; at most until the deadline.

        Raises:
            PartitionError: options are given, and the cluster is a stock one.
            PublishNotSentError: options are given, and no nsqd was connected in time.
        """
        producer = self._producer
        if producer is None and not self.is_stock:
            try:
                self._start_discovery()
                node = self._nodes.acquire(deadline, self._nodes.pooled)
                producer = self.producer_behind(node)
            except ClosedError:
                raise
            except NSQError as exc:
                if options:
                    raise PublishNotSentError(f"no nsqd was connected in time: {exc}") from exc
                return None  # the stock producer raises the reason
        if producer is None and options:
            raise self.stock_error(options)
        return producer

    def producer_behind(self, node: NsqdNode) -> PartitionedProducer | None:
        """Return the way to the partitions of this nsqd's cluster; None for a stock one.

        Args:
            node: it is connected, or was.
        """
        if not node.is_partitioned:
            self.is_stock = True
            return None
        with self._lock:
            if self._producer is None:
                if self._is_closed:
                    raise ClosedError("the producer is closed")
                self._producer = self._make_producer()
            return self._producer

    def check_async(self, is_deferred: bool, options: PublishOptions | None) -> None:
        """Check the arguments of an asynchronous publish, as far as the cluster is known.

        Raises:
            PartitionError: the cluster does not take what was asked for.
        """
        known = self._detect_at_once()
        if known is None and self.is_stock and options is not None:
            raise self.stock_error(options)
        if known is not None and is_deferred:
            known.refuse_deferral()

    def _detect_at_once(self) -> PartitionedProducer | None:
        """As ``detect``, without waiting."""
        if self._producer is None and not self.is_stock:
            for node in (*self._nodes.pooled.nodes, *self._nodes.pipelined.nodes):
                self.producer_behind(node)
        return self._producer

    def stock_error(self, options: PublishOptions) -> PartitionError:
        """Return why a stock cluster does not take these options."""
        given = [name for name in options._fields if getattr(options, name) is not None]
        asked = ", ".join(f"{name}=" for name in given)
        if not self._has_lookupds:
            return PartitionError(
                f"{asked} needs lookupd_http_addresses: nsqlookupds name the leaders of partitions"
            )
        return PartitionError(f"{asked} needs a partitioned NSQ, and this cluster is a stock one")

    def close(self, deadline: Deadline) -> list[str]:
        """End it; return the names of threads that did not end."""
        with self._lock:
            self._is_closed = True
            producer = self._producer
        return [] if producer is None else producer.close(deadline)
