"""``ConnectionManager``: which nsqds a consumer is connected to, and how it gets back to lost ones.

Addresses come from two sources: given by the user, or listed by an nsqlookupd. Of a partitioned
topic there is a connection for each partition, to its leader. Dialing happens on the threads of a
``DialScheduler``, lookups on background threads. Source: client guide, "Discovery".
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple, Protocol

from nsqclient.connection.connection import InterruptedSendError
from nsqclient.consumer.context import ConsumerContext
from nsqclient.display import without_password
from nsqclient.log_records import log_fields
from nsqclient.partitioned.consumer.leaders import (
    NsqdEntry, PartitionLeaders, PartitionTarget, Redial, show_partitions,
)
from nsqclient.partitioned.consumer.options import PartitionOptions
from nsqclient.consumer.subscription import Subscription
from nsqclient.discovery import (
    LATE_AFTER, LookupResult, Poller, config_for, lookup_topic,
)
from nsqclient.errors import (
    ConnectError,
    DiscoveryError,
    NSQError,
    PartitionError,
    ServerError,
)
from nsqclient.hints import with_hint
from nsqclient.protocol.partitioned.lookup_table import TopicRoutes
from nsqclient.protocol.partitioned.retry_policy import LEADER_CODES
from nsqclient.protocol.extensions import Endpoint
from nsqclient.runtime.addresses import parse_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import MAX_LEADER_WAIT, leader_wait, lookup_delay, reconnect_delay
from nsqclient.runtime.dialing import DIRECT, MAX_DIALS, DialScheduler, standing_of
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.timer import TimerTask

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
    lookupds: Sequence[str] = ()  #: HTTP addresses
    #: Called with the addresses from one nsqlookupd; returns those to use.
    discovery_filter: Callable[[list[str]], Iterable[str]] | None = None
    #: Called before each subscription with an address, and whether it is that of a partition;
    #: raises an NSQError where this nsqd may not be subscribed to. May block.
    check_nsqd: Callable[[str, bool], None] | None = None
    #: HTTP addresses of nsqds, in any order, for questions about the depth.
    nsqd_http: Sequence[str] = ()

    def choose(self, routes: TopicRoutes, partitions: Container[int] | None) -> TopicRoutes:
        """Return what the user chooses of an answer; raises what the user's function raises."""
        routes = routes.only(partitions)
        if self.discovery_filter is None:
            return routes
        named = list(dict.fromkeys([*routes.plain, *routes.partitions.values()]))
        addresses = list(self.discovery_filter(named))
        for address in addresses:
            parse_address(address, "an address that discovery_filter returned")
        leaders = {
            partition: nsqd for partition, nsqd in routes.partitions.items() if nsqd in addresses
        }
        led = set(routes.partitions.values())
        return dataclasses.replace(
            routes, plain=tuple(address for address in addresses if address not in led),
            partitions=leaders,
            excluded=routes.excluded.union(set(routes.partitions).difference(leaders)),
        )


class ConnectionsOwner(Protocol):
    """What a ConnectionManager reports to. Called from the threads that dial and ask."""

    def make_subscription(self, target: PartitionTarget) -> Subscription:
        """Build a Subscription that is not open yet, to a partition where the place has one."""
        ...

    def on_connected(self, sub: Subscription) -> None:
        """The Subscription is open; give it RDY and start it."""
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

    Life: ``start()``, then ``stop()``; not restarted. Threads: any; nothing here blocks, save what
    runs on background threads and on those that dial.
    """

    def __init__(
        self,
        context: ConsumerContext,
        sources: NsqdSources,
        owner: ConnectionsOwner,
        *,
        options: PartitionOptions = PartitionOptions(),
        max_dials: int = MAX_DIALS,
    ) -> None:
        self._topic = context.topic
        self._config = context.config
        self._timer = context.timer
        self._log = context.log
        self._sources = sources
        self._partitions = options.partitions
        self._owner = owner
        # An nsqlookupd decides how many addresses there are.
        self._discoveries = LineLimit(self._log)
        self.failed_dials: LineLimit = LineLimit(self._log)
        self._rng = random.Random()
        self._lock = Lock()
        # Guarded by _lock, as all below.
        self._entries = {Endpoint(nsqd): NsqdEntry(direct=True) for nsqd in sources.nsqds}
        self._leaders = PartitionLeaders(context.topic, sources.lookupds, options)
        self._table = self._leaders.table
        #: nsqlookupd that was ever named -> the given one through which it is known
        self._seeds = {lookupd: lookupd for lookupd in self._table.addresses}
        #: Closed by ``stop()``, and then to be joined.
        self.dials: DialScheduler[Endpoint] = DialScheduler(
            ([DIRECT] if self._entries else []) + list(self._seeds), self._dial,
            self._timer.schedule, limit=max_dials,
        )
        #: Why this topic cannot be consumed in this way; dialing it would not help.
        self.incompatibility: PartitionError | None = None
        #: The last reason for a missing connection; None while nothing has failed.
        self.last_failure: NSQError | None = None
        self._stopped = False
        self._partition_count = 0  # that was reported
        self._poller: Poller[LookupResult] = Poller(
            lambda lookupd: lookup_topic(
                lookupd, context.topic, "r", config_for(lookupd, sources.lookupds, self._config)),
            lambda lookupd, task: context.run_in_background(task), self._lock,
            self._merge, self._report)
        self._without_topic: set[str] = set()  # nsqlookupds that did not know the topic
        self._is_unknown_logged = False
        self._retry_round = 0  # rounds since the last loss
        #: Rounds in a row that began before any listed nsqd had been connected.
        self._unconnected_rounds = 0
        self._next_round: TimerTask | None = None
        self._next_round_at = 0.0  # on time.monotonic()

    def start(self) -> None:
        """Dial what was given, and ask every nsqlookupd at once."""
        with self._lock:
            for place, entry in self._entries.items():
                self._put(place, entry)
        self.dials.dispatch()
        if self._table.addresses:
            self.poll()

    def stop(self) -> list[Subscription]:
        """Dial and ask no more; return the subscriptions that are open or being opened."""
        with self._lock:
            self._stopped = True
            self.dials.close()
        return self.subscriptions()

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back; no lock, its owner may be gone."""
        for entry in list(self._entries.values()):
            if entry.sub is not None:
                entry.sub.abandon()

    def subscriptions(self) -> list[Subscription]:
        """Those that are open or being opened."""
        with self._lock:
            return list(
                entry.sub for entry in self._entries.values() if entry.sub is not None)

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

    def has_untried(self) -> bool:
        """Return whether some nsqd was neither connected nor refused a connection yet."""
        with self._lock:
            return any([not (entry.has_worked or entry.failures)
                        for entry in self._entries.values()])

    def unread_partitions(self) -> list[int]:
        """Return the partitions without a connection to their leader."""
        with self._lock:
            return self._leaders.unread(self._entries)

    def look_for(self, listed: Iterable[str]) -> None:
        """Begin a round of lookups, if nsqlookupds list nsqds that are not known here yet."""
        with self._lock:
            known = {place.address for place in self._entries}
        if not known.issuperset(listed):
            self.poll()

    def http_address(self, sub: Subscription) -> str:
        """Return the HTTP address of an nsqd as nsqlookupds list it; empty if they do not."""
        with self._lock:
            return self._table.merged().http_addresses.get(sub.address, "")

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
                # Not at once, but within 2 s: it may just have been restarted several times.
                self._retry_round = 0 if had_worked else min(entry.failures, _SHORT_LIFE_ROUNDS)
                if not had_worked:
                    self._schedule_round()
        if entry.direct:
            self.dials.dispatch()
        elif had_worked:
            self.poll()

    # -- dialing

    def _put(
        self, place: Endpoint, entry: NsqdEntry, retry_at: float = 0.0, lookupd: str = ""
    ) -> None:
        """Have it dialed; dispatch() comes next. Needs _lock."""
        standing = standing_of(entry.has_worked, entry.failures)
        self.dials.put(place, self._named_by(place, entry, lookupd), standing, retry_at)

    def _put_later(self, place: Endpoint, entry: NsqdEntry) -> None:
        """Have it dialed when it has rested; dispatch() comes next. Needs _lock."""
        delay = reconnect_delay(entry.failures, self._config.max_reconnect_delay, self._rng)
        if place.partition is not None:  # it may lead the partition any time
            delay = min(delay, leader_wait(self._rng))
        self._put(place, entry, time.monotonic() + delay)

    def _named_by(self, place: Endpoint, entry: NsqdEntry, lookupd: str = "") -> set[str]:
        """The sources that named it; ``lookupd`` where there is no other. Needs _lock."""
        sources = {self._seeds[one] for one in self._table.naming(place)}
        if entry.direct:
            sources.add(DIRECT)
        if not sources and lookupd:
            sources.add(self._seeds[lookupd])
        return sources

    def _dial(self, place: Endpoint) -> None:
        """Connect, or note that it failed. On a dialing thread."""
        with self._lock:
            entry = self._entries.get(place)
            if self._stopped or entry is None or entry.sub is not None:
                return
            sub = entry.sub = self._owner.make_subscription(self._leaders.target(place, entry))
            sub.has_address_only = entry.direct
        try:
            if self._sources.check_nsqd is not None:
                self._sources.check_nsqd(place.address, place.partition is not None)
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
            entry.has_toggled_extend = entry.has_followed_order = False
            moved = self._forget(self._leaders.take_over(place, self._entries))
            if self._unconnected_rounds and not entry.direct and not self._stopped:
                self._unconnected_rounds = 0  # no need to ask again so soon
                self._schedule_round()
        self._log.info("consuming from %s", place, extra=log_fields(nsqd=str(place)))
        try:
            self._owner.on_connected(sub)
        except Exception:  # the system has no more threads, for example
            self._log.exception("%s: unexpected error after the connection was made", place,
                                extra=log_fields(nsqd=place.address))
            sub.conn.close()
        for old in moved:
            old.conn.close("another nsqd leads the partition now")

    def _on_dial_failed(self, place: Endpoint, entry: NsqdEntry, error: NSQError) -> None:
        with self._lock:
            news, knew_order = None, self._leaders.must_order
            entry.sub = None
            if self._stopped or self._entries.get(place) is not entry:
                return
            entry.failures += 1
            if isinstance(error, PartitionError):
                self._leaders.refusal = self._leaders.refusal or error
                redial = Redial.NEVER
            else:
                redial = self._leaders.on_dial_failed(place, entry, error)
            if redial is Redial.NEVER:
                news = self._check_topic()
            elif redial is Redial.AT_ONCE:
                self._put(place, entry)
            elif entry.direct or not entry.is_lost and self._named_by(place, entry):
                self._put_later(place, entry)
            elif not entry.is_lost:  # no source names it any more
                self._forget([place])
            if isinstance(error, ServerError) and error.code in LEADER_CODES:
                self._want_other_leader(place)
            learned_order = self._leaders.must_order and not knew_order
        self.dials.dispatch()
        if redial is Redial.NEVER:
            self._report_incompatibility(news)
        elif redial is Redial.LATER:
            self.last_failure = error
            if not getattr(error, "is_repeated", False):
                self._log.log(
                    self.failed_dials.level(logging.WARNING),
                    "cannot consume from %s: %s", place, with_hint(error, str(place)),
                    extra=log_fields(nsqd=str(place)))
            self._owner.on_error(error)
        elif learned_order:
            self._log.info("the topic is ordered, as nsqd says: it is consumed in order")

    def _want_other_leader(self, refused: Endpoint) -> None:
        """Have the nsqd dialed that another nsqlookupd names for this partition. Needs _lock."""
        merged = self._table.merged()
        leader = merged.partitions.get(refused.partition or 0)
        if refused.partition is None or leader is None or leader == refused.address:
            return
        other = Endpoint(leader, refused.partition)
        for lookupd in self._table.naming(other):
            self._want(lookupd, [other], merged)

    # -- lookups

    def poll(self) -> None:
        """Ask every nsqlookupd that is not being asked, and schedule the next round."""
        with self._lock:
            if self._stopped:
                return
            self._forget_old(time.monotonic())
            # To be listed is not enough: the registration of a dead nsqd may be old, and the first
            # publish makes another nsqd known.
            is_connected = any(
                entry.has_worked and not entry.direct for entry in self._entries.values())
            self._unconnected_rounds = 0 if is_connected else self._unconnected_rounds + 1
            if self._has_lost():
                self._retry_round += 1
            self._schedule_round()
            unread = self._leaders.unread(self._entries)
            seconds = self._leaders.reminder.note(bool(unread), time.monotonic())
            self._poller.ask(self._table.begin_round())
        if seconds:
            self._log.warning(
                "no reader for %s for %.0f s: no nsqlookupd lists a leader, or the leader refuses;"
                " see the cluster", show_partitions(unread), seconds)
        elif seconds is not None:
            self._log.info("every partition has a reader again")

    def _has_lost(self) -> bool:
        """Needs _lock."""
        return any(entry.is_lost for entry in self._entries.values())

    def _schedule_round(self) -> None:
        """Schedule the next round, and cancel the one before. Needs _lock."""
        if self._next_round is not None:
            self._next_round.cancel()
        config = self._config
        delay = lookup_delay(
            self._unconnected_rounds, config.lookupd_poll_interval, config.lookupd_poll_jitter,
            self._rng,
        )
        if self._has_lost():
            # Soon again, then less and less often, until all that were lost are back.
            delay = reconnect_delay(self._retry_round, delay, self._rng)
        if self._leaders.unread(self._entries):
            delay = min(delay, leader_wait(self._rng))
        self._next_round_at = time.monotonic() + delay
        self._next_round = self._timer.schedule(delay, self.poll)

    def _merge(
        self, lookupd: str, answer: LookupResult | None, error: DiscoveryError | None
    ) -> list[str]:
        """Note a failure; an answer is merged when it is filtered. Needs _lock."""
        if answer is None:
            self._table.on_failure(lookupd)
        return []

    def _report(
        self, lookupd: str, answer: LookupResult | None, error: DiscoveryError | None
    ) -> None:
        """Act on an answer or a failure."""
        if answer is None:
            assert error is not None
            self._log.warning("no answer from %s", with_hint(error))
            self.last_failure = error
            self._owner.on_error(error)
            return
        self._note_whether_known(lookupd, answer.routes)
        try:
            routes = self._sources.choose(answer.routes, self._partitions)
        except BaseException:  # the user's code; the next round asks again
            self._log.exception("discovery_filter failed: this answer is not used")
            return
        self._on_lookup(lookupd, answer._replace(routes=routes))

    def _note_whether_known(self, lookupd: str, routes: TopicRoutes) -> None:
        """Log once when all nsqlookupds have answered and none knows the topic."""
        with self._lock:
            if not (routes.plain or routes.partitions):
                self._without_topic.add(lookupd)
            else:
                self._is_unknown_logged = True  # it is known, and a silence later means less
            has_all = self._without_topic.issuperset(self._table.addresses)
            if not has_all or self._entries:
                return
            was_logged, self._is_unknown_logged = self._is_unknown_logged, True
        self.last_failure = NSQError(f"no nsqlookupd lists the topic {self._topic}")
        if not was_logged:
            self._log.warning(
                "no nsqlookupd lists the topic %s yet: check its spelling, or publish to it or"
                " create it; retrying after 1, 2, 4 ... s, at most %g s",
                self._topic, self._config.lookupd_poll_interval)

    def _forget_old(self, now: float) -> None:
        """Drop lost nsqds that no nsqlookupd has named for long. Needs _lock.

        One whose connection lives is never dropped: it may still have messages for us.
        """
        limit = now - _FORGET_AFTER
        for place, entry in list(self._entries.items()):
            # While it is being dialed it has a connection that stop() must find.
            if entry.is_lost and entry.listed_at < limit and entry.sub is None:
                self._log.info("removed %s: no nsqlookupd lists it any more", place,
                               extra=log_fields(nsqd=str(place)))
                self._forget([place])

    def _forget(self, places: Iterable[Endpoint]) -> list[Subscription]:
        """Dial these no more; return their connections. Needs _lock."""
        subs = []
        for place in places:
            sub = self._entries.pop(place).sub
            self.dials.discard(place)
            if sub is not None:
                subs.append(sub)
        return subs

    def _on_lookup(self, lookupd: str, found: LookupResult) -> None:
        """Dial what was named for the first time, and drop what is gone."""
        with self._lock:
            if self._stopped:
                return
            self._table.on_answer(lookupd, found.routes, found.lookupds)
            new = list(address for address, _ in found.lookupds if address not in self._seeds)
            self._seeds.update(dict.fromkeys(new, self._seeds[lookupd]))
            self._poller.ask(new)
            places = [Endpoint(address) for address in found.routes.plain]
            gone: list[Subscription] = []
            for late in self._poller.late(LATE_AFTER):
                self._table.on_late(late)  # newer answers replace its last one
            merged = self._table.merged()
            if merged.is_partitioned:
                places += [Endpoint(nsqd, number) for number, nsqd in merged.partitions.items()]
                gone = self._forget(self._leaders.left_behind(merged, self._entries))
            self._follow_sources()
            news = self._check_topic()
            if self.incompatibility is None:
                self._want(lookupd, places, merged)
            is_late = self._next_round_at - time.monotonic() > MAX_LEADER_WAIT
            if is_late and self._leaders.unread(self._entries):
                self._schedule_round()
            count = 0 if self.incompatibility is not None else merged.usable_partitions
            is_new_count = count not in (0, self._partition_count)
            if is_new_count:
                self._partition_count = count
        if is_new_count:
            self._owner.on_partitions(count)  # before they share max_in_flight
        self.dials.dispatch()
        for sub in gone:
            sub.conn.close("its partition is not there any more")
        self._report_incompatibility(news)

    def _follow_sources(self) -> None:
        """Note what names each nsqd now, and drop what nothing names. Needs _lock."""
        for place, entry in list(self._entries.items()):
            sources = self._named_by(place, entry)
            if sources:
                self.dials.set_sources(place, sources)
                continue
            self.dials.discard(place)
            # While it is being dialed it has a connection that stop() must find; what worked is
            # remembered for _FORGET_AFTER.
            if entry.sub is None and not entry.is_lost:
                self._forget([place])

    def _check_topic(self) -> PartitionError | None:
        """Note why the topic cannot be consumed in this way; return it if it is new. Needs _lock.
        """
        before, self.incompatibility = self.incompatibility, self._leaders.incompatibility()
        return self.incompatibility if str(self.incompatibility) != str(before) else None

    def _report_incompatibility(self, news: PartitionError | None) -> None:
        if news is not None:
            self.last_failure = news
            self._log.error("cannot be consumed: %s", news)
            self._owner.on_error(news)

    def _want(self, lookupd: str, places: list[Endpoint], merged: TopicRoutes) -> None:
        """Have dialed what was named and is due. Needs _lock."""
        now = time.monotonic()
        extended = self._leaders.is_extended(merged)
        for place in places:
            entry = self._entries.get(place)
            if entry is None:
                self._log.log(
                    self._discoveries.level(logging.INFO), "nsqlookupd %s lists %s",
                    without_password(lookupd), place, extra=log_fields(nsqd=str(place)))
                entry = self._entries[place] = NsqdEntry(direct=False)
            entry.listed_at = now
            if entry.sub is not None or place in self.dials:
                continue
            if place.partition is not None and not entry.has_toggled_extend:
                entry.extended = extended
            self._put(place, entry, lookupd=lookupd)
