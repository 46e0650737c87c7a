"""``Tables``: who leads the partitions of each topic, as all nsqlookupds say it.

Asked for with the first publish to a topic, again every ``lookupd_poll_interval`` and after a
refusal. Asking happens on threads of its own; publishers only wait where they know no leader.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from nsqclient.config import Config
from nsqclient.discovery import config_for, find_routes
from nsqclient.display import without_password
from nsqclient.errors import DiscoveryError, NSQError
from nsqclient.partitions.lookup_table import LookupTable
from nsqclient.partitions.routes import TopicRoutes
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.workers import WorkerPool

logger = logging.getLogger("nsqclient.producer")

#: So many nsqlookupds are asked at once; one that hangs holds one of these threads.
_THREADS = 4
#: Seconds that stop() waits for a nsqlookupd that does not answer.
_GRACE = 0.5


class _Topic:
    """What is known of one topic. Guarded by the lock of its Tables."""

    def __init__(self, lookupds: Iterable[str]) -> None:
        self.table = LookupTable(lookupds)
        self.asking: set[str] = set()
        self.asked_at = float("-inf")  # on time.monotonic()
        self.rounds = 0  # rounds in which everybody has answered, or failed
        self.is_due = False  # another round was asked for meanwhile
        self.error: NSQError | None = None  # why there is no answer


class Tables:
    """The routes of every topic that was published to.

    Life: usable at once, ``stop()``. Threads: every method, any thread.
    """

    def __init__(self, lookupds: list[str], config: Config) -> None:
        self._lookupds = lookupds
        self._config = config
        self._changed = Monitor()
        self._topics: dict[str, _Topic] = {}  # by _changed
        self._chores: WorkerPool[tuple[str, str]] = WorkerPool("nsq-chores", _THREADS, self._ask)

    def routes(self, topic: str, deadline: Deadline) -> TopicRoutes:
        """Return what is known; ask and wait where nothing is.

        Blocks: until all nsqlookupds have answered or failed once, or the deadline.

        Raises:
            DiscoveryError: none has answered.
        """
        with self._changed.lock:
            found = self._topics.get(topic)
            if found is None:
                found = self._topics[topic] = _Topic(self._lookupds)
            is_old = time.monotonic() - found.asked_at > self._config.lookupd_poll_interval
        if is_old:
            self.refresh(topic)
        self._changed.wait_for(lambda: found.rounds, deadline.remaining())
        with self._changed.lock:
            merged = found.table.merged()
            error = found.error
        if not merged.is_partitioned and not merged.plain and error is not None:
            raise error
        return merged

    def refresh(self, topic: str) -> None:
        """Ask every nsqlookupd for the topic, soon; returns at once."""
        with self._changed.lock:
            found = self._topics[topic]
            if found.asking:
                found.is_due = True
                return
            self._chores.start()
            self._begin_round(topic, found)

    def refresh_and_wait(self, topic: str, deadline: Deadline) -> None:
        """Ask every nsqlookupd and wait for the answers. Blocks: at most until the deadline."""
        with self._changed.lock:
            found = self._topics[topic]
            # One that is under way may have begun before what we know now.
            wanted = found.rounds + (2 if found.asking else 1)
        self.refresh(topic)
        self._changed.wait_for(lambda: found.rounds >= wanted, deadline.remaining())

    def on_refused(self, topic: str, partition: int, nsqd: str) -> None:
        """This nsqd says that it does not lead the partition."""
        with self._changed.lock:
            self._topics[topic].table.on_refused(partition, nsqd)

    def on_accepted(self, topic: str, partition: int, nsqd: str) -> None:
        """This nsqd leads the partition."""
        with self._changed.lock:
            self._topics[topic].table.on_accepted(partition, nsqd)

    def stop(self, deadline: Deadline) -> list[str]:
        """Ask no more; return the names of threads that stay (a lookup may take long)."""
        self._chores.take_all()
        return self._chores.stop(Deadline(deadline.at_most(_GRACE)))

    def _begin_round(self, topic: str, found: _Topic) -> None:
        """Have every nsqlookupd asked. Needs _changed."""
        asks = found.table.begin_round()
        # In this order, under the lock: where an exception from a signal handler comes in
        # between, nobody waits for a question that was never asked.
        self._chores.put_many([(topic, lookupd) for lookupd in asks])
        found.asking.update(asks)
        found.is_due = False
        found.asked_at = time.monotonic()

    def _ask(self, task: tuple[str, str]) -> None:
        """Ask one nsqlookupd for one topic. On a chore thread."""
        topic, lookupd = task
        answer = error = None
        try:
            config = config_for(lookupd, self._lookupds, self._config)
            answer = find_routes(lookupd, topic, "w", config)
        except DiscoveryError as exc:
            logger.warning("%s", exc)
            error = exc
        except Exception as exc:  # else publishers would wait for it for ever
            logger.exception(
                "asking %s failed in an unforeseen way", without_password(lookupd)
            )
            error = DiscoveryError(lookupd, repr(exc))
        more: list[str] = []
        with self._changed.lock:
            found = self._topics[topic]
            found.asking.discard(lookupd)
            if answer is None:
                found.table.on_failure(lookupd)
                found.error = error
            else:
                known = set(found.table.addresses)
                found.table.on_answer(lookupd, answer.routes, answer.lookupds)
                found.error = DiscoveryError(lookupd, answer.problem) if answer.problem else None
                # Those that were named for the first time belong to this round.
                more = [one for one in found.table.addresses if one not in known]
                found.asking.update(more)
            if not found.asking:
                self._changed.notify_all()
                found.rounds += 1
                if found.is_due:
                    self._begin_round(topic, found)
        self._chores.put_many([(topic, one) for one in more])
