"""``PartitionAttempts``: the attempts of one publish. ``PartitionLoad``: all publishes under way.

The decisions follow the article's table "publish retry", except for codes that the servers use
differently: see ``docs/topics/partitions.rst``.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from nsqclient.errors import (
    ClosedError, InvalidMessageError, NSQError, PartitionError, PublishError, PublishNotSentError,
    PublishUnknownError, ServerError,
)
from nsqclient.producer.outcome import (
    Attempts, StaleConnection, final_error, is_one_at_fault, may_be_stored, rejection,
)
from nsqclient.protocol.partitioned.extensions import LEADER_CODES
from nsqclient.protocol.partitioned.lookup_table import TopicMeta, TopicRoutes
from nsqclient.protocol.partitioned.sharding import RoundRobin, Sharding, partition_of

#: Errors after which a retry is pointless.
_RAISE = frozenset({
    "E_BAD_MESSAGE", "E_BAD_BODY", "E_BAD_TOPIC", "E_EXT_NOT_SUPPORT", "E_BAD_EXT",
    "E_INVALID_JSON_HEADER", "INVALID_TRACE_ID", "E_AUTH_FIRST", "E_AUTH_FAILED", "E_AUTH_ERROR",
    "E_AUTH_DISABLED", "E_UNAUTHORIZED",
})
#: Errors of the caller, or of stale metadata: retried once, with fresh metadata.
_RETRY_ONCE = frozenset({"E_INVALID", "E_BAD_PARTITION"})
#: Seconds before the next attempt, by the number of attempts; the last one repeats.
_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8)
#: While a leader moves: a planned move takes up to 0.7 s, an election half a minute.
_LEADER_DELAYS = (0.05, 0.1, 0.2, 0.2, 0.2, 0.2, 0.5, 1.0, 2.0)
#: Minimum time in seconds for an attempt before the deadline.
_LAST_ATTEMPT = 0.02
#: Maximum number of concurrent asynchronous publishes to one nsqd.
MAX_AT_ONCE = 32
#: How many of them may go to suspect partitions, which have left a publish unanswered.
_MAX_SUSPECT = 16
#: Seconds for which a partition stays suspect after it left a publish unanswered.
_SUSPECT_TIME = 5.0


def is_final(code: str, text: str, attempts: int) -> bool:
    """True if a retry is pointless after ``attempts`` attempts and this error."""
    if code in _RETRY_ONCE:
        return attempts > 1 or text.startswith("invalid command")  # nsqd does not know the command
    return code in _RAISE


def retry_delay(
    attempts: int, is_leader_moving: bool, left: float | None, rng: random.Random
) -> float | None:
    """Seconds to wait after the ``attempts``-th attempt failed; None: no time for another.

    The delay is at most half of ``left``, the seconds until the deadline, so that attempts continue
    until shortly before it. A random quarter is added, so that clients do not retry in step.
    """
    delays = _LEADER_DELAYS if is_leader_moving else _DELAYS
    delay = delays[min(max(attempts, 1), len(delays)) - 1] * (1 + 0.25 * rng.random())
    if left is None:
        return delay
    return min(delay, left / 2) if left > _LAST_ATTEMPT else None


class PartitionAttempts(Attempts):
    """The attempts of one publish, or of one batch. Not thread-safe.

    Args:
        partition: None with a key, or for any partition.
        size: bytes of the largest message on an extended topic; see ``extended_size``.
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
        return self.key is None and self.partition is None

    @property
    def needs_lookup(self) -> bool:
        return self.is_leader_moving or isinstance(self.reason, ServerError)

    def check(self, meta: TopicMeta | None) -> None:
        """Raise an error if the topic does not accept the publish."""
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
        """Return the partition of the next attempt, or None if none can be written to now.

        Args:
            avoid: partitions to choose only if there are no others.

        Raises an error if no attempt can succeed.
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
        # Another partition would break the order of the key's messages.
        belongs = "" if self.key is None else f", where key {self.key!r:.60} belongs,"
        self.is_leader_moving = True
        problem = find_problem()
        self.reason = PublishNotSentError(
            f"partition {partition} of {self.topic}{belongs} has no leader that can be written"
            f" to{'' if problem is None else f': {problem}'}"
        )
        return None

    def _lack(self, problem: NSQError | None, text: str) -> None:
        self.reason = problem or self.reason or PublishNotSentError(text)
        self.is_leader_moving = True

    def on_partition_failure(
        self, error: NSQError, nsqd: str, partition: int, is_sent: bool = True
    ) -> None:
        """Record a failed attempt. Raises the final error if another attempt cannot help."""
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
        times = "once" if self.count == 1 else f"{self.count} times"
        known = "outcome unknown" if self.maybe_stored else "not stored"
        return final_error(
            f"{known} in {self.topic}, tried {times}: {self.reason}", self.reason,
            self.maybe_stored)


class _Attempt(NamedTuple):
    nsqd: str
    name: str  #: the topic and the partition
    began: float  #: on time.monotonic()
    is_async: bool


class PartitionLoad:
    """The publishes under way, by ``partition_name``. Threads: any; its dicts need no lock."""

    def __init__(self) -> None:
        self._suspects: dict[str, float] = {}  # partition -> until when
        self._under_way: dict[object, _Attempt] = {}

    @contextlib.contextmanager
    def attempt(self, nsqd: str, name: str, is_async: bool) -> Iterator[None]:
        """Record that the block publishes to a partition."""
        ticket = object()
        try:
            self._under_way[ticket] = _Attempt(nsqd, name, time.monotonic(), is_async)
            yield
        finally:
            self._under_way.pop(ticket, None)

    def note(self, name: str, is_answered: bool, seconds: float) -> None:
        """Record whether a partition answered a publish within ``seconds``."""
        if not is_answered:
            self._suspects[name] = time.monotonic() + seconds + _SUSPECT_TIME
        elif self._suspects:
            self._suspects.pop(name, None)

    def _suspected(self) -> set[str]:
        now = time.monotonic()
        return {name for name, until in self._suspects.copy().items() if until > now}

    def unanswered(self, seconds: float) -> set[str]:
        """Return the suspect partitions, and partitions silent on a publish for ``seconds``.

        0: every partition with a publish under way.
        """
        before = time.monotonic() - seconds
        under_way = self._under_way.copy().values()
        return self._suspected().union(one.name for one in under_way if one.began <= before)

    def may_begin(self, nsqd: str, name: str) -> bool:
        """True if another asynchronous publish to that partition may begin."""
        beside = [attempt for attempt in self._under_way.copy().values()
                  if attempt.is_async and attempt.nsqd == nsqd]
        if len(beside) >= MAX_AT_ONCE:
            return False
        suspects = self._suspected()
        return name not in suspects or (
            len([one for one in beside if one.name in suspects]) < _MAX_SUSPECT)
