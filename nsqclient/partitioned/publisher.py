"""``PartitionPublisher``: publishes to partitions in the calling thread.

It also finds out whether the cluster is partitioned, from the version of the first connected nsqd.
Source: "How we redesign the NSQ smart client", "Client as producer" and "Production in ordered
message scenario".
"""

from __future__ import annotations

import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nsqclient.config import Config
from nsqclient.errors import (
    ClosedError, NSQError, PartitionError, PublishNotSentError, ServerError,
)
from nsqclient.log_records import log_fields
from nsqclient.protocol.partitioned.lookup_table import TopicRoutes
from nsqclient.partitioned.attempts import (
    PartitionAttempts, PartitionLoad, retry_delay,
)
from nsqclient.partitioned.metadata import MetadataCache
from nsqclient.partitioned.options import (
    NO_OPTIONS, PreparedMessage, PublishOptions, TraceSwitch, log_trace,
)
from nsqclient.protocol.partitioned.extensions import (
    LEADER_CODES, Stored, StoredPosition, extended_size, make_header, partition_name, read_stored,
)
from nsqclient.protocol.partitioned.sharding import RoundRobin, Sharding
from nsqclient.producer.nodes import NodePool, NsqdNode
from nsqclient.producer.outcome import INTERVAL, INTERVAL_PART, StaleConnection
from nsqclient.producer.publisher import Publisher
from nsqclient.protocol import commands
from nsqclient.protocol.events import ServerSettings, is_partitioned_version
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Monitor

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds without an answer after which other partitions are preferred to this one.
UNANSWERED_AFTER = 0.1
#: Seconds that an attempt waits for newer leaders if no nsqlookupd answers.
LOOKUP_WAIT = 0.5


class TooManyUnderWay(NSQError):
    """The publish was not sent, because too many publishes to this nsqd are under way."""


class Placed(NamedTuple):
    """The nsqd and position that stored a publish."""

    partition: int
    nsqd: str
    position: StoredPosition | None  #: if it was traced


class PartitionPublisher:
    """Publishes of one producer to a partitioned cluster. Threads: any."""

    def __init__(
        self, lookupds: list[str], nodes: NodePool, publisher: Publisher, config: Config,
        sharding: Sharding, tracing: TraceSwitch,
    ) -> None:
        #: True once the cluster is known to be a stock one. Every publish reads it without a lock.
        self.is_stock: bool = not lookupds
        self.is_partitioned: bool = False  # True once it is known to be partitioned
        self._lookupds = lookupds
        self._nodes = nodes
        self._publisher = publisher
        self.config: Config = config
        self.sharding: Sharding = sharding
        self.tracing: TraceSwitch = tracing
        self.metadata: MetadataCache = MetadataCache(lookupds, config)
        self.load: PartitionLoad = PartitionLoad()
        self._rng = random.SystemRandom()
        self._turns: defaultdict[str, RoundRobin] = defaultdict(RoundRobin)  # key: topic
        self._warned_of: set[str] = set()  # addresses; changed by atomic calls
        self._closing = Monitor()
        self._is_closed = False  # guarded by _closing.lock

    # -- what kind of cluster it is

    def detect(self, deadline: Deadline, options: PublishOptions = NO_OPTIONS) -> bool:
        """Return True if the cluster is partitioned, False if it is a stock one or unknown.

        Blocks: in the first call, until an nsqd is connected or the deadline.

        Raises:
            PartitionError: ``options`` need partitions, and the cluster is a stock one.
            PublishNotSentError: ``options`` need partitions, and no nsqd was connected in time.
        """
        if not (self.is_partitioned or self.is_stock):
            try:
                self._note(self._nodes.acquire(deadline))
            except ClosedError:
                raise
            except NSQError as exc:
                if options:
                    raise PublishNotSentError(f"no nsqd was connected in time: {exc}") from exc
                return False  # Publisher.publish raises the reason
        if not self.is_partitioned and options:
            raise self._stock_error(options)
        if self.is_partitioned and self._is_closed:
            raise ClosedError("the producer is closed")
        return self.is_partitioned

    def _note(self, node: NsqdNode) -> None:
        if is_partitioned_version(node.version):
            self.is_partitioned = True
        else:
            self.is_stock = True

    def check_nsqd(self, address: str, settings: ServerSettings) -> None:
        """Warn of a partitioned nsqd if no nsqlookupds were given."""
        if not (settings.is_stock or self._lookupds or address in self._warned_of):
            self._warned_of.add(address)
            logger.warning(
                "%s is a partitioned nsqd: without nsqlookupd it stores messages in any partition"
                " that it leads, and rejects them if it leads none; pass lookupd_http_addresses"
                " instead of nsqd_tcp_addresses", address, extra=log_fields(nsqd=address))

    def check_async(self, is_deferred: bool, options: PublishOptions | None) -> None:
        """Raise PartitionError if the cluster is known not to support the arguments."""
        if not (self.is_partitioned or self.is_stock):
            for node in self._nodes.connected:
                self._note(node)
        if options is not None and self.is_stock and not self.is_partitioned:
            raise self._stock_error(options)
        if is_deferred and self.is_partitioned:
            self.refuse_deferral()

    def _stock_error(self, options: PublishOptions) -> PartitionError:
        given = [name for name in options._fields if getattr(options, name) is not None]
        asked = ", ".join(f"{name}=" for name in given)
        if not self._lookupds:
            return PartitionError(
                f"{asked} needs lookupd_http_addresses: nsqlookupds name the leaders of partitions"
            )
        return PartitionError(f"{asked} needs a partitioned NSQ, and this cluster is a stock one")

    # -- publishes

    def publish(
        self, topic: str, body: bytes, defer: object, options: PublishOptions, deadline: Deadline
    ) -> Stored | None:
        if defer is not None:
            self.refuse_deferral()
        message = self.prepare(topic, body, options)
        attempts = self.attempts(
            topic, options.key, options.partition, bool(message.header),
            size=extended_size(len(message.body), message.header))
        placed = self._publish(attempts, partial(message.command, topic), deadline)
        return self.stored(topic, message, placed)

    def stored(self, topic: str, message: PreparedMessage, placed: Placed) -> Stored | None:
        position = placed.position
        if position is None:
            return None
        if message.is_logged:
            log_trace(
                "published", topic=topic, partition=placed.partition, nsqd=placed.nsqd,
                **position._asdict())
        return Stored.by(position, placed.nsqd)

    def attempts(
        self, topic: str, key: object = None, partition: int | None = None,
        has_header: bool = False, messages: int = 1, size: int = 0,
    ) -> PartitionAttempts:
        return PartitionAttempts(
            topic, self._publisher.retry_unknown, key, partition, has_header, messages, size,
            self.config.nsqd_max_msg_size)

    def prepare(self, topic: str, body: bytes, options: PublishOptions) -> PreparedMessage:
        check_topic(topic)
        data = commands.check_body(body, self.config.nsqd_max_msg_size)
        trace_id = options.trace_id
        is_logged = self.tracing.is_on(topic)
        if trace_id is None and is_logged:
            trace_id = self._rng.randrange(1, 2**63)
        header = b"" if options.headers is None else make_header(options.headers, trace_id)
        return PreparedMessage(data, trace_id, header, is_logged)

    def publish_chunk(
        self, topic: str, bodies: list[bytes], options: PublishOptions, deadline: Deadline
    ) -> None:
        def build(partition: int) -> bytes:
            return commands.mpub(partition_name(topic, partition), bodies)

        attempts = self.attempts(
            topic, options.key, options.partition, messages=len(bodies),
            size=extended_size(max(map(len, bodies))))
        self._publish(attempts, build, deadline)

    @staticmethod
    def refuse_deferral() -> None:
        raise PartitionError("defer= needs a stock NSQ: a partitioned one has no DPUB")

    def close(self, deadline: Deadline) -> list[str]:
        """End all attempts; return the names of stuck threads."""
        with self._closing.lock:
            self._closing.notify_all()
            self._is_closed = True
        return self.metadata.stop(deadline)

    def _publish(
        self, attempts: PartitionAttempts, build: Callable[[int], bytes], deadline: Deadline
    ) -> Placed:
        while (placed := self.attempt(attempts, build, deadline)) is None:
            delay = self.pause_before_next(attempts, deadline.remaining())
            if delay is None:
                raise attempts.final_error()
            self.rest(delay)
        return placed

    def attempt(
        self, attempts: PartitionAttempts, build: Callable[[int], bytes], deadline: Deadline,
        is_async: bool = False,
    ) -> Placed | None:
        """Make one attempt, with new routes if the last attempt failed.

        Args:
            build: partition -> the command.

        Returns: where the publish was stored; None if it was not, and another attempt may help.

        Blocks: until the outcome or the deadline. Raises as ``Producer.publish``.

        Raises:
            TooManyUnderWay: too many asynchronous publishes are under way.
        """
        self.look_up_again(attempts, deadline)
        routes = self.routes(attempts, deadline)
        partition = self.choose(attempts, routes)
        if partition is None:
            attempts.count += 1
            return None
        nsqd = routes.partitions[partition]
        name = partition_name(attempts.topic, partition)
        if is_async and not self.load.may_begin(nsqd, name):
            raise TooManyUnderWay(nsqd)
        attempts.count += 1
        node = self._nodes.node_at(nsqd)
        error, position = self._send(
            attempts, partition, node, build(partition), deadline, is_async)
        if error is None:
            self.metadata.on_accepted(attempts.topic, partition, nsqd)
            return Placed(partition, nsqd, position)
        is_sent = not isinstance(error, StaleConnection)
        if not is_sent and not node.connections():
            error = node.last_error or error
        attempts.on_partition_failure(error, nsqd, partition, is_sent)
        if isinstance(error, ServerError) and error.code in LEADER_CODES:
            # Use another nsqd if an nsqlookupd lists another leader.
            self.metadata.on_refused(attempts.topic, partition, nsqd)
        return None

    def _send(
        self, attempts: PartitionAttempts, partition: int, node: NsqdNode, command: bytes,
        deadline: Deadline, is_async: bool,
    ) -> tuple[NSQError | None, StoredPosition | None]:
        timeout = deadline.at_most(self.config.partition_try_timeout)
        name = partition_name(attempts.topic, partition)
        with self.load.attempt(node.address, name, is_async):
            error, position = self._publisher.attempt(
                node, command, time.monotonic() + timeout,
                min(INTERVAL, timeout * INTERVAL_PART), read_answer=read_stored,
                # After an error to MPUB_EXT, nsqd reads the rest of the body as commands.
                closes_after_error=attempts.has_header, only_here=True)
        if not isinstance(error, StaleConnection):
            is_answered = error is None or isinstance(error, ServerError)
            self.load.note(name, is_answered, timeout)
        return error, position

    def routes(self, attempts: PartitionAttempts, deadline: Deadline) -> TopicRoutes:
        try:
            return self.metadata.routes(attempts.topic, deadline)
        except NSQError as exc:
            attempts.reason = exc
            return TopicRoutes()

    def look_up_again(self, attempts: PartitionAttempts, deadline: Deadline) -> None:
        if attempts.count and attempts.needs_lookup and not self._is_closed:
            self.metadata.refresh(
                attempts.topic, Deadline(deadline.at_most(2 * LOOKUP_WAIT) / 2))

    def choose(self, attempts: PartitionAttempts, routes: TopicRoutes) -> int | None:
        avoid: list[int] = []
        if attempts.is_free:
            # Avoid partitions with a publish under way; if all have one, avoid the late ones.
            for seconds in (0.0, UNANSWERED_AFTER):
                names = self.load.unanswered(seconds)
                avoid = [one for one in routes.partitions
                         if names and partition_name(attempts.topic, one) in names]
                if len(avoid) < len(routes.partitions):
                    break
        return attempts.choose(
            routes, lambda: self.metadata.problem(attempts.topic), self.sharding,
            self._turns[attempts.topic], avoid,
            not routes.partition_num and self.metadata.may_learn_more(attempts.topic))

    def pause_before_next(self, attempts: PartitionAttempts, left: float | None) -> float | None:
        if self._is_closed:
            return None
        delay = retry_delay(attempts.count, attempts.is_leader_moving, left, self._rng)
        if delay is not None:
            self._publisher.statistics.count_retried(attempts.messages)
        return delay

    def rest(self, delay: float) -> None:
        """Wait before the next attempt, or until ``close()``."""
        self._closing.wait_for(lambda: self._is_closed, delay)
