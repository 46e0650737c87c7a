"""``PartitionAttempts``: the failed attempts of a publish to a partition, and the next one.

Synchronous and asynchronous publishes share these decisions. No thread, socket or log. The table of
errors is :mod:`nsqclient.protocol.partitioned.retry_policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from nsqclient.errors import (
    ClosedError,
    InvalidMessageError,
    NSQError,
    PartitionError,
    PublishError,
    PublishNotSentError,
    PublishUnknownError,
    ServerError,
)
from nsqclient.protocol.partitioned.lookup_table import TopicMeta, TopicRoutes
from nsqclient.protocol.partitioned.retry_policy import LEADER_CODES, is_final
from nsqclient.protocol.partitioned.sharding import RoundRobin, Sharding, partition_of
from nsqclient.producer.outcome import (
    Attempts, StaleConnection, final_error, is_one_at_fault, may_be_stored, rejection,
)


class PartitionAttempts(Attempts):
    """The attempts of one publish, or of one batch. Not thread-safe.

    Args:
        retry_unknown: whether it is repeated if the outcome is unknown.
        key: decides on the partition.
        partition: the chosen partition; None with a key, or if any partition will do.
        has_header: the topic must take headers.
        messages: how many the command brings.
        size: bytes of the largest message on an extended topic; see ``extended_size``.
        max_size: nsqd's limit.
    """

    def __init__(
        self, topic: str, retry_unknown: bool, key: object = None, partition: int | None = None,
        has_header: bool = False, messages: int = 1, size: int = 0, max_size: int = 0,
    ) -> None:
        super().__init__(0.0, 0, retry_unknown, messages)
        self._size = size
        self._max_size = max_size
        self.topic = topic
        self.key = key
        self.partition = partition
        self.has_header = has_header
        self.count: int = 0  # attempts begun
        self.is_leader_moving: bool = False
        self.failed: set[int] = set()  # partitions that failed

    @property
    def is_free(self) -> bool:
        """Whether any partition will do."""
        return self.key is None and self.partition is None

    @property
    def needs_lookup(self) -> bool:
        """Whether the leader may be another one by now."""
        return self.is_leader_moving or isinstance(self.reason, ServerError)

    def check(self, meta: TopicMeta | None) -> None:
        """Raise PartitionError or InvalidMessageError if the topic does not take the publish.

        PublishUnknownError if an attempt may be stored; so does ``choose``.
        """
        if meta is None:
            return
        if meta.ordered and self.is_free:
            raise self.last(PartitionError(
                f"topic {self.topic} is ordered: give key=, which decides on the partition, or"
                " partition="
            ))
        if self.has_header and meta.partition_num and not meta.extended:
            raise self.last(PartitionError(
                f"topic {self.topic} takes no headers: create it with extend=true"))
        if meta.extended and self._size > self._max_size:
            self.is_one_at_fault = self.messages > 1
            raise self.last(InvalidMessageError(
                f"message of {self._size} bytes, with its headers and their mark, is over nsqd's"
                f" limit of {self._max_size} on topic {self.topic}, which takes headers (nsqd"
                " --max-msg-size, our option nsqd_max_msg_size)"))

    def choose(
        self, routes: TopicRoutes, find_problem: Callable[[], NSQError | None],
        sharding: Sharding, round_robin: RoundRobin, avoid: Collection[int] = (),
        may_learn_more: bool = False,
    ) -> int | None:
        """Return the partition of the next attempt; None when none can be written to now.

        Args:
            find_problem: returns the problem that nsqlookupds report for the topic.
            avoid: partitions that are used only if no other is left.
            may_learn_more: an nsqlookupd has not answered yet.

        Raises:
            PartitionError, InvalidMessageError: no attempt can succeed.
        """
        self.check(routes.meta)
        if self.is_free:
            partition = round_robin.choose(routes.partitions, avoid=self.failed.union(avoid))
            if partition is None:
                self._lack(find_problem(), f"no partition of {self.topic} has a leader")
            return partition
        if not routes.partition_num:
            text = f"no nsqlookupd lists the topic {self.topic}"
            if routes.partitions:
                text = (f"no nsqlookupd says how many partitions {self.topic} has, which a key"
                        " needs: ask one with a coordinator")
                if not may_learn_more:
                    raise self.last(PartitionError(text))
            self._lack(find_problem(), text)
            return None
        partition = self.partition
        if partition is None:
            partition = partition_of(self.key, routes.partition_num, sharding)
        elif partition >= routes.partition_num:
            raise self.last(PartitionError(
                f"partition={partition}: topic {self.topic} has partitions 0 to"
                f" {routes.partition_num - 1}"
            ))
        if partition in routes.partitions:
            return partition
        # Never another one: the order of the key's messages would be lost.
        belongs = "" if self.key is None else f", where key {self.key!r:.60} belongs,"
        self.is_leader_moving = True
        problem = find_problem()
        self.reason = PublishNotSentError(
            f"partition {partition} of {self.topic}{belongs} has no leader that can be written"
            f" to{'' if problem is None else f': {problem}'}"
        )
        return None

    def _lack(self, problem: NSQError | None, text: str) -> None:
        """Note that no partition can be chosen now."""
        self.reason = problem or self.reason or PublishNotSentError(text)
        self.is_leader_moving = True

    def on_partition_failure(
        self, error: NSQError, nsqd: str, partition: int, is_sent: bool = True
    ) -> None:
        """Note an attempt that was not stored; raise where another one cannot help.

        Raises:
            PublishRejectedError, PublishUnknownError, ClosedError: the final outcome.
        """
        if isinstance(error, ClosedError):
            raise self.last(error)
        self.reason: NSQError | None = error
        self.is_leader_moving = False
        if isinstance(error, StaleConnection):
            return
        self.is_leader_moving = not is_sent
        self.failed.add(partition)
        if isinstance(error, ServerError):
            if is_final(error.code, error.text, self.count):
                self.is_one_at_fault = is_one_at_fault(error, self.messages)
                raise self.last(rejection(nsqd, error)) from error
            self.is_leader_moving = error.code in LEADER_CODES
        if is_sent and may_be_stored(error):
            self.maybe_stored = True
            if not self.retry_unknown:
                raise PublishUnknownError(f"{nsqd}: no outcome: {error}")

    def final_error(self) -> PublishError:
        """Return the error of a publish after its last attempt."""
        times = "once" if self.count == 1 else f"{self.count} times"
        known = "outcome unknown" if self.maybe_stored else "not stored"
        text = f"{known} in {self.topic}, tried {times}: {self.reason}"
        return final_error(text, self.reason, self.maybe_stored)
