"""``Membership``: which nsqds a consumer is connected to, and how it gets back to lost ones.

Addresses come from two sources: given by the user, or listed by a nsqlookupd. Of a partitioned
topic there is a connection for each partition, to its leader. The timer only hands over; dialing
happens on the threads of a ``DialScheduler``, asking on chore threads.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from nsqclient.config import Config
from nsqclient.connection import InterruptedSendError
from nsqclient.discovery import Found, config_for, find_routes
from nsqclient.errors import (
    ConnectError,
    DiscoveryError,
    NSQError,
    PartitionError,
)
from nsqclient.flow.delays import lookup_delay, reconnect_delay
from nsqclient.partitions.routes import Place, TopicRoutes
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dial_queue import DIRECT, standing_of
from nsqclient.runtime.dial_scheduler import MAX_DIALS, DialScheduler
from nsqclient.runtime.threads import LibraryThread, ThreadStartError
from nsqclient.runtime.timer import Timer, TimerTask
from nsqclient.runtime.transport import parse_address
from nsqclient.consuming.leadership import Known, Leadership
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.subscription import Subscription

#: Seconds for the whole dialogue before the first RDY; a deaf nsqd must not hold a thread long.
HANDSHAKE_TIMEOUT = 5.0
#: A connection that lived shorter than this many seconds counts as a failed dial: an nsqd that
#: accepts us and drops us at once must not be dialed in a loop.
_SHORT_LIFE = 1.0
#: How far such failures slow the lookups down: as after so many rounds, 2 s.
_SHORT_LIFE_ROUNDS = 3
#: Seconds for which a new address has a share of max_in_flight kept free for it.
_EXPECTED_TIME = 1.0


class MembershipOwner(Protocol):
    """What a Membership needs of its consumer. Called from the threads that dial and ask."""

    def make_subscription(self, address: str) -> Subscription:
        """Build a Subscription that is not open yet."""
        ...

    def on_connected(self, sub: Subscription, expected: int) -> None:
        """The Subscription is open; give it RDY and start it. ``expected`` others are to come."""
        ...

    def survives_failed_dial(self, error: NSQError) -> bool:
        """Tell whether a dial that failed so is certain not to end the consumer."""
        ...

    def on_error(self, error: NSQError) -> None:
        """A dial or a lookup failed; it is tried again."""
        ...


class Membership:
    """Keeps a consumer connected.

    Each nsqlookupd that the user gave, and the nsqds that the user gave, may use an equal part of
    the ``max_dials`` dials under way at once. A nsqlookupd that another one listed uses the part of
    that one.

    Life: ``start()``, then ``stop()`` and ``join_dials()``; not restarted. Threads: any; nothing
    here blocks, save ``join_dials()``, and what runs on chore threads and on those that dial.
    """

    def __init__(
        self,
        topic: str,
        nsqds: Iterable[str],
        lookupds: Iterable[str],
        config: Config,
        timer: Timer,
        run_chore: Callable[[Callable[[], None]], None],
        owner: MembershipOwner,
        discovery_filter: Callable[[list[str]], Iterable[str]] | None = None,
        on_expected: Callable[[int], None] = lambda count: None,
        log: LifeLog | None = None,
        *,
        ordered: bool = False,
        make_partition: Callable[[Place, bool], Subscription] | None = None,
        max_dials: int = MAX_DIALS,
        make_thread: Callable[[Callable[[], None], str], LibraryThread] = LibraryThread,
    ) -> None:
        self._log = LifeLog(topic) if log is None else log
        self._filter = discovery_filter
        self._on_expected = on_expected
        self._topic = topic
        self._make_partition = make_partition
        self._config = config
        self._timer = timer
        self._run_chore = run_chore
        self._owner = owner
        self._rng = random.Random()
        self._lock = threading.Lock()
        self._known = {Place(nsqd): Known(direct=True) for nsqd in nsqds}  # by _lock, as below
        self._configured = list(lookupds)
        self._leadership = Leadership(
            topic, self._configured, ordered=ordered, may_have_partitions=make_partition is not None
        )
        self._table = self._leadership.table
        #: nsqlookupd -> the given one that it is known through; by _lock, as below
        self._seeds = {lookupd: lookupd for lookupd in self._table.addresses}
        #: nsqlookupd -> what its last answer named.
        self._named: dict[str, frozenset[Place]] = {}
        self._dials: DialScheduler[Place] = DialScheduler(
            ([DIRECT] if self._known else []) + list(self._seeds), self, timer.schedule,
            limit=max_dials, make_thread=make_thread,
        )
        #: Those whose first dial has not ended yet, for _EXPECTED_TIME.
        self._expected: set[Place] = set(self._known)
        self._stops_expecting = False  # a timer task will see to that
        #: Why this topic cannot be consumed in this way; dialing it would not help.
        self.unfit: PartitionError | None = None
        #: The last reason for a missing connection; None while nothing has failed.
        self.last_failure: NSQError | None = None
        self._asking: set[str] = set()  # lookupds with a request under way
        self._ignorant: set[str] = set()  # lookupds that have not known the topic
        self._is_unknown_told = False
        self._lost: set[Place] = set()  # discovered ones that were connected and are not now
        self._hurry = 0  # rounds since the last loss
        #: Rounds in a row that began before any listed nsqd had been connected.
        self._unconnected_rounds = 0
        self._next_round: TimerTask | None = None
        self._stopped = False

    def start(self) -> None:
        """Dial what was given, and ask every nsqlookupd at once."""
        self._count_expected()
        with self._lock:
            for place, known in self._known.items():
                self._put(place, known)
        self._dials.dispatch()
        self._limit_expecting()
        if self._table.addresses:
            self._round()

    def stop(self) -> list[Subscription]:
        """Dial and ask no more; return the subscriptions that are open or being opened."""
        with self._lock:
            self._stopped = True
            self._dials.close()
            return [known.sub for known in self._known.values() if known.sub is not None]

    def join_dials(self, deadline: Deadline) -> list[str]:
        """Wait for the dials under way; return the names of threads that stay. After ``stop()``."""
        return self._dials.join(deadline)

    def is_dialer(self) -> bool:
        """Tell whether the calling thread is one that dials."""
        return self._dials.is_dialer()

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back; no lock, its owner may be gone."""
        for known in list(self._known.values()):
            if known.sub is not None:
                known.sub.conn.abandon()

    def subscriptions(self) -> list[Subscription]:
        """Those that are open or being opened."""
        with self._lock:
            return [known.sub for known in self._known.values() if known.sub is not None]

    def lost(self, sub: Subscription, error: NSQError | None = None) -> None:
        """A connection ended: see to it that it comes back."""
        self.last_failure = error
        with self._lock:
            known = self._known.get(sub.place)
            if known is None or known.sub is not sub:
                return
            known.sub = None
            if self._stopped:
                return
            had_worked = (
                time.monotonic() - known.opened_at >= _SHORT_LIFE
                or isinstance(error, InterruptedSendError)  # by a signal handler of ours
            )
            known.failures = 0 if had_worked else known.failures + 1
            if known.direct:
                self._put_later(sub.place, known)
            else:
                self._lost.add(sub.place)
                # Not at once, but within 2 s: it may just have been restarted several times.
                self._hurry = 0 if had_worked else min(known.failures, _SHORT_LIFE_ROUNDS)
                if not had_worked:
                    self._schedule_round()
        if known.direct:
            self._dials.dispatch()
        elif had_worked:
            self._round()

    # -- dialing

    def _put(
        self, place: Place, known: Known, retry_at: float = 0.0, lookupd: str = ""
    ) -> None:
        """Have it dialed; dispatch() comes next. Needs _lock."""
        standing = standing_of(known.has_worked, known.failures)
        self._dials.put(place, self._sources(place, known, lookupd), standing, retry_at)

    def _put_later(self, place: Place, known: Known) -> None:
        """Have it dialed when it has rested; dispatch() comes next. Needs _lock."""
        delay = reconnect_delay(known.failures, self._config.max_reconnect_delay, self._rng)
        self._put(place, known, time.monotonic() + delay)

    def _sources(self, place: Place, known: Known, lookupd: str = "") -> set[str]:
        """Who named it; ``lookupd`` where nobody else does. Needs _lock."""
        sources = {self._seeds[one] for one, named in self._named.items() if place in named}
        if known.direct:
            sources.add(DIRECT)
        if not sources and lookupd:
            sources.add(self._seeds[lookupd])
        return sources

    def _limit_expecting(self) -> None:
        """See to it that new addresses do not keep their shares free for long."""
        with self._lock:
            if self._expected and not self._stops_expecting and not self._stopped:
                self._stops_expecting = True
                self._timer.schedule(_EXPECTED_TIME, self._expect_no_more)

    def _expect_no_more(self) -> None:
        """Addresses that do not answer would keep shares from those that are connected."""
        with self._lock:
            self._stops_expecting = False
            self._expected.clear()
        self._count_expected()

    def _count_expected(self) -> None:
        """Say how many connections are about to come: those that are there leave them a share."""
        told = None
        while True:
            with self._lock:
                count = len(self._expected)
            # Dials run side by side, and the last to tell must be the one who tells the truth.
            if count == told:
                return
            self._on_expected(count)
            told = count

    def dial(self, place: Place) -> None:
        """For the DialScheduler: connect, or note that it failed."""
        with self._lock:
            was_expected = place in self._expected
        try:
            self._open(place)
        finally:
            if was_expected:
                with self._lock:
                    self._expected.discard(place)
                self._count_expected()

    def on_no_thread(self, place: Place, error: ThreadStartError) -> None:
        """For the DialScheduler: the system has no thread left."""
        with self._lock:
            known = self._known.get(place)
        if known is not None:
            reason = ConnectError(place.address, f"no thread to dial it: {error}")
            self._on_dial_failed(place, known, reason)

    def _make(self, place: Place, known: Known) -> Subscription:
        if place.partition is None or self._make_partition is None:
            return self._owner.make_subscription(place.address)
        return self._make_partition(place, known.extended)

    def _open(self, place: Place) -> None:
        with self._lock:
            known = self._known.get(place)
            if self._stopped or known is None or known.sub is not None:
                return
            sub = known.sub = self._make(place, known)
        try:
            sub.open(Deadline(HANDSHAKE_TIMEOUT))
        except NSQError as exc:
            self._on_dial_failed(place, known, exc)
            return
        except Exception as exc:  # else the address would count as connected for ever
            self._log.exception("%s: the dial failed in an unforeseen way", place)
            self._on_dial_failed(place, known, ConnectError(place.address, repr(exc)))
            return
        with self._lock:
            known.opened_at = time.monotonic()
            known.has_worked = True
            self._expected.discard(place)  # before it gets its share, or it would leave one free
            expected = len(self._expected)
            self._lost.discard(place)
            known.has_flipped = False
            moved = self._leadership.take_over(place, self._known, self._lost)
            if self._unconnected_rounds and not known.direct and not self._stopped:
                self._unconnected_rounds = 0
                self._schedule_round()  # no need to ask again so soon
        self._log.connected(str(place))
        try:
            self._owner.on_connected(sub, expected)
        except Exception:  # the system has no more threads, for example
            self._log.exception("%s: connected, but cannot be used", place)
            sub.conn.close()
        for old in moved:
            old.conn.close("another nsqd leads the partition now")

    def _on_dial_failed(self, place: Place, known: Known, error: NSQError) -> None:
        news, is_final, is_flipped = None, False, False
        with self._lock:
            known.sub = None
            if self._stopped or self._known.get(place) is not known:
                return
            known.failures += 1
            if known.direct:
                self._put_later(place, known)
            elif self._leadership.flip(known, error):
                is_flipped = True
                self._put(place, known)
            elif not self._leadership.may_dial_again(place, error):
                before, self.unfit = self.unfit, self._leadership.why_unfit()
                news = self.unfit if before is None else None
                is_final = True
            elif place not in self._lost and self._sources(place, known):
                self._put_later(place, known)
            elif place not in self._lost:  # nobody names it any more
                self._forget(place)
        self._dials.dispatch()
        if is_flipped:
            return
        if is_final:
            self._tell_unfit(news)
            return
        self.last_failure = error
        self._log.cannot_connect(
            str(place), error, is_repeated=self._owner.survives_failed_dial(error))
        self._owner.on_error(error)

    # -- discovery

    def _round(self) -> None:
        """Ask every nsqlookupd that is not being asked, and schedule the next round."""
        with self._lock:
            if self._stopped:
                return
            self._forget_old(time.monotonic())
            if self._lost:
                self._hurry += 1
            is_connected = self._has_connected()
            self._unconnected_rounds = 0 if is_connected else self._unconnected_rounds + 1
            self._schedule_round()
            ask = [one for one in self._table.begin_round() if one not in self._asking]
            self._asking.update(ask)
        for address in ask:
            self._run_chore(self._asker(address))

    def _forget_old(self, now: float) -> None:
        """Drop lost nsqds that no nsqlookupd has named for long. Needs _lock.

        One whose connection lives is never dropped: it may still have messages for us.
        """
        limit = now - self._config.lookupd_forget_after
        for place in list(self._lost):
            known = self._known[place]
            # One that is being dialed has a connection that stop() must find.
            if known.listed_at < limit and known.sub is None:
                self._log.forgotten(str(place))
                self._lost.discard(place)
                self._forget(place)

    def _forget(self, place: Place) -> None:
        """Needs _lock."""
        del self._known[place]
        self._expected.discard(place)
        self._dials.discard(place)

    def _has_connected(self) -> bool:
        """Tell whether any nsqd that a nsqlookupd listed is or has been connected. Needs _lock.

        To be listed is not enough: the registration of a dead nsqd may be old, and the first
        publish makes another nsqd known.
        """
        return any(known.has_worked and not known.direct for known in self._known.values())

    def _schedule_round(self) -> None:
        """Needs _lock."""
        if self._next_round is not None:
            self._next_round.cancel()
        config = self._config
        delay = lookup_delay(
            self._unconnected_rounds, config.lookupd_poll_interval, config.lookupd_poll_jitter,
            self._rng,
        )
        if self._lost:
            # Soon again, then less and less often, until all that were lost are back.
            delay = reconnect_delay(self._hurry, delay, self._rng)
        self._next_round = self._timer.schedule(delay, self._round)

    def _asker(self, lookupd: str) -> Callable[[], None]:
        return lambda: self._ask(lookupd)

    def _ask(self, lookupd: str) -> None:
        try:
            config = config_for(lookupd, self._configured, self._config)
            found = find_routes(lookupd, self._topic, "r", config)
        except DiscoveryError as exc:
            with self._lock:
                self._table.on_failure(lookupd)
            self.last_failure = exc
            self._log.lookup_failed(exc)
            self._owner.on_error(exc)
            return
        finally:
            with self._lock:
                self._asking.discard(lookupd)
        routes = found.routes
        self._note_answer(lookupd, is_empty=not (routes.plain or routes.partitions))
        filtered = self._filtered(routes)
        if filtered is not None:
            self._on_answer(lookupd, found._replace(routes=filtered))

    def _note_answer(self, lookupd: str, is_empty: bool) -> None:
        """Tell once when all nsqlookupds have answered and none knows the topic."""
        with self._lock:
            if is_empty:
                self._ignorant.add(lookupd)
            else:
                self._is_unknown_told = True  # it is known, and a silence later means less
            everybody = self._ignorant.issuperset(self._table.addresses)
            is_unknown = everybody and not self._known
            tell = not self._is_unknown_told and is_unknown
            self._is_unknown_told = self._is_unknown_told or tell
        if is_unknown:
            self.last_failure = NSQError(f"no nsqlookupd knows the topic {self._topic}")
        if tell:
            self._log.topic_unknown(self._config.lookupd_poll_interval)

    def _filtered(self, routes: TopicRoutes) -> TopicRoutes | None:
        """Leave to the user which nsqds are used; None when that failed."""
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
        return dataclasses.replace(routes, plain=plain, partitions=leaders)

    def _on_answer(self, lookupd: str, found: Found) -> None:
        with self._lock:
            if self._stopped:
                return
            self._table.on_answer(lookupd, found.routes, found.lookupds)
            asks = self._new_lookupds(lookupd, found)
            places = [Place(address) for address in found.routes.plain]
            named = frozenset(places).union(
                Place(nsqd, partition) for partition, nsqd in found.routes.partitions.items()
            )
            gone: list[Subscription] = []
            merged = self._table.merged()
            if merged.is_partitioned:
                leaders, gone = self._follow(merged)
                places += leaders
            self._drop(self._name(lookupd, named))
            unfit, self.unfit = self.unfit, self._leadership.why_unfit()
            if self.unfit is None:
                self._want(lookupd, places, merged)
            news = self.unfit if str(self.unfit) != str(unfit) else None
        self._count_expected()
        for ask in asks:
            self._run_chore(ask)
        self._dials.dispatch()
        self._limit_expecting()
        for sub in gone:
            sub.conn.close("its partition is not there any more")
        self._tell_unfit(news)

    def _follow(self, merged: TopicRoutes) -> tuple[list[Place], list[Subscription]]:
        """As Leadership.follow, and forget what it has dropped. Needs _lock."""
        before = [place for place in self._known if place.partition is not None]
        found = self._leadership.follow(merged, self._known, self._lost)
        for place in before:
            if place not in self._known:
                self._expected.discard(place)
                self._dials.discard(place)
        return found

    def _name(self, lookupd: str, named: frozenset[Place]) -> set[Place]:
        """Note what an answer names; return what was named before and may be no longer.

        Needs _lock.
        """
        dropped = set(self._named.get(lookupd, ())) - named
        self._named[lookupd] = named
        for forgotten in set(self._named).difference(self._table.addresses):
            dropped |= self._named.pop(forgotten)
        return dropped

    def _drop(self, places: Iterable[Place]) -> None:
        """Some nsqlookupd names these no longer. Needs _lock."""
        for place in places:
            known = self._known.get(place)
            if known is None or known.direct:
                continue
            sources = self._sources(place, known)
            if sources:
                self._dials.set_sources(place, sources)
                continue
            self._dials.discard(place)
            # One that is being dialed has a connection that stop() must find; one that worked is
            # remembered for lookupd_forget_after.
            if known.sub is None and place not in self._lost:
                self._forget(place)

    def _tell_unfit(self, news: PartitionError | None) -> None:
        """Say once why the topic cannot be consumed in this way."""
        if news is not None:
            self.last_failure = news
            self._log.error("cannot be consumed: %s", news)
            self._owner.on_error(news)

    def _new_lookupds(self, lookupd: str, found: Found) -> list[Callable[[], None]]:
        """Ask at once those that were named for the first time. Needs _lock."""
        named = self._leadership.take_new(address for address, _ in found.lookupds)
        self._seeds.update((address, self._seeds[lookupd]) for address in named)
        asks = [address for address in named if address not in self._asking]
        self._asking.update(asks)
        return [self._asker(address) for address in asks]

    def _want(self, lookupd: str, places: list[Place], merged: TopicRoutes) -> None:
        """Have dialed what was named and is due. Needs _lock."""
        now = time.monotonic()
        extended = merged.meta is not None and merged.meta.extended
        for place in places:
            known = self._known.get(place)
            if known is None:
                self._log.discovered(str(place), lookupd)
                known = self._known[place] = Known(direct=False)
                self._expected.add(place)
            known.listed_at = now
            if known.sub is not None:
                continue
            if place in self._dials:
                self._dials.set_sources(place, self._sources(place, known, lookupd))
                continue
            if place.partition is not None and not known.has_flipped:
                known.extended = extended
            self._put(place, known, lookupd=lookupd)
