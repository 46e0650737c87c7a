"""``PartitionedCore``: the parts of a consumer for both kinds of cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqclient.consumer.connections import ConnectionManager, NsqdSources
from nsqclient.consumer.core import ConsumerCore, ConsumerSettings
from nsqclient.consumer.processor import HandlerSettings, MessageProcessor
from nsqclient.consumer.subscription import Subscription
from nsqclient.display import counted
from nsqclient.partitioned.consumer.connections import PartitionedConnections
from nsqclient.partitioned.consumer.leaders import PartitionTarget, warn_of_few_in_flight
from nsqclient.partitioned.consumer.options import PartitionOptions
from nsqclient.partitioned.consumer.processor import BlockedPolicy, OrderedProcessor
from nsqclient.partitioned.consumer.subscription import (
    OrderedSubscription, PartitionSubscription,
)
from nsqclient.partitioned.tracing import TraceSwitch
from nsqclient.protocol.extensions import MAX_PARTITION

if TYPE_CHECKING:
    from nsqclient.http.models import TopicStats
    from nsqclient.http.nsqd import NsqdHTTP


class PartitionedCore(ConsumerCore):
    """A ConsumerCore that makes one subscription for each partition of a partitioned topic."""

    def __init__(
        self, settings: ConsumerSettings, options: PartitionOptions,
        on_blocked: BlockedPolicy | None,
    ) -> None:
        self._options = options
        self._on_blocked = on_blocked
        self.tracing: TraceSwitch = TraceSwitch()
        self._begun: set[int] = set()  # partitions whose channel is at its start position
        #: Whether too few in flight for the partitions are logged: not for a limited look.
        self.warns_of_few_in_flight: bool = True
        super().__init__(settings)
        if options.ordered and not self.has_max_in_flight:
            self.flow.set_max_in_flight(MAX_PARTITION + 1)

    def make_processor(self, handling: HandlerSettings) -> MessageProcessor:
        if self._options.ordered:
            return OrderedProcessor(self.context, self.flow, handling, self._on_blocked)
        return super().make_processor(handling)

    def fetch_stats(self, client: NsqdHTTP, topic: str) -> TopicStats | None:
        from nsqclient.partitioned.stats import fetch_stats  # takes long to import

        return fetch_stats(client, topic).topic(topic)

    def make_connections(self, sources: NsqdSources) -> ConnectionManager[Subscription]:
        return PartitionedConnections(self.context, sources, self, self._options)

    def make_partition_subscription(self, target: PartitionTarget) -> Subscription:
        """Return a Subscription to a partition, not open yet."""
        make = OrderedSubscription if target.ordered else PartitionSubscription
        return make(target, self.context, self, self.unhandled, self._options, self.tracing,
                    self._begun)

    def on_partitions(self, count: int) -> None:
        """Raise max_in_flight to one for each partition, unless the user gave it."""
        count = min(count, MAX_PARTITION + 1)  # an nsqlookupd says how many there are
        former = self.flow.max_in_flight
        if former >= count or not former:
            return
        if self.has_max_in_flight:
            if self.warns_of_few_in_flight:
                warn_of_few_in_flight(self.log, former, count)
        else:
            self.flow.set_max_in_flight(count)
            self.log.info("max_in_flight %d, one for each partition, because none was given", count)

    def show_connections(self) -> str:
        partitions = sum(sub.place.partition is not None for sub in self.flow.subscriptions)
        text = super().show_connections()
        return f"{text}, {counted(partitions, 'partition')}" if partitions else text
