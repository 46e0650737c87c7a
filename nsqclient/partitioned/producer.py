"""``Producer`` for both kinds of NSQ: with the arguments for partitioned topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from nsqclient.config import Config
from nsqclient.discovery import Addresses
from nsqclient.errors import InvalidMessageError
from nsqclient.partitioned.options import (
    Outgoing, PublishOptions, TraceSwitch, publish_each, with_own_options,
)
from nsqclient.partitioned.publisher import PartitionPublisher
from nsqclient.partitioned.queues import PartitionQueues
from nsqclient.producer.core import ProducerCore, ProducerSettings
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.producer import BaseProducer
from nsqclient.protocol import commands
from nsqclient.protocol.commands import Body
from nsqclient.protocol.events import ServerSettings
from nsqclient.protocol.partitioned.extensions import StoredPosition
from nsqclient.protocol.partitioned.sharding import Key, Sharding, choose_sharding
from nsqclient.runtime.arguments import check_unknown, checks_names
from nsqclient.runtime.deadline import Deadline, Duration
from nsqclient.runtime.forking import check_process
if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Keyword arguments of a publish.
_KEYWORDS = ("defer", "timeout", "key", "trace_id", "headers", "partition")


class PartitionedProducerCore(ProducerCore):
    """A ProducerCore with the leaders of partitions and a queue for each partition."""

    def __init__(
        self, settings: ProducerSettings, sharding: Sharding, tracing: TraceSwitch
    ) -> None:
        super().__init__(settings)
        self.partitions: PartitionPublisher = PartitionPublisher(
            settings.lookupds, self.nodes, self.publisher, settings.config, sharding, tracing)
        self._partition_queues = PartitionQueues(
            self.partitions, self.queues, settings.config.nsqd_max_body_size)

    def _check_nsqd(self, address: str, settings: ServerSettings) -> None:
        self.partitions.check_nsqd(address, settings)

    def _take_over(self, items: deque[PublishFuture]) -> bool:
        return self._partition_queues.take_over(items)

    def _stop_publishing(self, deadline: Deadline) -> list[str]:
        stuck = super()._stop_publishing(deadline) + self.partitions.close(deadline)
        self._partition_queues.close()
        return stuck


class ProducerArguments(TypedDict, total=False):
    lookupd_http_addresses: Addresses
    config: Config | None
    retry_unknown: bool
    sticky: bool
    max_pending: int
    max_pending_bytes: int
    on_full: str
    linger: Duration


@checks_names(
    "an argument of nsqclient.partitioned.Producer", *ProducerArguments.__annotations__,
    shown="nsqclient.partitioned.Producer")
class Producer(BaseProducer[PartitionedProducerCore]):
    """Publishes to a stock or a partitioned NSQ, and finds out which of the two it is.

    It has the methods of :class:`nsqclient.Producer`, with arguments for partitioned topics.
    ``docs/topics/partitions.rst`` describes partitioned NSQ.

    Args:
        nsqd_tcp_addresses, arguments: as :class:`nsqclient.Producer`. Partitions need
            ``lookupd_http_addresses``.
        sharding: how a ``key`` selects the partition: "murmur3" as in go-nsq, "java" as in the Java
            client, or a callable of key and number of partitions.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        nsqd_tcp_addresses: Addresses = (),
        *,
        sharding: str | Sharding = "murmur3",
        **arguments: Unpack[ProducerArguments],
    ) -> None:
        self._sharding, self._tracing = choose_sharding(sharding), TraceSwitch()
        super().__init__(nsqd_tcp_addresses, **arguments)

    def _make_core(self) -> PartitionedProducerCore:
        return PartitionedProducerCore(self._settings, self._sharding, self._tracing)

    def publish(
        self,
        topic: str,
        body: Body,
        defer: Duration | None = None,
        timeout: Duration | None = None,
        *,
        key: Key | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
        **unknown: NoReturn,
    ) -> StoredPosition | None:
        """Publish one message; returns when nsqd has stored it.

        Args:
            topic, body, defer, timeout: as :meth:`nsqclient.Producer.publish`.
            key: the value that selects the partition.
            trace_id: a number to trace the message.
            headers: JSON headers.
            partition: the partition, instead of a key.

        Returns: the position, partition and nsqd of a traced message; otherwise None.

        Blocks and raises like :meth:`nsqclient.Producer.publish`.

        Raises:
            PartitionError: the cluster or the topic does not support the arguments.
        """
        if unknown:
            check_unknown("publish", unknown, _KEYWORDS)
        check_process()
        seconds = self._seconds(timeout)
        core = self._core
        has_options = not (
            key is None and trace_id is None and headers is None and partition is None)
        if has_options or not core.partitions.is_stock:
            deadline = Deadline(seconds)
            options = PublishOptions(key, trace_id, headers, partition).checked()
            if core.partitions.detect(deadline, options):
                return core.publisher.run(
                    core.partitions.publish, (topic, body, defer, options, deadline), 1, len(body))
        self._store(topic, body, defer, seconds)
        return None

    def publish_json(
        self,
        topic: str,
        value: Any,
        defer: Duration | None = None,
        timeout: Duration | None = None,
        *,
        key: Key | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
    ) -> StoredPosition | None:
        """Publish one message whose body is ``value`` as JSON; ``Message.json()`` decodes it.

        Args:
            value: a value that :func:`json.dumps` supports, except for NaN and infinities.

        The other arguments, the return value, blocking and exceptions are as in :meth:`publish`.

        Raises:
            InvalidMessageError: also if the value cannot be encoded.
        """
        return self.publish(
            topic, commands.json_body(value), defer, timeout, key=key, trace_id=trace_id,
            headers=headers, partition=partition)

    def publish_many(
        self, topic: str, bodies: Iterable[Body | Outgoing], timeout: Duration | None = None,
        *, key: Key | None = None, partition: int | None = None,
    ) -> int:
        """Publish several messages, as :meth:`nsqclient.Producer.publish_many`.

        Args:
            bodies: bodies, or :class:`Outgoing` for messages with their own keys, headers or
                partitions; each partition gets its messages in the order given.
            key, partition: the destination of bodies without their own.

        Returns: the number of messages that were stored; 0 without bodies.

        Blocks and raises like :meth:`publish`; ``timeout`` is the total time.
        """
        check_process()
        if isinstance(bodies, Outgoing):
            raise InvalidMessageError("publish_many needs a list of messages, not one Outgoing")
        checked = self._check_bodies(topic, bodies)
        seconds = self._seconds(timeout)
        core, deadline = self._core, Deadline(seconds)
        options = PublishOptions(key, None, None, partition).checked()
        if Outgoing in set(map(type, checked)):
            return publish_each(
                self.publish_async, topic,
                with_own_options(checked, options, self.config.nsqd_max_msg_size),
                self._settings.window.messages, deadline)
        if (options or not core.partitions.is_stock) and core.partitions.detect(deadline, options):
            return self._store_many(
                checked,
                lambda part: core.partitions.publish_chunk(topic, part, options, deadline))
        return self._store_many(checked, self._store_part(topic, deadline))

    def publish_async(
        self,
        topic: str,
        body: Body,
        defer: Duration | None = None,
        timeout: Duration | None = None,
        *,
        key: Key | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
        **unknown: NoReturn,
    ) -> Future[StoredPosition | None]:
        """Queue one message; the Future has the outcome that :meth:`publish` would have.

        Otherwise as :meth:`nsqclient.Producer.publish_async`.

        Raises:
            PartitionError: the cluster does not support the arguments. Before the first nsqd is
                connected, the Future raises it instead.
        """
        if unknown:
            check_unknown("publish_async", unknown, _KEYWORDS)
        check_process()
        seconds = self._seconds(timeout)
        options = None
        if not (key is None and trace_id is None and headers is None and partition is None):
            options = PublishOptions(key, trace_id, headers, partition).checked()
        partitions = self._core.partitions
        if options is not None or defer is not None and not partitions.is_stock:
            partitions.check_async(defer is not None, options)
        return self._queue(topic, body, defer, seconds, options)

    def set_tracing(self, enabled: bool, topic: str | None = None) -> None:
        """Turn tracing on or off, for a topic or for all.

        While it is on, each publish has a ``trace_id``, and the logger ``nsqclient.trace`` logs
        where each message was stored.
        """
        self._tracing.set(enabled, topic)
