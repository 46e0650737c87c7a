"""``TopicLookups``: asks the nsqlookupds of a consumer for its topic, round after round.

It decides when to ask which nsqlookupd; what a lookup means for the connections is decided
in ``connections``. Source: client guide, "Discovery".
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable
from typing import Protocol

from nsqclient.config import Config
from nsqclient.consumer.lifecycle_log import LifecycleLogger
from nsqclient.partitioned.consumer_leaders import UnreadReminder
from nsqclient.discovery import LATE_AFTER, LookupResult, config_for, lookup_topic
from nsqclient.discovery.poller import Poller
from nsqclient.errors import DiscoveryError, NSQError
from nsqclient.partitioned.lookup_table import Endpoint, LookupTable, TopicRoutes
from nsqclient.runtime.addresses import parse_address
from nsqclient.runtime.delays import MAX_LEADER_WAIT, leader_wait, lookup_delay, reconnect_delay
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.timer import Timer, TimerTask


class TopicLookupsDelegate(Protocol):
    """What TopicLookups need of the ConnectionManager."""

    def begin_round(self) -> bool | None:
        """Return whether a listed nsqd is or was connected; None after a stop. Needs the lock."""
        ...

    def has_nsqds(self) -> bool:
        """Return whether any nsqd is known. Needs the lock."""
        ...

    def unread_partitions(self) -> list[int]:
        """Return the partitions without a connection to their leader. Needs the lock."""
        ...

    def on_lookup(self, lookupd: str, found: LookupResult) -> None:
        """An nsqlookupd answered."""
        ...

    def on_lookup_failed(self, error: DiscoveryError) -> None:
        """An nsqlookupd did not answer; it is asked again."""
        ...

    def on_topic_unknown(self, reason: NSQError) -> None:
        """All nsqlookupds answered, and none knows the topic."""
        ...


class TopicLookups:
    """Asks every nsqlookupd now and then, soon again while a connection is missing.

    Args:
        table: the nsqlookupds and their last answers.
        lost: discovered nsqds that were connected and are not now.
        lock: the ConnectionManager's, which guards all that is here, ``table`` and ``lost``.
        partitions: those to use; None: all of them.

    Threads: any. Lookups run on background threads.
    """

    def __init__(
        self,
        topic: str,
        configured: Collection[str],
        table: LookupTable,
        lost: Collection[Endpoint],
        lock: Lock,
        config: Config,
        timer: Timer,
        run_in_background: Callable[[Callable[[], None]], None],
        delegate: TopicLookupsDelegate,
        discovery_filter: Callable[[list[str]], Iterable[str]] | None,
        log: LifecycleLogger,
        partitions: Container[int] | None = None,
    ) -> None:
        self._topic = topic
        self._table = table
        self._lost = lost
        self._lock = lock
        self._config = config
        self._timer = timer
        self._poller: Poller[LookupResult] = Poller(
            lambda lookupd: lookup_topic(
                lookupd, topic, "r", config_for(lookupd, configured, config)),
            lambda lookupd, task: self._due.append(task), lock, self)
        self._due: deque[Callable[[], None]] = deque()  # requests that were decided on
        self._run_in_background = run_in_background
        self._delegate = delegate
        self._filter = discovery_filter
        self._partitions = partitions
        self._log = log
        self._rng = random.Random()
        self._without_topic: set[str] = set()  # nsqlookupds that did not know the topic
        self._is_unknown_logged = False
        self._retry_round = 0  # rounds since the last loss
        #: Rounds in a row that began before any listed nsqd had been connected.
        self._unconnected_rounds = 0
        self._reminder = UnreadReminder()
        self._next_round: TimerTask | None = None
        self._next_round_at = 0.0  # on time.monotonic()

    def poll(self) -> None:
        """Ask every nsqlookupd that is not being asked, and schedule the next round."""
        with self._lock:
            is_connected = self._delegate.begin_round()
            if is_connected is None:
                return
            if self._lost:
                self._retry_round += 1
            self._unconnected_rounds = 0 if is_connected else self._unconnected_rounds + 1
            self.schedule_round()
            unread = self._delegate.unread_partitions()
            seconds = self._reminder.note(bool(unread), time.monotonic())
            self._poller.ask(self._table.begin_round())
        if seconds:
            self._log.partitions_unread(unread, seconds)
        elif seconds is not None:
            self._log.partitions_read()
        self.dispatch()

    def schedule_round(self) -> None:
        """Schedule the next round, and cancel the one before. Needs the lock."""
        if self._next_round is not None:
            self._next_round.cancel()
        config = self._config
        delay = lookup_delay(
            self._unconnected_rounds, config.lookupd_poll_interval, config.lookupd_poll_jitter,
            self._rng,
        )
        if self._lost:
            # Soon again, then less and less often, until all that were lost are back.
            delay = reconnect_delay(self._retry_round, delay, self._rng)
        if self._delegate.unread_partitions():
            delay = min(delay, leader_wait(self._rng))
        self._next_round_at = time.monotonic() + delay
        self._next_round = self._timer.schedule(delay, self.poll)

    def on_answer(self) -> None:
        """An answer is merged: where a leader is missing the next round comes soon. Needs the lock.
        """
        if self._next_round_at - time.monotonic() > MAX_LEADER_WAIT:
            if self._delegate.unread_partitions():
                self.schedule_round()

    def note_late(self) -> None:
        """Let newer answers replace those of nsqlookupds that do not answer. Needs the lock."""
        for lookupd in self._poller.late(LATE_AFTER):
            self._table.on_late(lookupd)

    def on_lost(self, retry_round: int) -> None:
        """A discovered nsqd was lost: the next rounds follow as after so many. Needs the lock."""
        self._retry_round = retry_round

    def on_connected(self) -> None:
        """A discovered nsqd is connected: no need to ask again so soon. Needs the lock."""
        if self._unconnected_rounds:
            self._unconnected_rounds = 0
            self.schedule_round()

    def ask(self, lookupds: Iterable[str]) -> None:
        """Ask these too, save those that are being asked. Needs the lock; then ``dispatch()``."""
        self._poller.ask(lookupds)

    def dispatch(self) -> None:
        """Have made the requests that were decided on, on background threads."""
        while self._due:
            try:
                task = self._due.popleft()
            except IndexError:  # another thread was faster
                return
            self._run_in_background(task)

    # -- for the Poller

    def merge(
        self, lookupd: str, answer: LookupResult | None, error: DiscoveryError | None
    ) -> list[str]:
        """Note a failure; an answer is merged when it is filtered. Needs the lock."""
        if answer is None:
            self._table.on_failure(lookupd)
        return []

    def report(
        self, lookupd: str, answer: LookupResult | None, error: DiscoveryError | None
    ) -> None:
        """Pass an answer or a failure on."""
        if answer is None:
            assert error is not None
            self._log.lookup_failed(error)
            self._delegate.on_lookup_failed(error)
            return
        routes = answer.routes
        self._note_lookup(lookupd, is_empty=not (routes.plain or routes.partitions))
        filtered = self._filtered(routes)
        if filtered is not None:
            self._delegate.on_lookup(lookupd, answer._replace(routes=filtered))

    def _note_lookup(self, lookupd: str, is_empty: bool) -> None:
        """Log once when all nsqlookupds have answered and none knows the topic."""
        with self._lock:
            if is_empty:
                self._without_topic.add(lookupd)
            else:
                self._is_unknown_logged = True  # it is known, and a silence later means less
            has_all = self._without_topic.issuperset(self._table.addresses)
            is_unknown = has_all and not self._delegate.has_nsqds()
            is_news = not self._is_unknown_logged and is_unknown
            self._is_unknown_logged = self._is_unknown_logged or is_news
        if is_unknown:
            reason = NSQError(f"no nsqlookupd lists the topic {self._topic}")
            self._delegate.on_topic_unknown(reason)
        if is_news:
            self._log.topic_unknown(self._config.lookupd_poll_interval)

    def _filtered(self, routes: TopicRoutes) -> TopicRoutes | None:
        """Leave to the user which partitions and nsqds are used; None when that failed."""
        routes = routes.only(self._partitions)
        if self._filter is None:
            return routes
        named = list(dict.fromkeys([*routes.plain, *routes.partitions.values()]))
        try:
            addresses = list(self._filter(named))
            for address in addresses:
                parse_address(address, "an address that discovery_filter returned")
        except BaseException:  # the user's code; the next round asks again
            self._log.exception("discovery_filter failed: this answer is not used")
            return None
        leaders = {
            partition: nsqd for partition, nsqd in routes.partitions.items() if nsqd in addresses
        }
        led = set(routes.partitions.values())
        plain = tuple(address for address in addresses if address not in led)
        return dataclasses.replace(
            routes, plain=plain, partitions=leaders,
            excluded=routes.excluded.union(set(routes.partitions).difference(leaders)),
        )
