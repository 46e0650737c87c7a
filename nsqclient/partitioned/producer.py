"""``PartitionedProducer``: publishes to partitions, in the calling thread, until it is stored.

The retry table is :mod:`nsqclient.partitioned.retry_policy`. Source: "How we redesign the NSQ smart
client", "Client as producer" and "Production in ordered message scenario".
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from nsqclient.config import Config
from nsqclient.errors import (
    InvalidMessageError,
    NSQError,
    PartitionError,
    PublishNotSentError,
    ServerError,
)
from nsqclient.hints import with_hint
from nsqclient.partitioned.lookup_table import TopicRoutes
from nsqclient.partitioned.retry_policy import LEADER_CODES, lookup_wait
from nsqclient.partitioned.sharding import Key, RoundRobin, Sharding, check_key, partition_of
from nsqclient.partitioned.tracing import PublishTrace, TraceSwitch, trace_line
from nsqclient.producer.outcome import PublishOutcome, StaleConnection
from nsqclient.partitioned.producer_attempts import PublishAttempts
from nsqclient.partitioned.producer_metadata import MetadataCache
from nsqclient.partitioned.producer_nodes import PartitionNodePool
from nsqclient.producer.publisher import SyncPublisher
from nsqclient.protocol import commands, extensions
from nsqclient.protocol.extensions import (
    Stored,
    StoredPosition,
    check_partition_argument,
    check_trace_id,
    make_header,
)
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.monitor import Monitor

trace_logger: logging.Logger = logging.getLogger("nsqclient.trace")

#: Seconds after which a partition that has not answered is not used while there are others.
UNANSWERED_AFTER = 0.1


def partition_name(topic: str, partition: int) -> str:
    """Return the words of a command that name a partition."""
    return f"{topic} {partition}"


class PublishOptions(NamedTuple):
    """The arguments of ``Producer.publish`` that need a partitioned NSQ."""

    key: Key | None = None
    trace_id: int | None = None
    headers: Mapping[str, Any] | None = None
    partition: int | None = None

    def __bool__(self) -> bool:
        """Return whether any is given."""
        return self != (None, None, None, None)

    def checked(self) -> PublishOptions:
        """Return them as they are used.

        Raises:
            InvalidMessageError: one of them cannot be right.
        """
        options = self
        if options.key is not None:
            key = check_key(options.key)
            if options.partition is not None:
                raise InvalidMessageError("give key= or partition=, not both")
            if key is not options.key:
                options = options._replace(key=key)
        elif options.partition is not None:
            check_partition_argument(options.partition)
        if options.trace_id is not None:
            check_trace_id(options.trace_id)
        if options.headers is not None:
            make_header(options.headers, options.trace_id)
        return options


class PreparedMessage(NamedTuple):
    """A checked message, and the parts of its command."""

    body: bytes
    trace_id: int | None
    header: bytes
    is_logged: bool  #: in the trace log

    @property
    def is_plain(self) -> bool:
        """Whether it may share a command with others."""
        return self.trace_id is None and not self.header

    def command(self, topic: str, partition: int, limit: int) -> bytes:
        """Return the command that brings it alone to a partition."""
        if self.header:
            return extensions.pub_ext(topic, partition, self.header, self.body, limit)
        if self.trace_id is not None:
            return extensions.pub_trace(topic, partition, self.trace_id, self.body, limit)
        return extensions.pub(topic, partition, self.body, limit)


class PartitionedProducer:
    """Publishes of one producer to a partitioned cluster.

    Args:
        nodes: the connections to the nsqds. publisher: sends synchronous publishes on them.
        on_retry: called before an attempt is repeated.

    Life: usable at once; ``close()``. Threads: every method, any thread.
    """

    def __init__(
        self, lookupds: list[str], nodes: PartitionNodePool, config: Config, sharding: Sharding,
        tracing: TraceSwitch, retry_unknown: bool, on_retry: Callable[[], None],
        publisher: SyncPublisher,
    ) -> None:
        self._nodes = nodes
        self._publisher = publisher
        self._config = config
        self._sharding = sharding
        self._tracing = tracing
        self._retry_unknown = retry_unknown
        self._on_retry = on_retry
        self.metadata: MetadataCache = MetadataCache(lookupds, config)
        self._rng = random.SystemRandom()
        self._round_robin = RoundRobin()
        self._closing = Monitor()
        self._is_closed = False  # by the lock of _closing

    def publish(
        self, topic: str, body: bytes, options: PublishOptions, deadline: Deadline
    ) -> Stored | None:
        """Store one message; return where, when it was traced. Raises as ``Producer.publish``."""
        message = self.prepare(topic, body, options)
        attempts = PublishAttempts(topic, options.key, options.partition, bool(message.header))

        def build(partition: int) -> bytes:
            return self.command(topic, partition, message)

        route, stored = self._publish(attempts, build, deadline)
        if stored is None:
            return None
        if message.is_logged:
            log_stored(topic, route, stored)
        return Stored.by(stored, route[1])

    def prepare(self, topic: str, body: bytes, options: PublishOptions) -> PreparedMessage:
        """Return what the command of a message is made of.

        Raises:
            InvalidTopicError, InvalidMessageError: it cannot be stored.
        """
        check_topic(topic)
        data = commands.check_body(body, self._config.nsqd_max_msg_size)
        trace_id = options.trace_id
        is_logged = self._tracing.is_on(topic)
        if trace_id is None and is_logged:
            trace_id = self._rng.randrange(1, 2**63)
        header = b""
        if options.headers is not None:
            header = make_header(options.headers, trace_id)
        return PreparedMessage(data, trace_id, header, is_logged)

    def publish_chunk(
        self, topic: str, bodies: list[bytes], options: PublishOptions, deadline: Deadline
    ) -> None:
        """Store the checked bodies of one MPUB in one partition."""
        limits = (self._config.nsqd_max_msg_size, self._config.nsqd_max_body_size)

        def build(partition: int) -> bytes:
            return extensions.mpub(topic, partition, bodies, *limits)

        attempts = PublishAttempts(topic, options.key, options.partition)
        self._publish(attempts, build, deadline)

    @staticmethod
    def refuse_deferral() -> None:
        """Raise, because a partitioned nsqd has no DPUB.

        Raises:
            PartitionError: always.
        """
        raise PartitionError("defer= needs a stock NSQ: a partitioned one has no DPUB")

    def close(self, deadline: Deadline) -> list[str]:
        """Make no more attempts; return the names of threads that did not end."""
        with self._closing.lock:
            self._closing.notify_all()
            self._is_closed = True
        return self.metadata.stop(deadline)

    # -- attempts

    def _publish(
        self, attempts: PublishAttempts, build: Callable[[int], bytes], deadline: Deadline
    ) -> tuple[tuple[int, str], StoredPosition | None]:
        """Repeat attempts until one is stored; return its partition, its nsqd and its position.

        Args:
            build: partition -> the command.

        Raises:
            PartitionError: the topic cannot be published to in this way.
            PublishRejectedError, PublishUnknownError, ClosedError: as ``Producer.publish``.
        """
        while True:
            attempts.count += 1
            route = self._route(attempts, deadline)
            if route is not None:
                partition, nsqd = route
                outcome, error, stored = self._send(
                    attempts.topic, partition, nsqd, build(partition), deadline)
                if outcome is PublishOutcome.STORED:
                    self.metadata.on_accepted(attempts.topic, partition, nsqd)
                    return route, stored
                attempts.on_outcome(outcome, error, nsqd, partition, self._retry_unknown)
                self.note_refusal(attempts, error, partition, nsqd)
            self._pause(attempts, deadline)

    def _send(
        self, topic: str, partition: int, nsqd: str, command: bytes, deadline: Deadline
    ) -> tuple[PublishOutcome, NSQError | None, StoredPosition | None]:
        """Send one attempt to the leader of a partition, and wait for its outcome."""
        timeout = deadline.at_most(self._config.partition_try_timeout)
        name = partition_name(topic, partition)
        with self._nodes.partition_under_way(nsqd, name) as node:
            outcome, error, stored = self._publisher.attempt(
                node, command, time.monotonic() + timeout, math.inf, traced=True)
        is_answered = outcome is PublishOutcome.STORED or isinstance(error, ServerError)
        if not isinstance(error, StaleConnection):
            self._nodes.note_partition(nsqd, name, is_answered, timeout)
        elif not node.pool.connections():
            error = node.last_error or error
        return outcome, error, stored

    def note_refusal(
        self, attempts: PublishAttempts, error: NSQError | None, partition: int | None, nsqd: str
    ) -> None:
        """Use another nsqd where one does not lead a partition and an nsqlookupd names another."""
        if isinstance(error, ServerError) and error.code in LEADER_CODES and partition is not None:
            self.metadata.on_refused(attempts.topic, partition, nsqd)

    def _route(self, attempts: PublishAttempts, deadline: Deadline) -> tuple[int, str] | None:
        """Return the partition of the next attempt and its leader; None where there is none."""
        try:
            routes = self.metadata.routes(attempts.topic, deadline)
        except NSQError as exc:
            attempts.reason = exc
            routes = TopicRoutes()
        busy: list[int] = []
        if attempts.is_free:  # a partition that another publish uses may not answer
            names = self._nodes.busy_partitions()
            busy = [one for one in routes.partitions
                    if partition_name(attempts.topic, one) in names]
        if len(busy) == len(routes.partitions):
            busy = []
        partition = self.choose(attempts, routes, busy)
        return None if partition is None else (partition, routes.partitions[partition])

    def choose(
        self, attempts: PublishAttempts, routes: TopicRoutes, busy: Collection[int] = ()
    ) -> int | None:
        """Return the partition of the next attempt; as ``PublishAttempts.choose``."""
        avoid = list(busy)
        if attempts.is_free:
            names = self._nodes.unanswered_names(UNANSWERED_AFTER)
            avoid += [one for one in routes.partitions if names
                      and partition_name(attempts.topic, one) in names]
        return attempts.choose(
            routes, lambda: self._lookup_problem(attempts.topic), self._sharding,
            self._round_robin, avoid,
            not routes.partition_num and self.metadata.may_learn_more(attempts.topic))

    def partition_of(self, key: object, partition_num: int) -> int:
        """Return the partition of a key. Raises InvalidMessageError, or what the sharding does."""
        return partition_of(key, partition_num, self._sharding)

    def is_traced(self, topic: str) -> bool:
        """Return whether messages of the topic get a trace id."""
        return self._tracing.is_on(topic)

    def command(self, topic: str, partition: int, message: PreparedMessage) -> bytes:
        """Return the command that brings a message alone."""
        return message.command(topic, partition, self._config.nsqd_max_msg_size)

    def mpub_ext(self, topic: str, partition: int, messages: list[tuple[bytes, bytes]]) -> bytes:
        """Return the command that brings messages with headers, or with empty ones."""
        config = self._config
        return extensions.mpub_ext(
            topic, partition, messages, config.nsqd_max_msg_size, config.nsqd_max_body_size)

    def _lookup_problem(self, topic: str) -> NSQError | None:
        """Return why the nsqlookupds name no leader, with what to do about it."""
        problem = self.metadata.problem(topic)
        return None if problem is None else PublishNotSentError(with_hint(problem))

    def _pause(self, attempts: PublishAttempts, deadline: Deadline) -> None:
        """Wait before the next attempt, then for fresh routes; raise when it was the last one."""
        delay = self.pause_before_next(attempts, deadline.remaining())
        if delay is None:
            raise attempts.final_error()
        self._on_retry()
        is_closed = self._closing.wait_for(lambda: self._is_closed, delay)
        # After the pause: the leader may have changed meanwhile.
        if not is_closed and attempts.needs_lookup:
            self.metadata.refresh_and_wait(
                attempts.topic, Deadline(lookup_wait(deadline.remaining())))

    def pause_before_next(self, attempts: PublishAttempts, left: float | None) -> float | None:
        """Return the seconds to wait before the next attempt; None when there is none."""
        if self._is_closed:
            return None
        return attempts.pause(left, self._config.partition_tries, self._rng)


def log_stored(topic: str, route: tuple[int, str], stored: StoredPosition) -> None:
    """Write a line of the trace log."""
    partition, nsqd = route
    trace = PublishTrace(topic, partition, nsqd, stored.internal_id, stored.trace_id,
                         stored.offset, stored.size)
    trace_logger.info("%s", trace_line("published", trace), extra={"nsq": trace._asdict()})
