"""``BulkConsumer`` for stock and partitioned NSQ: one connection for each partition, if any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nsqclient.connection.connection import Connection
from nsqclient.consumer.bulk import BulkConsumer as StockBulkConsumer
from nsqclient.consumer.bulk import BulkHandler, BulkSubscription
from nsqclient.consumer.connections import ConnectionManager, NsqdSources
from nsqclient.consumer.context import ConsumerContext
from nsqclient.errors import ServerError
from nsqclient.partitioned.connections import PartitionedConnections
from nsqclient.partitioned.leaders import PartitionTarget, warn_of_few_in_flight
from nsqclient.partitioned.options import PartitionOptions
from nsqclient.partitioned.subscription import PartitionSubscribe
from nsqclient.protocol.frames import RawMessage


def partition_source(partition: int) -> str:
    return f"partition-{partition}"


def text_id(message_id: bytes) -> bytes:
    """Return the id of a message of a partition as 16 hexadecimal digits.

    They are the internal id, which stays the same after reconnects and moves of the leader. The
    other half of the 16 bytes is the trace id.
    """
    return message_id[:8].hex().encode()


def _wire_id(text: bytes) -> bytes:
    return bytes.fromhex(text.decode()) + bytes(8)  # nsqd reads the first eight


class BulkPartitionSubscription(BulkSubscription):
    """One connection to one partition. Ids are texts except on the wire."""

    def __init__(
        self, target: PartitionTarget, context: ConsumerContext, owner: StockBulkConsumer
    ) -> None:
        super().__init__(target.place.address, context, owner)
        assert target.place.partition is not None
        self.place = target.place
        self.source: str = partition_source(target.place.partition)
        self.is_watched = False
        self.is_ordered: bool = target.ordered
        self._is_refused = False  # nsqd has refused a FIN
        self.wanted: PartitionSubscribe = PartitionSubscribe(
            self.topic, self.channel, target.place.partition, target.ordered, target.extended)

    @property
    def is_proven(self) -> bool:
        return super().is_proven and not self._is_refused

    @property
    def max_rdy(self) -> int:
        return 1 if self.is_ordered else super().max_rdy

    def finish_ids(self, ids: Sequence[bytes]) -> None:
        super().finish_ids(list(map(_wire_id, ids)))

    def requeue_ids(self, ids: Sequence[bytes]) -> None:
        super().requeue_ids(list(map(_wire_id, ids)))

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        super().on_messages(conn, [
            (timestamp, attempts, text_id(message_id), body)
            for timestamp, attempts, message_id, body in self.wanted.read(batch)[0]
        ])

    def on_command_failed(self, conn: Connection, error: ServerError) -> None:
        if error.code == "E_FIN_FAILED":  # does not say which id, so no FIN is proven
            self._is_refused = True
        else:
            super().on_command_failed(conn, error)


class BulkConsumer(StockBulkConsumer):
    """A BulkConsumer that also consumes partitioned topics, and ordered topics in order."""

    def __init__(
        self, topic: str, channel: str, handler: BulkHandler, *arguments: Any,
        partitions: frozenset[int] | None = None, **options: Any,
    ) -> None:
        self._options = PartitionOptions(partitions=partitions, follows_topic=True)
        super().__init__(topic, channel, handler, *arguments, **options)

    def make_lane(
        self, sources: NsqdSources, max_dials: int
    ) -> ConnectionManager[BulkSubscription]:
        return PartitionedConnections(
            self.context, sources, self, self._options, max_dials=max_dials)

    def make_partition_subscription(self, target: PartitionTarget) -> BulkSubscription:
        return BulkPartitionSubscription(target, self.context, self)

    def on_partitions(self, count: int) -> None:
        if self.flow.max_in_flight < count:
            warn_of_few_in_flight(self.log, self.flow.max_in_flight, count)
