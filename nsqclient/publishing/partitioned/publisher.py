"""``PartitionPublisher``: chooses the partition of a publish, and tries until it is stored.

The retry table is :mod:`nsqclient.partitions.reactions`. Source: "How we redesign the NSQ smart
client", "Client as producer" and "Production in ordered message scenario".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nsqclient.config import Config
from nsqclient.errors import (
    ClosedError,
    NSQError,
    PartitionError,
    PublishError,
    PublishNotSent,
    PublishRejected,
    PublishUnknown,
    ServerError,
)
from nsqclient.partitions.reactions import (
    LEADER_CODES,
    Reaction,
    on_publish_refused,
    pause_before,
)
from nsqclient.partitions.routes import TopicRoutes
from nsqclient.partitions.sharding import RoundRobin, Sharding, partition_of
from nsqclient.protocol.extended import Stored
from nsqclient.publishing.partitioned.pool import Pool, PooledConnection, Try
from nsqclient.publishing.partitioned.tables import Tables
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.monitor import Monitor

#: partition -> the command for it
Build = Callable[[int], bytes]


class Outcome(NamedTuple):
    """Where a publish was stored; ``stored`` where the server said more than OK."""

    partition: int
    nsqd: str
    stored: Stored | None


class _Run:
    """One publish under way."""

    def __init__(self) -> None:
        self.tries = 0
        self.maybe_stored = False
        self.is_leader_moving = False
        self.failed_on: set[int] = set()  # partitions, to be passed over
        self.reason: NSQError | None = None


class PartitionPublisher:
    """Publishes to partitions, in the calling thread. Threads: any."""

    def __init__(
        self, tables: Tables, pool: Pool, config: Config, sharding: Sharding,
        retry_unknown: bool, on_retry: Callable[[], None],
    ) -> None:
        self._tables = tables
        self._pool = pool
        self._config = config
        self._sharding = sharding
        self._retry_unknown = retry_unknown
        self._on_retry = on_retry
        self._turns = RoundRobin()
        self._closing = Monitor()
        self._is_closed = False  # by the lock of _closing

    def close(self) -> None:
        """End the pauses between tries: whoever waits has had its last."""
        with self._closing.lock:
            self._closing.notify_all()
            self._is_closed = True

    def publish(
        self, topic: str, key: object, build: Build, traced: bool, deadline: Deadline,
        has_header: bool = False,
    ) -> Outcome:
        """Publish until it is stored, it is clear that it cannot be, or the time is over.

        Args:
            key: decides on the partition; None: each in turn.
            traced: whether the server answers with where it was stored.
            has_header: the command carries a JSON header.

        Raises:
            PartitionError: the topic cannot be published to in this way.
            PublishRejected, PublishUnknown: as ``Producer.publish``.
        """
        run = _Run()
        while True:
            run.tries += 1
            routes = self._find_routes(topic, deadline, run)
            partition = self._choose(topic, key, routes, run, has_header)
            if partition is not None:
                nsqd = routes.partitions[partition]
                outcome = self._try(topic, partition, nsqd, build(partition), traced,
                                    deadline, run)
                if outcome is not None:
                    return outcome
            self._pause(topic, deadline, run)

    def _find_routes(self, topic: str, deadline: Deadline, run: _Run) -> TopicRoutes:
        try:
            return self._tables.routes(topic, deadline)
        except NSQError as exc:
            run.reason = exc
            return TopicRoutes()

    def _choose(
        self, topic: str, key: object, routes: TopicRoutes, run: _Run, has_header: bool
    ) -> int | None:
        """Return the partition for the next try; None when there is none now."""
        meta = routes.meta
        if meta is not None and meta.ordered and key is None:
            raise PartitionError(
                f"topic {topic} is ordered: give key=, which decides on the partition"
            )
        if has_header and meta is not None and meta.partition_num and not meta.extended:
            raise PartitionError(
                f"topic {topic} takes no headers: create it with extend=true"
            )
        if key is None:
            partition = self._turns.choose(routes.partitions, avoid=run.failed_on)
            if partition is None:
                run.reason = run.reason or PublishNotSent(f"no partition of {topic} has a leader")
                run.is_leader_moving = True
            return partition
        if not routes.partition_num:
            if routes.partitions:
                raise PartitionError(
                    f"no nsqlookupd says how many partitions {topic} has, so a key has no place:"
                    " ask one with a coordinator"
                )
            run.reason = run.reason or PublishNotSent(f"no nsqlookupd knows the topic {topic}")
            return None
        partition = partition_of(key, routes.partition_num, self._sharding)
        if partition in routes.partitions:
            return partition
        # On no account another one: the order of the key's messages would be lost.
        run.is_leader_moving = True
        run.reason = PublishNotSent(
            f"partition {partition} of {topic}, where key {key!r:.60} belongs, has no leader that"
            " can be written to"
        )
        return None

    def _try(
        self, topic: str, partition: int, nsqd: str, command: bytes, traced: bool,
        deadline: Deadline, run: _Run,
    ) -> Outcome | None:
        """Try once; None when another try may follow."""
        token = Try()
        run.is_leader_moving = False
        try:
            conn = self._pool.take(nsqd, deadline)
            conn.send(command, token, traced, deadline)
        except ClosedError as exc:
            if self._is_closed:
                raise
            run.reason = exc  # it ended just before
            return None
        except NSQError as exc:
            run.reason = exc
            run.failed_on.add(partition)
            run.is_leader_moving = True
            return None
        self._await(conn, token, deadline)
        error = token.error
        if error is None:
            self._tables.on_accepted(topic, partition, nsqd)
            return Outcome(partition, nsqd, token.stored)
        run.reason = error
        run.failed_on.add(partition)
        if isinstance(error, ServerError) and token.was_read:
            self._on_refused(topic, partition, nsqd, error, run)
        elif token.was_read:
            run.maybe_stored = True
            if not self._retry_unknown:
                raise PublishUnknown(f"{nsqd}: no verdict: {error}")
        return None

    def _await(self, conn: PooledConnection, token: Try, deadline: Deadline) -> None:
        """Wait for the verdict; where none comes the connection is closed.

        A late answer would be taken for that of the next publish.
        """
        timeout = deadline.at_most(self._config.partition_try_timeout)
        if not token.wait(timeout):
            conn.close(f"no answer to a publish within {timeout:.3g} s")
            token.wait(1.0)  # the end of the connection settles it

    def _on_refused(
        self, topic: str, partition: int, nsqd: str, error: ServerError, run: _Run
    ) -> None:
        reaction = on_publish_refused(error.code, error.text, run.tries)
        if reaction is Reaction.RAISE:
            text = f"{nsqd} refused the message: {error}"
            if run.maybe_stored:
                raise PublishUnknown(text) from error
            raise PublishRejected(text, error.code) from error
        if error.code in LEADER_CODES:
            run.is_leader_moving = True
            self._tables.on_refused(topic, partition, nsqd)

    def _pause(self, topic: str, deadline: Deadline, run: _Run) -> None:
        """Wait before the next try, with fresh routes; raise where there is none."""
        pause = pause_before(run.tries, run.is_leader_moving)
        left = deadline.remaining()
        is_over = left is not None and left <= pause
        if is_over or run.tries >= self._config.partition_tries or self._is_closed:
            raise self._give_up(topic, run)
        self._on_retry()
        if run.is_leader_moving or isinstance(run.reason, ServerError):
            self._tables.refresh_and_wait(topic, Deadline(pause))
        self._closing.wait_for(lambda: self._is_closed, pause)

    @staticmethod
    def _give_up(topic: str, run: _Run) -> PublishError:
        reason = run.reason
        times = "once" if run.tries == 1 else f"{run.tries} times"
        text = f"not stored in {topic}, tried {times}: {reason}"
        if run.maybe_stored:
            return PublishUnknown(text)
        if isinstance(reason, ServerError):
            return PublishRejected(text, reason.code, retryable=True)
        return PublishNotSent(text)
