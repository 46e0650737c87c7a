"""``PartitionedFront``: what Producer calls when its cluster is a partitioned one.

Arguments are checked and made into commands here, and traces are logged.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nsqclient.config import Config
from nsqclient.errors import PartitionError
from nsqclient.partitions.sharding import Sharding
from nsqclient.partitions.tracing import PublishTrace, TraceSwitch, trace_line
from nsqclient.protocol import commands, partition_commands
from nsqclient.protocol.extended import Stored, check_trace_id, make_header
from nsqclient.protocol.names import check_topic
from nsqclient.publishing.partitioned.pool import Pool
from nsqclient.publishing.partitioned.publisher import PartitionPublisher
from nsqclient.publishing.partitioned.tables import Tables
from nsqclient.runtime.deadline import Deadline

trace_logger = logging.getLogger("nsqclient.trace")


class Extras(NamedTuple):
    """What only a partitioned NSQ takes; see ``Producer.publish``."""

    key: object = None
    trace_id: int | None = None
    headers: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        """Tell whether anything was asked for."""
        return self != (None, None, None)


def not_here(extras: Extras, has_lookupds: bool) -> PartitionError:
    """Build the error for extras where there are no partitions."""
    asked = ", ".join(f"{name}=" for name in extras._fields if getattr(extras, name) is not None)
    if not has_lookupds:
        return PartitionError(
            f"{asked} needs lookupd_http_addresses: nsqlookupds say who leads a partition"
        )
    return PartitionError(f"{asked} needs a partitioned NSQ, and this cluster is a stock one")


class PartitionedFront:
    """Publishes of one producer to a partitioned cluster.

    Life: usable at once; ``close()``. Threads: every method, any thread.
    """

    def __init__(
        self, lookupds: list[str], config: Config, sharding: Sharding, tracing: TraceSwitch,
        retry_unknown: bool, on_retry: Callable[[], None],
    ) -> None:
        self._config = config
        self._tracing = tracing
        self._rng = random.SystemRandom()
        self._tables = Tables(lookupds, config)
        self._pool = Pool(config)
        self._publisher = PartitionPublisher(
            self._tables, self._pool, config, sharding, retry_unknown, on_retry
        )

    def publish(
        self, topic: str, body: bytes, extras: Extras, deadline: Deadline
    ) -> Stored | None:
        """Store one message; return where, when it was traced. Raises as ``Producer.publish``."""
        check_topic(topic)
        limit = self._config.nsqd_max_msg_size
        data = commands.check_body(body, limit)
        trace_id = extras.trace_id
        if trace_id is not None:
            check_trace_id(trace_id)
        is_logged = self._tracing.is_on(topic)
        if trace_id is None and is_logged:
            trace_id = self._rng.randrange(1, 2**63)
        header = b""
        if extras.headers is not None:
            header = make_header(extras.headers, trace_id)

        def build(partition: int) -> bytes:
            if header:
                return partition_commands.pub_ext(topic, partition, header, data, limit)
            if trace_id is not None:
                return partition_commands.pub_trace(topic, partition, trace_id, data, limit)
            return partition_commands.pub(topic, partition, data, limit)

        outcome = self._publisher.publish(
            topic, extras.key, build, trace_id is not None, deadline, bool(header)
        )
        stored = outcome.stored
        if stored is not None and is_logged:
            trace = PublishTrace(topic, outcome.partition, outcome.nsqd, *stored)
            trace_logger.info(
                "%s", trace_line("published", trace), extra={"nsq": trace._asdict()}
            )
        return stored

    def publish_part(
        self, topic: str, bodies: list[bytes], key: object, deadline: Deadline
    ) -> None:
        """Store one MPUB's worth of checked bodies in one partition."""
        limits = (self._config.nsqd_max_msg_size, self._config.nsqd_max_body_size)

        def build(partition: int) -> bytes:
            return partition_commands.mpub(topic, partition, bodies, *limits)

        self._publisher.publish(topic, key, build, False, deadline)

    @staticmethod
    def refuse_deferral() -> None:
        """A partitioned nsqd has no DPUB.

        Raises:
            PartitionError: always.
        """
        raise PartitionError("defer= needs a stock NSQ: a partitioned one has no DPUB")

    @property
    def addresses(self) -> list[str]:
        """The nsqds that are connected."""
        return self._pool.addresses

    def close(self, deadline: Deadline) -> list[str]:
        """End it all; return the names of threads that stay."""
        self._publisher.close()
        return self._tables.stop(deadline) + self._pool.close(deadline)

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back."""
        self._pool.abandon()
