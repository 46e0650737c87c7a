"""``ConnectionManager``: which nsqds a consumer is connected to, and how it gets back to lost ones.

Addresses come from two sources: given by the user, or listed by an nsqlookupd. Of a partitioned
topic there is a connection for each partition, to its leader. The timer only hands over; dialing
happens on the threads of a ``DialScheduler``; ``discovery`` asks the nsqlookupds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from nsqclient.connection.connection import InterruptedSendError
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.discovery import TopicLookups
from nsqclient.partitioned.consumer_leaders import NsqdEntry, PartitionLeaders, PartitionTarget
from nsqclient.partitioned.consumer_options import PartitionOptions
from nsqclient.consumer.subscription import Subscription
from nsqclient.discovery import LookupResult
from nsqclient.errors import (
    ConnectError,
    DiscoveryError,
    NSQError,
    PartitionError,
    ServerError,
)
from nsqclient.log_fields import log_fields
from nsqclient.partitioned.lookup_table import Endpoint, TopicRoutes
from nsqclient.partitioned.retry_policy import LEADER_CODES
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import leader_wait, reconnect_delay
from nsqclient.runtime.dial_queue import DIRECT, standing_of
from nsqclient.runtime.dial_scheduler import MAX_DIALS, DialScheduler
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread

#: Seconds for the whole dialogue before the first RDY; a deaf nsqd must not hold a thread long.
HANDSHAKE_TIMEOUT = 5.0
#: A connection that lived shorter than this many seconds counts as a failed dial: an nsqd that
#: accepts us and drops us at once must not be dialed in a loop.
_SHORT_LIFE = 1.0
#: How far such failures slow the lookups down: as after so many rounds, 2 s.
_SHORT_LIFE_ROUNDS = 3
#: Seconds after which a disconnected nsqd that no nsqlookupd lists is forgotten.
_FORGET_AFTER = 600.0


class NsqdSources(NamedTuple):
    """Where a consumer has its nsqds from, as the user said."""

    nsqds: Sequence[str]  #: TCP addresses
    lookupds: Sequence[str]  #: HTTP addresses
    #: Called with the addresses from one nsqlookupd; returns those to use.
    discovery_filter: Callable[[list[str]], Iterable[str]] | None = None


class ConnectionsOwner(Protocol):
    """What a ConnectionManager reports to. Called from the threads that dial and ask."""

    def make_subscription(self, address: str) -> Subscription:
        """Build a Subscription that is not open yet."""
        ...

    def make_partition(self, target: PartitionTarget) -> Subscription:
        """Build a Subscription to a partition that is not open yet."""
        ...

    def check_nsqd(self, address: str, has_partitions: bool) -> None:
        """Return if an nsqd may be subscribed to, or raise an NSQError. May block."""
        ...

    def on_connected(self, sub: Subscription) -> None:
        """The Subscription is open; give it RDY and start it."""
        ...

    def is_dial_retried(self, error: NSQError) -> bool:
        """Return whether a dial that failed so is certain not to end the consumer."""
        ...

    def on_error(self, error: NSQError) -> None:
        """A dial or a lookup failed; it is tried again."""
        ...

    def on_partitions(self, count: int) -> None:
        """The topic has so many partitions; called when their number is known or changes."""
        ...


class ConnectionManager:
    """Keeps a consumer connected.

    Each nsqlookupd that the user gave, and the nsqds that the user gave, may use an equal part of
    the ``max_dials`` dials under way. An nsqlookupd that another one listed uses the part of
    that one.

    Life: ``start()``, then ``stop()`` and ``join_dials()``; not restarted. Threads: any; nothing
    here blocks, save ``join_dials()``, and what runs on background threads and on those that dial.
    """

    def __init__(
        self,
        context: ConsumerContext,
        sources: NsqdSources,
        owner: ConnectionsOwner,
        *,
        options: PartitionOptions = PartitionOptions(),
        max_dials: int = MAX_DIALS,
        make_thread: Callable[[Callable[[], None], str], LibraryThread] = LibraryThread,
    ) -> None:
        self._log = context.log
        self._config = context.config
        self._timer = context.timer
        self._owner = owner
        self._rng = random.Random()
        self._lock = Lock()
        # Guarded by _lock, as all below.
        self._entries = {Endpoint(nsqd): NsqdEntry(direct=True) for nsqd in sources.nsqds}
        configured = list(sources.lookupds)
        self._leaders = PartitionLeaders(context.topic, configured, options)
        self._table = self._leaders.table
        #: nsqlookupd -> the given one through which it is known; by _lock, as below
        self._seeds = {lookupd: lookupd for lookupd in self._table.addresses}
        #: nsqlookupd -> what its last answer named.
        self._named: dict[str, frozenset[Endpoint]] = {}
        self._dials: DialScheduler[Endpoint] = DialScheduler(
            ([DIRECT] if self._entries else []) + list(self._seeds), self._dial,
            self._timer.schedule, limit=max_dials, make_thread=make_thread,
        )
        #: Why this topic cannot be consumed in this way; dialing it would not help.
        self.incompatibility: PartitionError | None = None
        #: The last reason for a missing connection; None while nothing has failed.
        self.last_failure: NSQError | None = None
        self._lost: set[Endpoint] = set()  # discovered ones that were connected and are not now
        self._stopped = False
        self._partition_count = 0  # that was reported
        self._lookups = TopicLookups(
            context.topic, configured, self._table, self._lost, self._lock, context.config,
            context.timer, context.run_in_background, self, sources.discovery_filter, self._log,
            options.partitions,
        )

    def start(self) -> None:
        """Dial what was given, and ask every nsqlookupd at once."""
        with self._lock:
            for place, entry in self._entries.items():
                self._put(place, entry)
        self._dials.dispatch()
        if self._table.addresses:
            self._lookups.poll()

    def stop(self) -> list[Subscription]:
        """Dial and ask no more; return the subscriptions that are open or being opened."""
        with self._lock:
            self._stopped = True
            self._dials.close()
            return self._subscriptions()

    def join_dials(self, deadline: Deadline) -> list[str]:
        """Wait for the dials under way; return the names of threads that stay. After ``stop()``."""
        return self._dials.join(deadline)

    def is_dialer(self) -> bool:
        """Return whether the calling thread dials."""
        return self._dials.is_dialer()

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back; no lock, its owner may be gone."""
        for entry in list(self._entries.values()):
            if entry.sub is not None:
                entry.sub.abandon()

    def subscriptions(self) -> list[Subscription]:
        """Those that are open or being opened."""
        with self._lock:
            return self._subscriptions()

    def addresses(self) -> set[str]:
        """The nsqds, or partitions of them, that are known."""
        with self._lock:
            return set(map(str, self._entries))

    def worked(self) -> set[str]:
        """The nsqds to which there is a connection, or was one."""
        with self._lock:
            return set(
                place.address for place, entry in self._entries.items() if entry.has_worked
            )

    def look_for(self, listed: Iterable[str]) -> None:
        """Begin a round of lookups, if nsqlookupds list nsqds that are not known here yet."""
        with self._lock:
            known = {place.address for place in self._entries}
        if not known.issuperset(listed):
            self._lookups.poll()

    def _subscriptions(self) -> list[Subscription]:
        """Needs _lock."""
        return [entry.sub for entry in self._entries.values() if entry.sub is not None]

    def lost(self, sub: Subscription, error: NSQError | None = None) -> None:
        """A connection ended: see to it that it comes back."""
        self.last_failure = error
        with self._lock:
            entry = self._entries.get(sub.place)
            if entry is None or entry.sub is not sub:
                return
            entry.sub, entry.is_open = None, False
            if self._stopped:
                return
            had_worked = (
                time.monotonic() - entry.opened_at >= _SHORT_LIFE
                or isinstance(error, InterruptedSendError)  # by a signal handler of ours
            )
            entry.failures = 0 if had_worked else entry.failures + 1
            if entry.direct:
                self._put_later(sub.place, entry)
            else:
                self._lost.add(sub.place)
                # Not at once, but within 2 s: it may just have been restarted several times.
                self._lookups.on_lost(
                    0 if had_worked else min(entry.failures, _SHORT_LIFE_ROUNDS)
                )
                if not had_worked:
                    self._lookups.schedule_round()
        if entry.direct:
            self._dials.dispatch()
        elif had_worked:
            self._lookups.poll()

    # -- dialing

    def _put(
        self, place: Endpoint, entry: NsqdEntry, retry_at: float = 0.0, lookupd: str = ""
    ) -> None:
        """Have it dialed; dispatch() comes next. Needs _lock."""
        standing = standing_of(entry.has_worked, entry.failures)
        self._dials.put(place, self._sources(place, entry, lookupd), standing, retry_at)

    def _put_later(self, place: Endpoint, entry: NsqdEntry) -> None:
        """Have it dialed when it has rested; dispatch() comes next. Needs _lock."""
        delay = reconnect_delay(entry.failures, self._config.max_reconnect_delay, self._rng)
        if place.partition is not None:  # it may lead the partition any time
            delay = min(delay, leader_wait(self._rng))
        self._put(place, entry, time.monotonic() + delay)

    def _sources(self, place: Endpoint, entry: NsqdEntry, lookupd: str = "") -> set[str]:
        """The sources that named it; ``lookupd`` where there is no other. Needs _lock."""
        sources = {self._seeds[one] for one, named in self._named.items() if place in named}
        if entry.direct:
            sources.add(DIRECT)
        if not sources and lookupd:
            sources.add(self._seeds[lookupd])
        return sources

    def _make(self, place: Endpoint, entry: NsqdEntry) -> Subscription:
        if place.partition is None:
            sub = self._owner.make_subscription(place.address)
            sub.has_address_only = entry.direct
            return sub
        return self._owner.make_partition(self._leaders.target(place, entry))

    def _dial(self, place: Endpoint) -> None:
        """Connect, or note that it failed. On a dialing thread."""
        with self._lock:
            entry = self._entries.get(place)
            if self._stopped or entry is None or entry.sub is not None:
                return
            sub = entry.sub = self._make(place, entry)
        try:
            self._owner.check_nsqd(place.address, place.partition is not None)
            sub.open(Deadline(HANDSHAKE_TIMEOUT))
        except NSQError as exc:
            self._on_dial_failed(place, entry, exc)
            return
        except Exception as exc:  # else the address would count as connected for ever
            self._log.exception("%s: unexpected error while dialing", place,
                                extra=log_fields(nsqd=place.address))
            self._on_dial_failed(place, entry, ConnectError(place.address, repr(exc)))
            return
        with self._lock:
            entry.opened_at = time.monotonic()
            entry.has_worked = entry.is_open = True
            self._lost.discard(place)
            entry.has_toggled_extend = entry.has_followed_order = False
            moved = self._leaders.take_over(place, self._entries, self._lost)
            if not entry.direct and not self._stopped:
                self._lookups.on_connected()
        self._log.connected(str(place))
        try:
            self._owner.on_connected(sub)
        except Exception:  # the system has no more threads, for example
            self._log.exception("%s: unexpected error after the connection was made", place,
                                extra=log_fields(nsqd=place.address))
            sub.conn.close()
        for old in moved:
            old.conn.close("another nsqd leads the partition now")

    def _on_dial_failed(self, place: Endpoint, entry: NsqdEntry, error: NSQError) -> None:
        news: PartitionError | None = None
        is_final = is_toggled = False
        with self._lock:
            knew_order = self._leaders.must_order
            entry.sub = None
            if self._stopped or self._entries.get(place) is not entry:
                return
            entry.failures += 1
            if isinstance(error, PartitionError):
                news = error if self.incompatibility is None else None
                self.incompatibility = self._leaders.refusal = error
                is_final = True
            elif entry.direct:
                self._put_later(place, entry)
            elif self._leaders.toggle_extend(entry, error):
                is_toggled = True
                self._put(place, entry)
            elif self._leaders.follow_order(entry, error):
                is_toggled = True
                self._put(place, entry)
            elif not self._leaders.may_dial_again(place, error):
                before, self.incompatibility = self.incompatibility, self._leaders.incompatibility()
                news = self.incompatibility if before is None else None
                is_final = True
            elif place not in self._lost and self._sources(place, entry):
                self._put_later(place, entry)
            elif place not in self._lost:  # no source names it any more
                self._forget(place)
            if isinstance(error, ServerError) and error.code in LEADER_CODES:
                self._want_other_leader(place)
        self._dials.dispatch()
        if is_toggled:
            if self._leaders.must_order and not knew_order:
                self._log.must_order()
            return
        if is_final:
            self._report_incompatibility(news)
            return
        self.last_failure = error
        if not getattr(error, "is_repeated", False):
            self._log.cannot_connect(
                str(place), error, is_repeated=self._owner.is_dial_retried(error))
        self._owner.on_error(error)

    def _want_other_leader(self, refused: Endpoint) -> None:
        """Have the nsqd dialed that another nsqlookupd names for this partition. Needs _lock."""
        merged = self._table.merged()
        leader = merged.partitions.get(refused.partition or 0)
        if refused.partition is None or leader is None or leader == refused.address:
            return
        other = Endpoint(leader, refused.partition)
        for lookupd, named in self._named.items():
            if other in named:
                self._want(lookupd, [other], merged)
                return

    # -- for the TopicLookups

    def begin_round(self) -> bool | None:
        """Forget what is old; return whether a listed nsqd is or was connected, None after a stop.

        To be listed is not enough: the registration of a dead nsqd may be old, and the first
        publish makes another nsqd known. Needs _lock.
        """
        if self._stopped:
            return None
        self._forget_old(time.monotonic())
        return any(entry.has_worked and not entry.direct for entry in self._entries.values())

    def has_nsqds(self) -> bool:
        """Return whether any nsqd is known. Needs _lock."""
        return bool(self._entries)

    def unread_partitions(self) -> list[int]:
        """Return the partitions without a connection to their leader. Needs _lock."""
        return self._leaders.unread(self._entries)

    def find_unread(self) -> list[int]:
        """Return the partitions without a connection to their leader."""
        with self._lock:
            return self.unread_partitions()

    def on_lookup_failed(self, error: DiscoveryError) -> None:
        """Note why, and report it."""
        self.last_failure = error
        self._owner.on_error(error)

    def on_topic_unknown(self, reason: NSQError) -> None:
        """Note why there is no connection."""
        self.last_failure = reason

    def _forget_old(self, now: float) -> None:
        """Drop lost nsqds that no nsqlookupd has named for long. Needs _lock.

        One whose connection lives is never dropped: it may still have messages for us.
        """
        limit = now - _FORGET_AFTER
        for place in list(self._lost):
            entry = self._entries[place]
            # While it is being dialed it has a connection that stop() must find.
            if entry.listed_at < limit and entry.sub is None:
                self._log.forgotten(str(place))
                self._lost.discard(place)
                self._forget(place)

    def _forget(self, place: Endpoint) -> None:
        """Needs _lock."""
        del self._entries[place]
        self._dials.discard(place)

    def on_lookup(self, lookupd: str, found: LookupResult) -> None:
        """Dial what was named for the first time, and drop what is gone."""
        with self._lock:
            if self._stopped:
                return
            self._table.on_answer(lookupd, found.routes, found.lookupds)
            self._ask_new_lookupds(lookupd, found)
            places = [Endpoint(address) for address in found.routes.plain]
            named = frozenset(places).union(
                Endpoint(nsqd, partition) for partition, nsqd in found.routes.partitions.items()
            )
            gone: list[Subscription] = []
            self._lookups.note_late()
            merged = self._table.merged()
            if merged.is_partitioned:
                leaders, gone = self._follow(merged)
                places += leaders
            self._drop(self._name(lookupd, named))
            before, self.incompatibility = self.incompatibility, self._leaders.incompatibility()
            if self.incompatibility is None:
                self._want(lookupd, places, merged)
            self._lookups.on_answer()
            news = self.incompatibility if str(self.incompatibility) != str(before) else None
            count = 0 if self.incompatibility is not None else merged.usable_partitions
            is_new_count = count not in (0, self._partition_count)
            if is_new_count:
                self._partition_count = count
        if is_new_count:
            self._owner.on_partitions(count)  # before they share max_in_flight
        self._lookups.dispatch()
        self._dials.dispatch()
        for sub in gone:
            sub.conn.close("its partition is not there any more")
        self._report_incompatibility(news)

    def _follow(self, merged: TopicRoutes) -> tuple[list[Endpoint], list[Subscription]]:
        """As PartitionLeaders.follow, and forget what it has dropped. Needs _lock."""
        before = [place for place in self._entries if place.partition is not None]
        found = self._leaders.follow(merged, self._entries, self._lost)
        for place in before:
            if place not in self._entries:
                self._dials.discard(place)
        return found

    def _name(self, lookupd: str, named: frozenset[Endpoint]) -> set[Endpoint]:
        """Note what an answer names; return what was named before and may be no longer.

        Needs _lock.
        """
        dropped = set(self._named.get(lookupd, ())) - named
        self._named[lookupd] = named
        for forgotten in set(self._named).difference(self._table.addresses):
            dropped |= self._named.pop(forgotten)
        return dropped

    def _drop(self, places: Iterable[Endpoint]) -> None:
        """Some nsqlookupd names these no longer. Needs _lock."""
        for place in places:
            entry = self._entries.get(place)
            if entry is None or entry.direct:
                continue
            sources = self._sources(place, entry)
            if sources:
                self._dials.set_sources(place, sources)
                continue
            self._dials.discard(place)
            # While it is being dialed it has a connection that stop() must find; what worked is
            # remembered for _FORGET_AFTER.
            if entry.sub is None and place not in self._lost:
                self._forget(place)

    def _report_incompatibility(self, news: PartitionError | None) -> None:
        """Say once why the topic cannot be consumed in this way."""
        if news is not None:
            self.last_failure = news
            self._log.error("cannot be consumed: %s", news)
            self._owner.on_error(news)

    def _ask_new_lookupds(self, lookupd: str, found: LookupResult) -> None:
        """Ask the nsqlookupds that were named for the first time. Needs _lock."""
        named = self._leaders.new_lookupds(address for address, _ in found.lookupds)
        self._seeds.update((address, self._seeds[lookupd]) for address in named)
        self._lookups.ask(named)

    def _want(self, lookupd: str, places: list[Endpoint], merged: TopicRoutes) -> None:
        """Have dialed what was named and is due. Needs _lock."""
        now = time.monotonic()
        extended = self._leaders.is_extended(merged)
        for place in places:
            entry = self._entries.get(place)
            if entry is None:
                self._log.discovered(str(place), lookupd)
                entry = self._entries[place] = NsqdEntry(direct=False)
            entry.listed_at = now
            if entry.sub is not None:
                continue
            if place in self._dials:
                self._dials.set_sources(place, self._sources(place, entry, lookupd))
                continue
            if place.partition is not None and not entry.has_toggled_extend:
                entry.extended = extended
            self._put(place, entry, lookupd=lookupd)
