"""``Producer``: publishes from plain blocking code, from any thread, and reports the outcome.

A publish returns when nsqd has stored the message. It raises ``PublishRejectedError`` when the
message is not stored, and ``PublishUnknownError`` when that is unknown.
"""

from __future__ import annotations

import atexit
import logging
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

from nsqclient.config import Config, checked_config
from nsqclient.discovery import Addresses, check_addresses
from nsqclient.display import counted
from nsqclient.errors import ClosedError, ConfigError, InvalidMessageError, PublishError
from nsqclient.partitioned.producer.producer import PartitionedProducer
from nsqclient.partitioned.producer.options import (
    Outgoing, PublishOptions, publish_each, with_own_options,
)
from nsqclient.partitioned.producer.queues import PartitionQueues
from nsqclient.protocol.partitioned.sharding import Key, Sharding, choose_sharding
from nsqclient.partitioned.tracing import TraceSwitch
from nsqclient.producer.async_publisher import AsyncPublisher, Window
from nsqclient.producer.discovery import NodeDiscovery
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.nodes import NodePool
from nsqclient.producer.publisher import Publisher
from nsqclient.producer.stats import MAX_RECENT, ProducerStats, Statistics
from nsqclient.protocol import commands
from nsqclient.protocol.commands import Body
from nsqclient.protocol.extensions import StoredPosition
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.arguments import checks_names
from nsqclient.runtime.deadline import Deadline, Duration, to_seconds
from nsqclient.runtime.forking import check_process, register_for_fork
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.threads import run_in_thread

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds between two looks of ``close()`` at whether publishes are under way.
_LOOK = 0.5
#: Seconds for which the end of the process waits for publishes without an outcome.
_EXIT_TIMEOUT = 5.0
#: Names of topics that a producer remembers as valid.
_MAX_TOPICS = 1000


@checks_names("an argument of Producer")
class Producer:
    """Publishes to one or more nsqds.

    Args:
        nsqd_tcp_addresses: ``host:port`` of nsqds; the connected ones are used in turn.
        lookupd_http_addresses: ``host:port`` or URL of nsqlookupds, which list all nsqds of the
            cluster.
        config: the options; ``publish_timeout`` is the default timeout of a publish.
        retry_unknown: whether a publish is sent again if its connection was lost before the
            response. This may store the message twice. If False, such a publish raises
            PublishUnknownError.
        sticky: use one nsqd until it fails, instead of all in turn.
        max_pending, max_pending_bytes: limits for messages of ``publish_async`` without an outcome.
        on_full: what ``publish_async`` does at these limits: "block" or "raise".
        linger: seconds that an asynchronous publish waits for further messages.
        sharding: how a ``key`` selects the partition of a partitioned NSQ: "murmur3" as in go-nsq,
            "java" as in the Java client, or a callable of key and number of partitions.

    Raises:
        ConfigError: an argument is invalid.

    Life: created (no socket yet), connects with the first publish, ``close()``. At the end of the
    process pending messages are flushed for at most 5 s. In a forked child the producer has
    nothing pending and opens its own connections.

    Threads: every method, any thread. Publishes of several threads share the connections.
    """

    def __init__(
        self,
        nsqd_tcp_addresses: Addresses = (),
        *,
        lookupd_http_addresses: Addresses = (),
        config: Config | None = None,
        retry_unknown: bool = True,
        sticky: bool = False,
        max_pending: int = 10_000,
        max_pending_bytes: int = 64 * 1024 * 1024,
        on_full: str = "block",
        linger: Duration = 0.0,
        sharding: str | Sharding = "murmur3",
    ) -> None:
        self._sharding, self._tracing = choose_sharding(sharding), TraceSwitch()
        self._topics: set[str] = set()  # valid ones: few, and used again and again
        nsqds, lookupds = check_addresses(nsqd_tcp_addresses, lookupd_http_addresses)
        if on_full not in ("block", "raise"):
            raise ConfigError(f"on_full {on_full!r}: use 'block' or 'raise'")
        for value, name in ((max_pending, "max_pending"), (max_pending_bytes, "max_pending_bytes")):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a whole number from 1, not {value!r}")
        self.config: Config = checked_config(config)
        self._nsqds, self._lookupds = nsqds, lookupds
        self._retry_unknown = retry_unknown
        self._sticky = sticky
        self._window = Window(
            max_pending, max_pending_bytes, on_full == "block", to_seconds(linger, "linger"))
        self._begin()
        register_for_fork(self)
        _live.add(self)

    def _begin(self) -> None:
        """Make everything that a forked child must have of its own."""
        config = self.config
        self._nodes = NodePool(
            self._nsqds, config, self._lookupds,
            lambda node: self._partitioned.on_connected(node))
        self._statistics = Statistics()
        self._discovery = NodeDiscovery(self._lookupds, self._nsqds, config, self._nodes)
        self._publisher = Publisher(
            self._nodes, self._retry_unknown, self._statistics, self._sticky)
        self._async = AsyncPublisher(
            self._publisher, self._nodes.timer, self._window, self._statistics,
            config.nsqd_max_body_size, lambda items: self._queues.take_over(items),
        )
        self._partitioned = PartitionedProducer(
            self._lookupds, self._nodes, self._publisher, config, self._sharding, self._tracing)
        self._queues = PartitionQueues(self._partitioned, self._async, config.nsqd_max_body_size)
        self._idle = Monitor()
        self._running: set[object] = set()  # one for each publish under way
        self._closed = False

    # -- publishing

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
    ) -> StoredPosition | None:
        """Publish one message; returns when nsqd has stored it.

        Args:
            topic: valid topic name; nsqd creates the topic.
            body: bytes, bytearray or memoryview, not empty.
            defer: seconds until it is delivered, up to ``nsqd_max_req_timeout``.
            timeout: total seconds, including the time to connect and retries; default
                ``publish_timeout``.
            key, trace_id, headers: for a partitioned NSQ: the value that selects the partition, a
                number to trace the message, JSON headers. See ``docs/topics/partitions.rst``.
            partition: the partition, instead of a key.

        Returns: where it was stored, with partition and nsqd, if it was traced; else None.

        Blocks: until the outcome is known, at most ``timeout``.

        Raises:
            PartitionError: the cluster or the topic does not support the arguments.
            InvalidTopicError, InvalidMessageError: nsqd would reject it; nothing was sent.
            PublishRejectedError: not stored (PublishNotSentError: no nsqd could be reached).
            PublishUnknownError: no response in time; it may be stored.
            ClosedError: the producer was closed.
        """
        check_process()
        config = self.config
        seconds = config.publish_timeout if timeout is None else to_seconds(timeout, "timeout")
        until = time.monotonic() + seconds
        if not self._partitioned.is_stock or not (
            key is None and trace_id is None and headers is None and partition is None
        ):
            deadline = Deadline(seconds)
            options = PublishOptions(key, trace_id, headers, partition).checked()
            if self._partitioned.detect(deadline, options):
                return self._publish(
                    self._partitioned.publish, (topic, body, defer, options, deadline), 1,
                    len(body))
        if type(topic) is not str or topic not in self._topics:
            self._check_topic(topic)
        data = commands.check_body(body, config.nsqd_max_msg_size)
        if defer is None:
            command = commands.pub_unchecked(topic, data)
        else:
            command = commands.dpub(
                topic, self._delay_ms(defer), data, config.nsqd_max_msg_size, self._max_delay_ms
            )
        self._publish(self._publisher.publish, (command, until, seconds), 1, len(data))
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
        """Publish several messages, in as few MPUBs as nsqd's limits allow.

        Every body is checked before the first one is sent. If an MPUB fails, ``stored`` of the
        exception is the number of messages in the MPUBs before it. nsqd rejects an MPUB as a whole;
        but if its disk fails (E_MPUB_FAILED), it may have stored a part: an unknown outcome.

        Args:
            bodies: bodies, or :class:`Outgoing` where messages have their own keys, headers or
                partitions; each partition gets its messages in the order given.
            key, partition: for a partitioned NSQ: the destination of bodies without their own.

        Returns: the number of messages that were stored; 0 if there are no bodies.

        Blocks and raises like :meth:`publish`; ``timeout`` is the total time.
        """
        check_process()
        self._check_topic(topic)
        if isinstance(bodies, (bytes, bytearray, memoryview, str, Outgoing)):
            raise InvalidMessageError("publish_many needs a list of bodies, not one body")
        config = self.config
        bodies = list(bodies)
        seconds = config.publish_timeout if timeout is None else to_seconds(timeout, "timeout")
        options = PublishOptions(key, None, None, partition).checked()
        if Outgoing in set(map(type, bodies)):
            return publish_each(
                self.publish_async, topic,
                with_own_options(bodies, options, config.nsqd_max_msg_size),
                self._window.messages, Deadline(seconds))
        checked = commands.check_bodies(bodies, config.nsqd_max_msg_size)
        deadline = Deadline(seconds)
        is_stock = not options and self._partitioned.is_stock
        is_stock = is_stock or not self._partitioned.detect(deadline, options)
        stored = 0
        for part in commands.chunk_bodies(checked, config.nsqd_max_body_size):
            try:
                size = sum(map(len, part))
                publish: Callable[..., None] = self._partitioned.publish_chunk
                arguments: tuple[Any, ...] = (topic, part, options, deadline)
                if is_stock:
                    publish = self._publisher.publish
                    arguments = (commands.mpub_unchecked(topic, part), deadline.until, seconds)
                self._publish(publish, arguments, len(part), size)
            except PublishError as exc:
                exc.stored = stored
                raise
            stored += len(part)
        return stored

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
    ) -> Future[StoredPosition | None]:
        """Queue one message; the Future has the outcome that :meth:`publish` would have.

        Queued messages of one topic are sent as one MPUB, in the order of the calls. A Future can
        be cancelled until its message is sent. Its callbacks run on a thread of the library and
        must not block.

        Blocks: at the limit ``max_pending``, if ``on_full`` is "block"; at most ``timeout``.

        Raises:
            InvalidTopicError, InvalidMessageError: nsqd would reject it; nothing was queued.
            PublishNotSentError: the limit is reached.
            PartitionError: the cluster does not support the arguments. Before the first nsqd is
                connected, the Future raises it instead.
            ClosedError: the producer was closed.
        """
        check_process()
        config = self.config
        seconds = config.publish_timeout
        if timeout is not None:
            seconds = to_seconds(timeout, "timeout")
        if self._closed:  # also while close() waits for what is pending
            raise ClosedError("the producer is closed")
        options = None
        if not (key is None and trace_id is None and headers is None and partition is None):
            options = PublishOptions(key, trace_id, headers, partition).checked()
        if options is not None or defer is not None and not self._partitioned.is_stock:
            self._partitioned.check_async(defer is not None, options)
        delay_ms = None
        if defer is not None:
            delay_ms = self._delay_ms(defer)
            commands.check_delay(delay_ms, self._max_delay_ms)
        if type(topic) is not str or topic not in self._topics:
            self._check_topic(topic)
        future = PublishFuture(
            topic, commands.check_body(body, config.nsqd_max_msg_size), delay_ms,
            time.monotonic() + seconds, seconds,
        )
        if options is not None:
            future.options, future.alone = options, True
        self._async.put(future)
        return future

    def flush(self, timeout: Duration | None = None) -> bool:
        """Wait until every asynchronous publish has its outcome; False on a timeout.

        Blocks: at most ``timeout`` seconds, default ``publish_timeout``.
        """
        check_process()
        return self._async.flush(self._deadline(timeout))

    def set_tracing(self, enabled: bool, topic: str | None = None) -> None:
        """Turn tracing on or off, for a topic or for all; for partitioned NSQ.

        While it is on, publishes without a ``trace_id`` get one, and the logger ``nsqclient.trace``
        logs where each message was stored.
        """
        self._tracing.set(enabled, topic)

    def ping(self, timeout: Duration | None = None) -> None:
        """Wait until at least one nsqd is connected.

        Raises:
            ConnectError: none was connected in time.
            NSQError: the reason why none can be used.
            ClosedError: the producer was closed.
        """
        check_process()
        self._publisher.ping(self._deadline(timeout))

    # -- synchronous publishes under way

    def _check_topic(self, topic: str) -> None:
        """Raise InvalidTopicError, or remember that the topic is valid."""
        check_topic(topic)
        if len(self._topics) < _MAX_TOPICS:
            self._topics.add(topic)

    def _deadline(self, timeout: Duration | None) -> Deadline:
        if timeout is None:
            return Deadline(self.config.publish_timeout)
        return Deadline(to_seconds(timeout, "timeout"))

    @staticmethod
    def _delay_ms(defer: Duration) -> int:
        try:
            return round(to_seconds(defer, "defer") * 1000)
        except (ConfigError, OverflowError) as exc:
            raise InvalidMessageError(str(exc)) from exc

    @property
    def _max_delay_ms(self) -> int:
        return round(self.config.nsqd_max_req_timeout * 1000)

    @property
    def _pending(self) -> int:
        return self._async.pending + len(self._running)

    def _publish(
        self, publish: Callable[..., T], arguments: tuple[Any, ...], messages: int, size: int
    ) -> T:
        """Run one synchronous publish and count it."""
        began = time.monotonic()
        ticket = object()
        try:
            # Before the look at _closed: close() waits for what got past it.
            self._running.add(ticket)
            if self._closed:
                raise ClosedError("the producer is closed")
            result = publish(*arguments)
            recent = self._statistics.recent
            recent.append((messages, size, time.monotonic() - began))
            if len(recent) >= MAX_RECENT:
                self._statistics.add_recent()
            return result
        except PublishError as exc:
            self._statistics.count_failure(exc, messages)
            raise
        finally:
            self._running.discard(ticket)
            if self._closed:
                with self._idle.lock:
                    self._idle.notify_all()

    # -- the end

    def close(self, timeout: Duration = 10.0) -> bool:
        """Wait for publishes in progress and pending messages, then close the connections.

        Messages without a response after ``timeout`` seconds fail with PublishUnknownError if they
        were sent, else with PublishNotSentError. Idempotent. Threads: any, and signal handlers. In
        a signal handler that interrupted a call of this producer it may take the whole timeout.

        Returns: whether all publishes have an outcome and all threads have ended.
        """
        check_process()
        deadline = Deadline(to_seconds(timeout, "timeout"))
        try:
            return run_in_thread(lambda: self._close(deadline), deadline, "nsq-closer") or False
        except RuntimeError:  # no thread can be started
            if not sys.is_finalizing():
                return self._close(deadline)
        # In a finalizer at the end of the interpreter no other thread runs any more.
        self._closed = True
        self._nodes.abandon()
        return not self._pending

    def _close(self, deadline: Deadline) -> bool:
        self._closed = True
        # A publish that an exception from a signal handler ends may do so without a notification.
        while not self._idle.wait_for(lambda: not self._running, deadline.at_most(_LOOK)):
            if deadline.expired() or sys.is_finalizing():
                break
        clean = not self._running
        clean = self._async.flush(deadline) and clean
        rest = Deadline((deadline.remaining() or 0.0) + 0.5)
        stuck = self._discovery.stop(rest) + self._partitioned.close(rest)
        self._queues.close()
        stuck += self._nodes.close(rest)
        if not self._async.close(rest):
            stuck.append("nsq-publisher")
        if stuck and not sys.is_finalizing():
            logger.warning("close: these threads did not end in time: %s", ", ".join(stuck))
        _live.discard(self)
        return clean and not stuck

    def __reduce__(self) -> NoReturn:
        """It has threads and sockets, so it cannot be pickled or copied."""
        raise TypeError("a Producer cannot be pickled or copied: make one in each process")

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _reset_after_fork(self) -> None:
        """For the library: start afresh in a forked child."""
        nodes, publisher, closed = self._nodes, self._async, self._closed
        self._begin()
        self._closed = closed
        nodes.abandon()
        publisher.abandon()

    def stats(self) -> ProducerStats:
        """Take a snapshot of the counters."""
        check_process()
        return self._statistics.snapshot(
            pending=self._pending,
            connected=[node.address for node in self._nodes.connected],
            known=self._nodes.addresses,
            connections=self._nodes.count_connections(),
        )

    def __repr__(self) -> str:
        return f"<Producer {', '.join(self._nodes.addresses)}>"


_live: weakref.WeakSet[Producer] = weakref.WeakSet()


@atexit.register
def _flush_at_exit() -> None:
    check_process()
    deadline = Deadline(_EXIT_TIMEOUT)
    for producer in list(_live):
        if producer._pending:
            producer.flush(deadline.remaining())
        if producer._async.pending:
            logger.error("no outcome at exit: %s to %s",
                         counted(producer._async.pending, "publish", "publishes"),
                         ", ".join(producer._async.topics()))
        if producer._running:
            logger.error("no outcome at exit: %s in other threads",
                         counted(len(producer._running), "publish call", "publish calls"))
        producer._async.report_unretrieved()
