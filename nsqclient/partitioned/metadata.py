"""``MetadataCache``: the leaders of the partitions of each topic, merged from all nsqlookupds.

Threads of the cache ask the nsqlookupds at the first publish to a topic, then every
``lookupd_poll_interval``, and after a refusal. If a leader is unknown, a publish waits for the
first answer, and a short time for the others.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import filterfalse

from nsqclient.config import Config
from nsqclient.discovery import Poller, config_for
from nsqclient.errors import DiscoveryError, NSQError, PublishNotSentError, with_hint
from nsqclient.hints import hint_on
from nsqclient.log_records import log_fields
from nsqclient.partitioned.discovery import LATE_AFTER, RoutesResult, lookup_routes
from nsqclient.protocol.partitioned.lookup_table import LookupTable, TopicRoutes
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Monitor
from nsqclient.runtime.workers import WorkerPool

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Threads in addition to one for each given nsqlookupd. An nsqlookupd that hangs occupies one.
_THREADS = 4
#: Seconds that a publish waits for the other nsqlookupds after the first answer.
_OTHERS_WAIT = 0.1
#: Seconds that stop() waits for an nsqlookupd that does not answer.
_GRACE = 0.5


class _Topic:
    """The answers about one topic. Guarded by the cache's lock."""

    def __init__(
        self, topic: str, lookupds: list[str], config: Config, changed: Monitor,
        run: Callable[[str, Callable[[], None]], None],
    ) -> None:
        self.topic: str = topic
        self.table: LookupTable = LookupTable(lookupds)
        self.poller: Poller[RoutesResult] = Poller(
            lambda lookupd: lookup_routes(
                lookupd, topic, "w", config_for(lookupd, lookupds, config)),
            run, changed.lock, self._merge, self._report)
        self.lacks_meta: bool = False  # the missing metadata was logged
        self.is_settled: bool = False  # a publish has waited for the first answers
        self.asked_at: float = float("-inf")  # on time.monotonic()
        self.error: NSQError | None = None  # why the last nsqlookupd did not answer
        self.problem: NSQError | None = None  # why the last answer lists no partitions
        #: The merged answers, and when they expire; None after a change. Read without the lock.
        self.current: tuple[TopicRoutes, float] | None = None
        self._changed = changed

    def is_complete(self) -> bool:
        routes = self.table.merged()
        return 0 < routes.partition_num == len(routes.partitions)

    def begin_round(self) -> None:
        """Ask every nsqlookupd, or queue the question if it is being asked."""
        self.current = None
        self.poller.ask(self.table.addresses, again=True)
        self.asked_at = time.monotonic()

    def _merge(
        self, lookupd: str, answer: RoutesResult | None, error: DiscoveryError | None
    ) -> list[str]:
        self._changed.notify_all()
        self.current = None
        further: list[str] = []
        if answer is None:
            self.table.on_failure(lookupd)
            self.error = error
        else:
            known = set(self.table.addresses)
            self.table.on_answer(lookupd, answer.routes, answer.lookupds)
            self.error = None
            self.problem = PublishNotSentError(with_hint(DiscoveryError(
                lookupd, answer.problem, hint_on("nsqlookupd", answer.problem)
            ))) if answer.problem else None
            further = list(filterfalse(known.__contains__, self.table.addresses))
        return further

    def _report(
        self, lookupd: str, answer: RoutesResult | None, error: DiscoveryError | None
    ) -> None:
        if error is not None:
            logger.warning("%s", error, extra=log_fields(topic=self.topic))
        with self._changed.lock:
            is_over = not self.poller.is_asking
            self.is_settled = self.is_settled or is_over
            merged = self.table.merged()
            lacks_meta = is_over and bool(merged.partitions) and merged.meta is None
            is_news = lacks_meta and not self.lacks_meta
            self.lacks_meta = self.lacks_meta or lacks_meta
        if is_news:
            logger.warning(
                "no nsqlookupd has the metadata of topic %s: whether it is ordered is not known,"
                " and a key cannot be used", self.topic, extra=log_fields(topic=self.topic))


class MetadataCache:
    """The routes of every topic that was published to. Threads: any.

    An nsqlookupd gets one request at a time, so that it occupies only one thread if it hangs.
    """

    def __init__(self, lookupds: list[str], config: Config) -> None:
        self._lookupds = lookupds
        self._changed = Monitor()
        self._config = config
        self._topics: dict[str, _Topic] = {}  # guarded by _changed.lock
        #: nsqlookupd with a request under way -> its next requests. Guarded by _changed.lock.
        self._busy: dict[str, deque[Callable[[], None]]] = {}
        self._is_stopped = False  # written under _changed
        self._background: WorkerPool[tuple[str, Callable[[], None]]] = WorkerPool(
            "nsq-background", _THREADS + len(lookupds), self._ask)

    def routes(self, topic: str, deadline: Deadline) -> TopicRoutes:
        """Return the merged answers.

        Blocks: without answers, until one nsqlookupd has answered and the others had 0.1 s more,
        all have failed, or the deadline.

        Raises:
            DiscoveryError: no nsqlookupd has answered.
        """
        now = time.monotonic()
        found = self._topics.get(topic)
        current = None if found is None else found.current
        if current is not None and now < current[1]:
            return current[0]
        with self._changed.lock:
            found = self._topics.get(topic)
            if found is None:
                found = self._topics[topic] = _Topic(
                    topic, self._lookupds, self._config, self._changed,
                    lambda lookupd, task: self._background.put((lookupd, task)))
            is_old = now - found.asked_at > self._config.lookupd_poll_interval
        if is_old:
            self.refresh(topic)
        if not found.is_settled:
            self._wait(found, 0, deadline)
        with self._changed.lock:
            for lookupd in found.poller.late(LATE_AFTER):
                found.table.on_late(lookupd)
            merged = found.table.merged()
            error = found.error
            if merged.partitions and found.poller.all_late(LATE_AFTER):
                found.current = merged, found.asked_at + self._config.lookupd_poll_interval
        if not merged.is_partitioned and not merged.plain:
            if error is not None:
                raise error
            if not found.poller.answered:
                raise DiscoveryError(self._lookupds[0], "no answer yet")
        return merged

    def count_partitions(self, topic: str) -> int:
        """Return how many partitions of the topic have a known leader."""
        found = self._topics.get(topic)
        current = None if found is None else found.current
        return 0 if current is None else len(current[0].partitions)

    def refresh(self, topic: str, deadline: Deadline | None = None) -> None:
        """Start to ask every nsqlookupd for the topic; with a deadline, wait for a new answer.

        An nsqlookupd with a request under way is asked again after its answer.
        """
        with self._changed.lock:
            self._background.start()
            found = self._topics[topic]
            number = found.poller.requests  # the answer to an older request may be too old
            found.begin_round()
        if deadline is not None:
            self._wait(found, number, deadline)

    def problem(self, topic: str) -> NSQError | None:
        with self._changed.lock:
            found = self._topics.get(topic)
            return None if found is None else found.problem

    def may_learn_more(self, topic: str) -> bool:
        """True if an nsqlookupd has not answered yet, and is not late."""
        with self._changed.lock:
            found = self._topics.get(topic)
            return found is not None and not found.poller.all_late(LATE_AFTER)

    def on_refused(self, topic: str, partition: int, nsqd: str) -> None:
        with self._changed.lock:
            found = self._topics[topic]
            found.table.on_refused(partition, nsqd)
            found.current = None

    def on_accepted(self, topic: str, partition: int, nsqd: str) -> None:
        found = self._topics[topic]
        if found.table.refused:  # cheap test: called for every stored publish
            with self._changed.lock:
                found.table.on_accepted(partition, nsqd)
                found.current = None

    def stop(self, deadline: Deadline) -> list[str]:
        """Stop asking; return the names of stuck threads."""
        with self._changed.lock:
            self._is_stopped = True
        self._background.take_all()
        return self._background.stop(Deadline(deadline.at_most(_GRACE)))

    def _wait(self, found: _Topic, number: int, deadline: Deadline) -> None:
        """Wait for an answer to a request after ``number``, and a moment for other nsqlookupds.

        The very first answer is enough if it lists all partitions.
        """
        poller = found.poller
        self._changed.wait_for(
            lambda: poller.answered > number or not poller.is_asking, deadline.remaining())
        self._changed.wait_for(
            lambda: poller.all_late(_OTHERS_WAIT) or not number and found.is_complete(),
            deadline.at_most(_OTHERS_WAIT),
        )
        with self._changed.lock:
            found.is_settled = found.is_settled or bool(poller.answered) or not poller.is_asking

    def _ask(self, item: tuple[str, Callable[[], None]]) -> None:
        """Ask one nsqlookupd, then queue its next requests. Called on a background thread."""
        lookupd, task = item
        with self._changed.lock:
            if self._is_stopped:
                return
            waiting = self._busy.get(lookupd)
            if waiting is not None:
                waiting.append(task)
                return
            self._busy[lookupd] = deque()
        try:
            task()
        finally:
            with self._changed.lock:
                tasks = self._busy.pop(lookupd)
            self._background.put_many([(lookupd, one) for one in tasks])
