"""``MetadataCache``: the leaders of the partitions of each topic, merged from all nsqlookupds.

The nsqlookupds are asked with the first publish to a topic, again every ``lookupd_poll_interval``,
and after a refusal. Threads of the cache ask; a publish waits only where it has no leader, and then
for the first answer and a short time for the others: an nsqlookupd that hangs delays no publish.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from itertools import filterfalse

from nsqclient.config import Config
from nsqclient.discovery import LATE_AFTER, LookupResult, config_for, lookup_topic
from nsqclient.errors import DiscoveryError, NSQError
from nsqclient.log_fields import log_fields
from nsqclient.partitioned.lookup_table import LookupTable, TopicRoutes
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.workers import WorkerPool
from nsqclient.sanitize import without_password

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Threads beside one for each nsqlookupd that was given; each nsqlookupd that hangs occupies one.
_THREADS = 4
#: Seconds that a publish waits for the other nsqlookupds after the first answer.
_OTHERS_WAIT = 0.1
#: Seconds that stop() waits for an nsqlookupd that does not answer.
_GRACE = 0.5


class _Topic:
    """The answers about one topic. Guarded by the lock of the cache."""

    def __init__(self, lookupds: Iterable[str]) -> None:
        self.table = LookupTable(lookupds)
        #: nsqlookupd -> the number of the request to it, and when it was made, on time.monotonic()
        self.asking: dict[str, tuple[int, float]] = {}
        self.again: set[str] = set()  # to be asked once more when they have answered
        self.requests = 0  # made so far
        self.answered = 0  # the highest number of a request with an answer
        self.lacks_meta = False  # it was logged that no nsqlookupd has its metadata
        self.is_settled = False  # a publish has waited for the first answers
        self.asked_at = float("-inf")  # on time.monotonic()
        self.error: NSQError | None = None  # of the last nsqlookupd without an answer
        self.problem: NSQError | None = None  # why the last answer has no partitions
        #: The merged answers, and until when they may be used; None after a change. Read unlocked.
        self.current: tuple[TopicRoutes, float] | None = None

    def is_complete(self) -> bool:
        """Return whether every partition of the topic has a leader."""
        routes = self.table.merged()
        return 0 < routes.partition_num == len(routes.partitions)

    def late(self, now: float, seconds: float) -> set[str]:
        """The nsqlookupds that have not answered for so long."""
        return {lookupd for lookupd, (_, since) in self.asking.items() if now - since > seconds}


class MetadataCache:
    """The routes of every topic that was published to.

    An nsqlookupd gets one request at a time: where it hangs it occupies one thread, however many
    topics there are.

    Life: usable at once, ``stop()``. Threads: every method, any thread.
    """

    def __init__(self, lookupds: list[str], config: Config) -> None:
        self._lookupds = lookupds
        self._config = config
        self._changed = Monitor()
        self._topics: dict[str, _Topic] = {}  # by _changed
        #: nsqlookupd with a request under way -> the topics to ask it for next; by _changed
        self._busy: dict[str, deque[str]] = {}
        self._is_stopped = False  # written under _changed
        self._background: WorkerPool[tuple[str, str]] = WorkerPool(
            "nsq-background", _THREADS + len(lookupds), self._ask)

    def routes(self, topic: str, deadline: Deadline) -> TopicRoutes:
        """Return the merged answers; where there are none, ask and wait.

        Blocks: until one nsqlookupd has answered and the others had a moment, or all have failed,
        or the deadline.

        Raises:
            DiscoveryError: none has answered.
        """
        now = time.monotonic()
        found = self._topics.get(topic)
        current = None if found is None else found.current
        if current is not None and now < current[1]:
            return current[0]
        with self._changed.lock:
            found = self._topics.get(topic)
            if found is None:
                found = self._topics[topic] = _Topic(self._lookupds)
            is_old = now - found.asked_at > self._config.lookupd_poll_interval
        if is_old:
            self.refresh(topic)
        if not found.is_settled:
            self._wait(found, 0, deadline)
        with self._changed.lock:
            if found.asking:
                for lookupd in found.late(now, LATE_AFTER):
                    found.table.on_late(lookupd)
            merged = found.table.merged()
            error = found.error
            if merged.partitions and len(found.late(now, LATE_AFTER)) == len(found.asking):
                found.current = merged, found.asked_at + self._config.lookupd_poll_interval
        if not merged.is_partitioned and not merged.plain:
            if error is not None:
                raise error
            if not found.answered:
                raise DiscoveryError(self._lookupds[0], "no answer yet")
        return merged

    def count_partitions(self, topic: str) -> int:
        """Return how many partitions of the topic have a leader, as far as is known."""
        found = self._topics.get(topic)
        current = None if found is None else found.current
        return 0 if current is None else len(current[0].partitions)

    def refresh(self, topic: str) -> int:
        """Ask every nsqlookupd for the topic, soon; returns at once.

        Those with a request under way are asked again when they have answered it.

        Returns: the number of the last request before it.
        """
        with self._changed.lock:
            self._background.start()
            found = self._topics[topic]
            number = found.requests  # the answer to an older request may be too old
            self._begin_round(found, topic)
        return number

    def refresh_and_wait(self, topic: str, deadline: Deadline) -> None:
        """Ask every nsqlookupd and wait as ``routes``. Blocks: at most until the deadline."""
        number = self.refresh(topic)
        self._wait(self._topics[topic], number, deadline)

    def problem(self, topic: str) -> NSQError | None:
        """Return the reason that the last answer gave for having no partitions."""
        with self._changed.lock:
            found = self._topics.get(topic)
            return None if found is None else found.problem

    def may_learn_more(self, topic: str) -> bool:
        """Return whether an nsqlookupd has not answered yet, and is not late."""
        with self._changed.lock:
            found = self._topics.get(topic)
            return found is not None and (
                len(found.late(time.monotonic(), LATE_AFTER)) < len(found.asking))

    def on_refused(self, topic: str, partition: int, nsqd: str) -> None:
        """Store that this nsqd does not lead the partition."""
        with self._changed.lock:
            found = self._topics[topic]
            found.table.on_refused(partition, nsqd)
            found.current = None

    def on_accepted(self, topic: str, partition: int, nsqd: str) -> None:
        """Store that this nsqd leads the partition."""
        found = self._topics[topic]
        if found.table.has_refusals:  # of every publish that was stored
            with self._changed.lock:
                found.table.on_accepted(partition, nsqd)
                found.current = None

    def stop(self, deadline: Deadline) -> list[str]:
        """Ask no more; return the names of threads that did not end (a lookup may take long)."""
        with self._changed.lock:
            self._is_stopped = True
        self._background.take_all()
        return self._background.stop(Deadline(deadline.at_most(_GRACE)))

    def _wait(self, found: _Topic, number: int, deadline: Deadline) -> None:
        """Wait for a response to a request after this one, and a moment for those of the others.

        The first response to the first request is enough where it lists all partitions.
        """
        self._changed.wait_for(
            lambda: found.answered > number or not found.asking, deadline.remaining())
        self._changed.wait_for(
            lambda: len(found.late(time.monotonic(), _OTHERS_WAIT)) == len(found.asking)
            or not number and found.is_complete(),
            deadline.at_most(_OTHERS_WAIT),
        )
        with self._changed.lock:
            found.is_settled = found.is_settled or bool(found.answered) or not found.asking

    def _begin_round(self, found: _Topic, topic: str) -> None:
        """Ask every nsqlookupd that is not being asked, the others later. Needs _changed."""
        found.current = None
        asks = found.table.begin_round()
        found.again.update(filter(found.asking.__contains__, asks))
        self._begin(found, topic, list(filterfalse(found.asking.__contains__, asks)))
        found.asked_at = time.monotonic()

    def _begin(self, found: _Topic, topic: str, asks: list[str]) -> None:
        """Ask these nsqlookupds. Needs _changed."""
        request = found.requests + 1, time.monotonic()
        # In this order, under the lock: an exception of a signal handler in between must not leave
        # a request that is waited for and was never queued.
        self._background.put_many([(topic, lookupd) for lookupd in asks])
        found.asking.update(dict.fromkeys(asks, request))
        found.requests += 1

    def _ask(self, task: tuple[str, str]) -> None:
        """Ask one nsqlookupd for one topic, then for those that wait.

        On a background thread, or that of the caller where there is none.
        """
        topic, lookupd = task
        with self._changed.lock:
            if self._is_stopped:
                return
            waiting = self._busy.get(lookupd)
            if waiting is not None:
                waiting.append(topic)
                return
            self._busy[lookupd] = deque()
        try:
            self._lookup(topic, lookupd)
        finally:
            with self._changed.lock:
                topics = self._busy.pop(lookupd)
            self._background.put_many([(one, lookupd) for one in topics])

    def _lookup(self, topic: str, lookupd: str) -> None:
        """Ask one nsqlookupd for one topic. Blocks: as ``lookup_topic``."""
        answer = error = None
        try:
            config = config_for(lookupd, self._lookupds, self._config)
            answer = lookup_topic(lookupd, topic, "w", config)
        except DiscoveryError as exc:
            logger.warning("%s", exc, extra=log_fields(topic=topic))
            error = exc
        except Exception as exc:  # otherwise publishers would wait forever
            logger.exception(
                "unexpected error in the lookup at %s", without_password(lookupd),
                extra=log_fields(topic=topic),
            )
            error = DiscoveryError(lookupd, repr(exc))
        with self._changed.lock:
            self._changed.notify_all()
            found = self._topics[topic]
            found.current = None
            number, _ = found.asking.pop(lookupd, (0, 0.0))
            if answer is None:
                found.table.on_failure(lookupd)
                found.error = error
                found.again.discard(lookupd)
            else:
                self._on_answer(found, topic, lookupd, answer)
                found.answered = max(found.answered, number)
            found.is_settled = found.is_settled or not found.asking
            lacks_meta = not found.asking and found.table.lacks_meta()
            is_news = lacks_meta and not found.lacks_meta
            found.lacks_meta = found.lacks_meta or lacks_meta
        if is_news:
            logger.warning(
                "no nsqlookupd has the metadata of topic %s: whether it is ordered is not known,"
                " and a key cannot be used", topic, extra=log_fields(topic=topic))

    def _on_answer(self, found: _Topic, topic: str, lookupd: str, answer: LookupResult) -> None:
        """Take in an answer, and ask what follows from it. Needs _changed."""
        known = set(found.table.addresses)
        found.table.on_answer(lookupd, answer.routes, answer.lookupds)
        found.error = None
        found.problem = DiscoveryError(lookupd, answer.problem) if answer.problem else None
        # Nsqlookupds that this answer lists for the first time belong to this round.
        asks = list(filterfalse(known.__contains__, found.table.addresses))
        if lookupd in found.again:
            found.again.discard(lookupd)
            asks.append(lookupd)
        self._begin(found, topic, asks)
