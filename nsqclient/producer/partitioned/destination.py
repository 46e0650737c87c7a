"""``PartitionDestination``: where a ``GroupCommit`` sends publishes to a partition of a topic.

Publishes of several threads to one partition share its round trips. So do those without a key to
one topic: each batch of them goes to the next partition, and where it is not answered at once, the
next batch need not wait for it.
"""

from __future__ import annotations

import time

from nsqclient.connection.connection import Connection
from nsqclient.errors import PublishNotSentError
from nsqclient.partitions.lookup_table import TopicRoutes
from nsqclient.partitions.sharding import RoundRobin
from nsqclient.producer.group_commit import Batch
from nsqclient.producer.nodes import NodePool
from nsqclient.producer.outcome import BusyConnection
from nsqclient.producer.partitioned.metadata import MetadataCache
from nsqclient.runtime.deadline import Deadline

#: Seconds after which a partition that has not answered is not used while there are others.
UNANSWERED_AFTER = 0.1


def partition_name(topic: str, partition: int) -> str:
    """Return the words of a command that name a partition."""
    return f"{topic} {partition}"


def unanswered_partitions(nodes: NodePool, topic: str, routes: TopicRoutes) -> list[int]:
    """Return the partitions of a topic that leave publishes unanswered."""
    names = nodes.unanswered_names(UNANSWERED_AFTER)
    if not names:
        return []
    return [one for one in routes.partitions if partition_name(topic, one) in names]


class PartitionDestination:
    """One partition of a topic, or all of them in turn. For GroupCommit, in place of an nsqd.

    Args:
        partition: None for all in turn.
        try_timeout: seconds after which a connection without an answer is closed.
    """

    #: What ``stall_detector`` watches is not of this kind: see ``is_stalled``.
    progress = (0, 0)

    def __init__(
        self, topic: str, partition: int | None, nodes: NodePool, metadata: MetadataCache,
        round_robin: RoundRobin, try_timeout: float,
    ) -> None:
        self.address = topic if partition is None else f"partition {partition} of {topic}"
        self._topic, self._partition = topic, partition
        self._nodes = nodes
        self._metadata = metadata
        self._round_robin = round_robin
        self._try_timeout = try_timeout

    def send_batches(self, batches: list[Batch], until: float) -> Connection:
        """Send the commands of a group to the leader, in one write.

        Blocks: until there is a leader and a connection, at most until the deadline.

        Raises:
            NSQError: nothing was sent.
        """
        deadline = Deadline(max(0.0, until - time.monotonic()))
        routes = self._metadata.routes(self._topic, deadline)
        partition = self._partition
        if partition is None:
            avoid = unanswered_partitions(self._nodes, self._topic, routes)
            partition = self._round_robin.choose(routes.partitions, avoid)
        nsqd = None if partition is None else routes.partitions.get(partition)
        if partition is None or nsqd is None:
            raise PublishNotSentError(f"{self.address} has no leader")
        name, route = partition_name(self._topic, partition), (partition, nsqd)
        for batch in batches:
            batch.assign(name, route)
        while True:
            node = self._nodes.connect(nsqd, deadline, name)
            try:
                return node.send_batches(batches, until, name)
            except BusyConnection:
                pass  # another partition was faster

    def on_no_answer(self) -> None:
        """A batch has no answer in time: close its connection where that is too long."""
        self._nodes.close_unanswered(0.9 * self._try_timeout)

    def stall_detector(self, seconds: float, now: float) -> PartitionDestination:
        """Return what a thread that waits for an answer asks now and then."""
        self.on_no_answer()
        return self

    def is_stalled(self, now: float) -> bool:
        """Return False: the end of the connection is the outcome, there is no other leader."""
        self.on_no_answer()
        return False

    def mark_unresponsive(self, progress: tuple[int, int]) -> bool:
        """Return False: there is no other leader."""
        return False
