"""``PartitionedCore``: the parts of a producer that publishes to either kind of NSQ."""

from __future__ import annotations

from collections import deque

from nsqclient.partitioned.producer.publisher import PartitionPublisher
from nsqclient.partitioned.producer.queues import PartitionQueues
from nsqclient.partitioned.tracing import TraceSwitch
from nsqclient.producer.core import ProducerCore, ProducerSettings
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.nodes import NsqdNode
from nsqclient.protocol.events import ServerSettings
from nsqclient.protocol.partitioned.sharding import Sharding
from nsqclient.runtime.deadline import Deadline


class PartitionedCore(ProducerCore):
    """A ProducerCore with the leaders of partitions and a queue for each partition.

    Args:
        sharding: selects the partition of a key.
        tracing: the topics that are traced; a forked child keeps them.
    """

    def __init__(
        self, settings: ProducerSettings, sharding: Sharding, tracing: TraceSwitch
    ) -> None:
        super().__init__(settings)
        self.partitions: PartitionPublisher = PartitionPublisher(
            settings.lookupds, self.nodes, self.publisher, settings.config, sharding, tracing)
        self._partition_queues = PartitionQueues(
            self.partitions, self.queues, settings.config.nsqd_max_body_size)

    def _check_nsqd(self, address: str, settings: ServerSettings) -> None:
        """Accept nsqds of either kind."""

    def _on_connected(self, node: NsqdNode) -> None:
        self.partitions.on_connected(node)

    def _take_over(self, items: deque[PublishFuture]) -> bool:
        return self._partition_queues.take_over(items)

    def _stop_publishing(self, deadline: Deadline) -> list[str]:
        stuck = super()._stop_publishing(deadline) + self.partitions.close(deadline)
        self._partition_queues.close()
        return stuck
