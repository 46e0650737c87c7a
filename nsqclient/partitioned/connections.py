"""``PartitionedConnections``: a connection for each partition of a topic, to its leader."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Container
from typing import Any, Protocol

from nsqclient.consumer.connections import (
    ConnectionManager, ConnectionsOwner, NsqdEntry, NsqdSources, Redial, S, call_filter,
)
from nsqclient.consumer.context import ConsumerContext
from nsqclient.discovery import config_for
from nsqclient.errors import DiscoveryError, NSQError, PartitionError, ServerError
from nsqclient.partitioned.leaders import (
    PartitionEntry, PartitionLeaders, PartitionTarget, show_partitions,
)
from nsqclient.partitioned.options import PartitionOptions
from nsqclient.partitioned.subscription import TopicSubscribe
from nsqclient.partitioned.discovery import LATE_AFTER, RoutesResult, lookup_routes
from nsqclient.protocol.events import Endpoint
from nsqclient.protocol.partitioned.lookup_table import TopicRoutes
from nsqclient.protocol.partitioned.extensions import LEADER_CODES
from nsqclient.runtime.dialing import MAX_DIALS

#: Maximum seconds between two lookups, or two dials, while a partition has no leader.
MAX_LEADER_WAIT = 4.0


def choose_routes(
    sources: NsqdSources, routes: TopicRoutes, partitions: Container[int] | None
) -> TopicRoutes:
    """Apply ``partitions`` and ``discovery_filter``. Raises what ``discovery_filter`` raises."""
    routes = routes.only(partitions)
    if sources.discovery_filter is None:
        return routes
    addresses = sources.choose([*routes.plain, *routes.partitions.values()])
    leaders = {
        partition: nsqd for partition, nsqd in routes.partitions.items() if nsqd in addresses
    }
    led = set(routes.partitions.values())
    return dataclasses.replace(
        routes, plain=tuple(address for address in addresses if address not in led),
        partitions=leaders,
        excluded=routes.excluded.union(set(routes.partitions).difference(leaders)),
    )


class PartitionsOwner(ConnectionsOwner[S], Protocol[S]):
    """What PartitionedConnections calls."""

    def make_partition_subscription(self, target: PartitionTarget) -> S: ...

    def on_partitions(self, count: int) -> None:
        """Called when the number of partitions is known, and when it changes."""
        ...


class PartitionedConnections(ConnectionManager[S]):
    """Keeps a consumer connected, to all nsqds of a topic, or to the leaders of its partitions."""

    _entries: dict[Endpoint, PartitionEntry]  # type: ignore[assignment]  # as make_entry makes

    def __init__(
        self, context: ConsumerContext, sources: NsqdSources, owner: PartitionsOwner[S],
        options: PartitionOptions, *, max_dials: int = MAX_DIALS,
    ) -> None:
        self._channel = context.channel
        self._partitions = options.partitions
        self._partition_owner = owner
        self._leaders = PartitionLeaders(context.topic, sources.lookupds, options)
        self._table = self._leaders.table
        #: nsqlookupd -> the given nsqlookupd through which it was found, whose dials it shares
        self._seeds = {lookupd: lookupd for lookupd in self._table.addresses}
        self._partition_count = 0  # last number reported
        super().__init__(context, sources, owner, max_dials=max_dials)

    def unread_partitions(self) -> list[int]:
        """Return the partitions without a connection to their leader."""
        with self._lock:
            return self._leaders.unread(self._entries)

    def missing(self) -> str:
        unread = self.unread_partitions()
        return f"no reader for {show_partitions(unread)}" if unread else ""

    def make_entry(self, *, is_direct: bool) -> PartitionEntry:
        return PartitionEntry(is_direct)

    def make_subscription(self, place: Endpoint, entry: NsqdEntry) -> S:
        if place.partition is None:
            sub = super().make_subscription(place, entry)
            sub.wanted = TopicSubscribe(self._topic, self._channel, not entry.direct)
            return sub
        target = self._leaders.target(place, self._entries[place])
        return self._partition_owner.make_partition_subscription(target)

    def on_opened(self, place: Endpoint, entry: NsqdEntry) -> list[S]:
        mine = self._entries[place]
        mine.extended, mine.has_followed_order = None, False
        return self._forget(self._leaders.take_over(place, self._entries))

    def on_refused(self, place: Endpoint, entry: NsqdEntry, error: NSQError) -> Redial:
        if isinstance(error, PartitionError):
            self._leaders.refusal = self._leaders.refusal or error
            redial = Redial.NEVER
        else:
            knew_order = self._leaders.must_order
            redial = self._leaders.on_dial_failed(place, self._entries[place], error)
            if self._leaders.must_order and not knew_order and redial is not Redial.NEVER:
                self._log.info("the topic is ordered, as nsqd says: it is consumed in order")
        if redial is Redial.NEVER:
            self.incompatibility = self._leaders.incompatibility()
        if isinstance(error, ServerError) and error.code in LEADER_CODES:
            self._want_other_leader(place)
        return redial

    def _want_other_leader(self, refused: Endpoint) -> None:
        """Dial the nsqd that another nsqlookupd names for this partition. Needs _lock."""
        leader = self._table.merged().partitions.get(refused.partition or 0)
        if refused.partition is None or leader is None or leader == refused.address:
            return
        other = Endpoint(leader, refused.partition)
        for lookupd in self._table.naming(other):
            self._want([other], lookupd)

    def limit_wait(self, delay: float, place: Endpoint | None = None) -> float:
        if place is None:
            may_change = bool(self._leaders.unread(self._entries))
        else:
            may_change = place.partition is not None  # it may become the leader at any time
        # An election takes half a minute, and its end must be noticed within 5 s.
        longest = MAX_LEADER_WAIT * (0.5 + 0.5 * self._rng.random())
        return min(delay, longest) if may_change else delay

    def poll(self) -> None:
        super().poll()
        with self._lock:
            unread = self._leaders.unread(self._entries)
            seconds = None if self._stopped else self._leaders.reminder.note(
                bool(unread), time.monotonic())
        if seconds:
            self._log.warning(
                "no reader for %s for %.0f s: no nsqlookupd lists a leader, or the leader refuses;"
                " see the cluster", show_partitions(unread), seconds)
        elif seconds is not None:
            self._log.info("every partition has a reader again")

    def lookup(self, lookupd: str) -> RoutesResult:
        config = config_for(lookupd, self._sources.lookupds, self._config)
        return lookup_routes(lookupd, self._topic, "r", config)

    def merge(
        self, lookupd: str, answer: Any | None, error: DiscoveryError | None
    ) -> list[str]:
        if answer is None:
            self._table.on_failure(lookupd)
        return []

    def begin_round(self) -> list[str]:
        return self._table.addresses

    def given_lookupds(self, place: Endpoint) -> set[str]:
        return {self._seeds[one] for one in self._table.naming(place)}

    def on_lookup(self, lookupd: str, answer: Any) -> None:
        found: RoutesResult = answer
        self.note_whether_known(
            lookupd, bool(found.routes.plain or found.routes.partitions), found.problem)
        routes = call_filter(self._log, lambda: choose_routes(
            self._sources, found.routes, self._partitions))
        if routes is None:
            return
        with self._lock:
            if self._stopped:
                return
            self._table.on_answer(lookupd, routes, found.lookupds)
            new = [address for address, _ in found.lookupds if address not in self._seeds]
            self._seeds.update(dict.fromkeys(new, self._seeds[lookupd]))
            self._poller.ask(new)
            places = [Endpoint(address) for address in routes.plain]
            gone: list[S] = []
            for late in self._poller.late(LATE_AFTER):
                self._table.on_late(late)  # newer answers replace its last one
            merged = self._table.merged()
            if merged.is_partitioned:
                places += [Endpoint(nsqd, number) for number, nsqd in merged.partitions.items()]
                gone = self._forget(self._leaders.left_behind(merged, self._entries))
            self._drop_unlisted()
            former, news = self.incompatibility, self._leaders.incompatibility()
            self.incompatibility = news
            if news is None:
                self._want(places, lookupd)
            is_late = self._rounds.next_at - time.monotonic() > MAX_LEADER_WAIT
            if is_late and self._leaders.unread(self._entries):
                self._schedule_round()
            count = 0 if news is not None else merged.usable_partitions
            is_new_count = count not in (0, self._partition_count)
            if is_new_count:
                self._partition_count = count
        if is_new_count:
            self._partition_owner.on_partitions(count)  # before they share max_in_flight
        self.dials.dispatch()
        for sub in gone:
            sub.conn.close("its partition is not there any more")
        self._report_incompatibility(former, news)
