"""``Consumer`` for stock and partitioned NSQ: the stock Consumer with more arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from nsqclient.config import Config, checked_config
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.connections import ConnectionManager, NsqdSources
from nsqclient.consumer.consumer import Consumer as StockConsumer
from nsqclient.consumer.core import ConsumerCore, ConsumerSettings
from nsqclient.consumer.middleware import Middleware
from nsqclient.consumer.processor import Handler, HandlerSettings, MessageProcessor
from nsqclient.consumer.retry import RetryPolicy
from nsqclient.consumer.subscription import Subscription
from nsqclient.discovery import Addresses
from nsqclient.display import counted
from nsqclient.errors import ConfigError, NSQError
from nsqclient.message import Message
from nsqclient.partitioned.connections import PartitionedConnections
from nsqclient.partitioned.leaders import PartitionTarget, warn_of_few_in_flight
from nsqclient.partitioned.options import (
    PartitionOptions, TraceSwitch, check_partitions, check_start,
)
from nsqclient.partitioned.ordered import BlockedPolicy, OrderedProcessor
from nsqclient.partitioned.subscription import OrderedSubscription, PartitionSubscription
from nsqclient.protocol.partitioned.extensions import MAX_PARTITION
from nsqclient.protocol.partitioned.selection import HeaderFilter, StartPosition
from nsqclient.runtime.arguments import check_function, checks_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nsqclient.partitioned.channel_depth import DepthQuery


class PartitionedConsumerCore(ConsumerCore):
    """A ConsumerCore that makes one subscription for each partition of a partitioned topic."""

    def __init__(
        self, settings: ConsumerSettings, options: PartitionOptions,
        on_blocked: BlockedPolicy | None,
    ) -> None:
        self._options = options
        self._on_blocked = on_blocked
        self.tracing: TraceSwitch = TraceSwitch()
        self._begun: set[int] = set()  # partitions whose start position was set
        #: Warn of a max_in_flight below the number of partitions.
        self.warns_of_few_in_flight: bool = True
        super().__init__(settings)
        if options.ordered and not self.has_max_in_flight:
            self.flow.set_max_in_flight(MAX_PARTITION + 1)

    def make_processor(self, handling: HandlerSettings) -> MessageProcessor:
        if self._options.ordered:
            return OrderedProcessor(self.context, self.flow, handling, self._on_blocked)
        return super().make_processor(handling)

    def make_connections(self, sources: NsqdSources) -> ConnectionManager[Subscription]:
        return PartitionedConnections(self.context, sources, self, self._options)

    def make_depth_query(self, sources: NsqdSources) -> DepthQuery:
        from nsqclient.partitioned.channel_depth import DepthQuery  # slow to import

        context = self.context
        return DepthQuery(context.topic, context.channel, context.config, sources,
                          partitions=self._options.partitions)

    def make_partition_subscription(self, target: PartitionTarget) -> Subscription:
        make = OrderedSubscription if target.ordered else PartitionSubscription
        return make(target, self.context, self, self.unhandled, self._options, self.tracing,
                    self._begun)

    def on_partitions(self, count: int) -> None:
        count = min(count, MAX_PARTITION + 1)  # an nsqlookupd may report any number
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


class ConsumerArguments(TypedDict, total=False):
    nsqd_tcp_addresses: Addresses
    lookupd_http_addresses: Addresses
    max_in_flight: int | None
    workers: int
    config: Config | None
    retry: RetryPolicy | None
    on_giving_up: Callable[[Message], Any]
    on_error: Callable[[NSQError], Any] | None
    on_connect: Callable[[str], Any] | None
    on_disconnect: Callable[[str], Any] | None
    on_backoff: Callable[[str, float], Any] | None
    on_stop: Callable[[], Any] | None
    discovery_filter: Callable[[list[str]], Iterable[str]] | None
    middleware: Iterable[Middleware]


@checks_names(
    "an argument of nsqclient.partitioned.Consumer", *ConsumerArguments.__annotations__,
    shown="nsqclient.partitioned.Consumer")
class Consumer(StockConsumer):
    """Consumes one channel of one topic of a stock or a partitioned NSQ.

    It finds out which of the two it is. ``docs/topics/partitions.rst`` describes partitioned NSQ.

    Args:
        topic, channel, handler, arguments: as :class:`nsqclient.Consumer`. If ``max_in_flight`` is
            not given, it is at least one for each partition.
        ordered: handle the messages of each partition of an ordered topic one by one, and skip
            none. ``max_in_flight`` defaults to the number of partitions.
        on_blocked: with ``ordered``: called with a message that failed, or arrived out of order,
            and the error; returns ``BlockedAction.RETRY``, ``BlockedAction.SKIP``, or seconds to
            wait.
        partitions: the partitions to consume; None: all of them. Like ``ordered``, this argument
            and the following ones need nsqlookupds.
        start_at: position at which the channel begins to read, for all partitions, or a dict with
            one for each. It is set at the first connection to a partition, unless the channel has
            consumers.
        with_offsets: messages have ``offset`` and ``size``, as with ``ordered`` and ``start_at``.
        desired_tag: consume only messages with this tag (header ``##client_dispatch_tag``).
        header_filter: consume only messages whose headers match; nsqd finishes the others.

    Raises:
        ConfigError: an argument is invalid, or arguments contradict each other.
    """

    _core: PartitionedConsumerCore

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler | None = None,
        *,
        ordered: bool = False,
        on_blocked: BlockedPolicy | None = None,
        partitions: Iterable[int] | None = None,
        start_at: StartPosition | Mapping[int, StartPosition] | None = None,
        with_offsets: bool = False,
        desired_tag: str = "",
        header_filter: HeaderFilter | None = None,
        **arguments: Unpack[ConsumerArguments],
    ) -> None:
        if on_blocked is not None:
            check_function(on_blocked, "on_blocked", "message", "error")
        self._options = PartitionOptions(
            ordered, check_partitions(partitions), check_start(start_at), with_offsets,
            desired_tag, header_filter)
        if on_blocked is not None and not ordered:
            raise ConfigError("on_blocked is for ordered=True; else see on_giving_up")
        if ordered and isinstance(handler, BatchHandler):
            raise ConfigError("a BatchHandler cannot keep an order: give a plain handler")
        self._options.check(
            checked_config(arguments.get("config")), bool(arguments.get("nsqd_tcp_addresses")))
        if ordered and arguments.get("retry") is not None:
            raise ConfigError("retry is not for ordered=True: use on_blocked")
        self._on_blocked = on_blocked
        super().__init__(topic, channel, handler, **arguments)

    def _make_core(self) -> PartitionedConsumerCore:
        return PartitionedConsumerCore(self._settings, self._options, self._on_blocked)

    def set_tracing(self, enabled: bool) -> None:
        """Turn the trace log (logger ``nsqclient.trace``) on or off."""
        self._core.tracing.set(enabled)
