"""``PartitionedPart``: all that a ``Producer`` knows of partitioned NSQ.

The first nsqd that is connected sends its version in its answer to IDENTIFY. A stock cluster costs
no further request, and one look at a flag for each publish.
"""

from __future__ import annotations

import time

from nsqclient.config import Config
from nsqclient.errors import ClosedError, NSQError, PartitionError, PublishNotSentError
from nsqclient.partitioned.producer import PartitionedProducer
from nsqclient.partitioned.producer_options import PublishOptions
from nsqclient.partitioned.producer_queues import PartitionQueues
from nsqclient.partitioned.sharding import Sharding
from nsqclient.partitioned.tracing import TraceSwitch
from nsqclient.producer.async_publisher import AsyncPublisher, TakeOver
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.nodes import NodePool
from nsqclient.producer.publisher import Publisher
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock

#: Without any of them.
NO_OPTIONS = PublishOptions()


class PartitionedPart:
    """Finds out whether a producer's cluster is partitioned, and publishes to it then.

    Args:
        publisher: sends the attempts.

    Life: usable at once, ``close()``. Threads: every method, any thread.
    """

    def __init__(
        self, lookupds: list[str], nodes: NodePool, publisher: Publisher, config: Config,
        sharding: Sharding, tracing: TraceSwitch,
    ) -> None:
        #: The cluster is known to be a stock one; read without a lock by every publish.
        self.is_stock: bool = not lookupds
        self._lookupds = lookupds
        self._nodes = nodes
        self._publisher = publisher
        self._config = config
        self._sharding, self._tracing = sharding, tracing
        self._lock = Lock()
        self._producer: PartitionedProducer | None = None  # made under _lock, as the next one
        self._queues: PartitionQueues | None = None
        self._is_closed = False  # by _lock

    def detect(
        self, deadline: Deadline, options: PublishOptions = NO_OPTIONS
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
                producer = self._producer_behind(self._nodes.acquire(deadline).is_partitioned)
            except ClosedError:
                raise
            except NSQError as exc:
                if options:
                    raise PublishNotSentError(f"no nsqd was connected in time: {exc}") from exc
                return None  # the stock producer raises the reason
        if producer is None and options:
            raise self._stock_error(options)
        return producer

    def find_queues(self, item: PublishFuture, publisher: AsyncPublisher) -> TakeOver | None:
        """Return what takes over the queue of a topic; None where the cluster is a stock one.

        Blocks and raises as ``detect``.
        """
        if self.is_stock and item.options is None:
            return None
        deadline = Deadline(max(0.0, item.until - time.monotonic()))
        producer = self.detect(deadline, item.options or NO_OPTIONS)
        if producer is None:
            return None
        with self._lock:
            if self._queues is None:
                self._queues = PartitionQueues(
                    producer, publisher, self._config.nsqd_max_body_size)
            return self._queues.distribute

    def _producer_behind(self, is_partitioned: bool) -> PartitionedProducer | None:
        """Return the way to the partitions; None where an nsqd of the cluster is a stock one."""
        if not is_partitioned:
            self.is_stock = True
            return None
        with self._lock:
            if self._producer is None:
                if self._is_closed:
                    raise ClosedError("the producer is closed")
                self._producer = PartitionedProducer(
                    self._lookupds, self._nodes, self._publisher, self._config, self._sharding,
                    self._tracing)
            return self._producer

    def check_async(self, is_deferred: bool, options: PublishOptions | None) -> None:
        """Check the arguments of an asynchronous publish, as far as the cluster is known.

        Raises:
            PartitionError: the cluster does not take what was asked for.
        """
        if self._producer is None and not self.is_stock:
            for node in self._nodes.connected:
                self._producer_behind(node.is_partitioned)
        if self._producer is None and self.is_stock and options is not None:
            raise self._stock_error(options)
        if self._producer is not None and is_deferred:
            self._producer.refuse_deferral()

    def _stock_error(self, options: PublishOptions) -> PartitionError:
        """Return why a stock cluster does not take these options."""
        given = [name for name in options._fields if getattr(options, name) is not None]
        asked = ", ".join(f"{name}=" for name in given)
        if not self._lookupds:
            return PartitionError(
                f"{asked} needs lookupd_http_addresses: nsqlookupds name the leaders of partitions"
            )
        return PartitionError(f"{asked} needs a partitioned NSQ, and this cluster is a stock one")

    def close(self, deadline: Deadline) -> list[str]:
        """End it; return the names of threads that did not end."""
        with self._lock:
            self._is_closed = True
            producer, queues = self._producer, self._queues
        stuck = [] if producer is None else producer.close(deadline)
        if queues is not None:
            queues.close()
        return stuck
