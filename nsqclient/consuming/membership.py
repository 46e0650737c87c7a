"""``Membership``: which nsqds a consumer is connected to, and how it gets back to lost ones.

Addresses come from two sources: given by the user, or listed by a nsqlookupd. Of a partitioned
topic there is a connection for each partition, to its leader. The timer only hands over; dialing
and asking happen on chore threads.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from nsqclient.config import Config
from nsqclient.discovery import Found, find_routes
from nsqclient.errors import (
    ConnectError,
    DiscoveryError,
    NSQError,
    PartitionError,
)
from nsqclient.flow.delays import lookup_delay, reconnect_delay
from nsqclient.partitions.routes import Place, TopicRoutes
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.timer import Timer, TimerTask
from nsqclient.runtime.transport import parse_address
from nsqclient.consuming.leadership import Known, Leadership
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.subscription import Subscription

logger = logging.getLogger("nsqclient.consumer")

#: Seconds for the whole dialogue before the first RDY; a deaf nsqd must not hold a thread long.
HANDSHAKE_TIMEOUT = 5.0
#: A connection that lived shorter than this many seconds counts as a failed dial: an nsqd that
#: accepts us and drops us at once must not be dialed in a loop.
_SHORT_LIFE = 1.0
#: How far such failures slow the lookups down: as after so many rounds, 2 s.
_SHORT_LIFE_ROUNDS = 3


class MembershipOwner(Protocol):
    """What a Membership needs of its consumer. Called from chore threads."""

    def make_subscription(self, address: str) -> Subscription:
        """Build a Subscription that is not open yet."""
        ...

    def on_connected(self, sub: Subscription, expected: int) -> None:
        """The Subscription is open; give it RDY and start it. ``expected`` others are to come."""
        ...

    def on_error(self, error: NSQError) -> None:
        """A dial or a lookup failed; it is tried again."""
        ...


class Membership:
    """Keeps a consumer connected.

    Life: ``start()``, then ``stop()``; not restarted. Threads: any; nothing here blocks, save
    what runs on chore threads.
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
        self._leadership = Leadership(
            topic, lookupds, ordered=ordered, may_have_partitions=make_partition is not None
        )
        self._table = self._leadership.table
        #: Why this topic cannot be consumed in this way; dialing it would not help.
        self.unfit: PartitionError | None = None
        #: The last reason for a missing connection; None while nothing has failed.
        self.last_failure: NSQError | None = None
        self._asking: set[str] = set()  # lookupds with a request under way
        self._ignorant: set[str] = set()  # lookupds that have not known the topic
        self._is_unknown_told = False
        self._lost: set[Place] = set()  # discovered ones that were connected and are not now
        self._hurry = 0  # rounds since the last loss
        self._unlisted_rounds = 0  # rounds in a row that began while no nsqd was listed
        self._next_round: TimerTask | None = None
        self._stopped = False

    def start(self) -> None:
        """Dial what was given, and ask every nsqlookupd at once."""
        self._count_expected()
        for place, known in list(self._known.items()):
            self._run_chore(self._dialer(place, known))
        if self._table.addresses:
            self._round()

    def stop(self) -> list[Subscription]:
        """Dial and ask no more; return the subscriptions that are open or being opened."""
        with self._lock:
            self._stopped = True
            return [known.sub for known in self._known.values() if known.sub is not None]

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
            had_worked = time.monotonic() - known.opened_at >= _SHORT_LIFE
            known.failures = 0 if had_worked else known.failures + 1
            if known.direct:
                self._schedule_dial(sub.place, known)
                return
            self._lost.add(sub.place)
            if not had_worked:
                # Not at once, but within 2 s: it may just have been restarted several times.
                self._hurry = min(known.failures, _SHORT_LIFE_ROUNDS)
                self._schedule_round()
                return
            self._hurry = 0
        self._round()

    # -- dialing

    def _schedule_dial(self, place: Place, known: Known) -> None:
        """Needs _lock."""
        delay = reconnect_delay(known.failures, self._config.max_reconnect_delay, self._rng)
        dial = self._dialer(place, known)
        known.redial = self._timer.schedule(delay, lambda: self._run_chore(dial))

    def _dialer(self, place: Place, known: Known) -> Callable[[], None]:
        return lambda: self._dial(place, known)

    def _count_expected(self) -> None:
        """Say how many connections are about to come: those that are there leave them a share."""
        told = None
        while True:
            with self._lock:
                count = self._expected()
            # Chores run side by side, and the last to tell must be the one who tells the truth.
            if count == told:
                return
            self._on_expected(count)
            told = count

    def _expected(self) -> int:
        """Needs _lock."""
        return sum(known.is_expected for known in self._known.values())

    def _dial(self, place: Place, known: Known) -> None:
        was_expected = known.is_expected
        try:
            self._open(place, known)
        finally:
            if was_expected:
                known.is_expected = False
                self._count_expected()

    def _make(self, place: Place, known: Known) -> Subscription:
        if place.partition is None or self._make_partition is None:
            return self._owner.make_subscription(place.address)
        return self._make_partition(place, known.extended)

    def _open(self, place: Place, known: Known) -> None:
        with self._lock:
            if self._stopped or known.sub is not None:
                return
            sub = known.sub = self._make(place, known)
        try:
            sub.open(Deadline(HANDSHAKE_TIMEOUT))
        except NSQError as exc:
            self._on_dial_failed(place, known, exc)
            return
        except Exception as exc:  # else the address would count as connected for ever
            logger.exception("%s: the dial failed in an unforeseen way", place)
            self._on_dial_failed(place, known, ConnectError(place.address, repr(exc)))
            return
        with self._lock:
            known.opened_at = time.monotonic()
            known.is_expected = False  # before it gets its share, or it would leave one free
            expected = self._expected()
            self._lost.discard(place)
            known.has_flipped = False
            moved = self._leadership.take_over(place, self._known, self._lost)
        self._log.connected(str(place))
        try:
            self._owner.on_connected(sub, expected)
        except Exception:  # the system has no more threads, for example
            logger.exception("%s: connected, but cannot be used", place)
            sub.conn.close()
        for old in moved:
            old.conn.close("another nsqd leads the partition now")

    def _on_dial_failed(self, place: Place, known: Known, error: NSQError) -> None:
        flipped, news, is_final = None, None, False
        with self._lock:
            known.sub = None
            if self._stopped or self._known.get(place) is not known:
                return
            known.failures += 1
            if known.direct:
                self._schedule_dial(place, known)
            elif self._leadership.flip(known, error):
                flipped = self._dialer(place, known)
            elif not self._leadership.may_dial_again(place, error):
                before, self.unfit = self.unfit, self._leadership.why_unfit()
                news = self.unfit if before is None else None
                is_final = True
            elif place not in self._lost:
                self._lost.add(place)
                self._hurry = 1
                self._schedule_round()
        if flipped is not None:
            self._run_chore(flipped)
            return
        if is_final:
            self._tell_unfit(news)
            return
        self.last_failure = error
        self._log.cannot_connect(str(place), error)
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
            self._unlisted_rounds = self._unlisted_rounds + 1 if self._is_unlisted() else 0
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
                del self._known[place]

    def _is_unlisted(self) -> bool:
        """Tell whether no nsqlookupd has listed an nsqd that is still of use. Needs _lock."""
        return all(known.direct for known in self._known.values())

    def _schedule_round(self) -> None:
        """Needs _lock."""
        if self._next_round is not None:
            self._next_round.cancel()
        config = self._config
        delay = lookup_delay(
            self._unlisted_rounds, config.lookupd_poll_interval, config.lookupd_poll_jitter,
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
            found = find_routes(lookupd, self._topic, "r", self._config)
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
            logger.exception("discovery_filter failed: this answer is not used")
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
            asks = self._new_lookupds(found)
            places = [Place(address) for address in found.routes.plain]
            gone: list[Subscription] = []
            merged = self._table.merged()
            if merged.is_partitioned:
                leaders, gone = self._leadership.follow(merged, self._known, self._lost)
                places += leaders
            unfit, self.unfit = self.unfit, self._leadership.why_unfit()
            dials = [] if self.unfit is not None else self._want(lookupd, places, merged)
            news = self.unfit if str(self.unfit) != str(unfit) else None
            if self._unlisted_rounds and not self._is_unlisted():
                self._unlisted_rounds = 0
                self._schedule_round()  # no need to ask again so soon
        self._count_expected()
        for chore in asks + dials:
            self._run_chore(chore)
        for sub in gone:
            sub.conn.close("its partition is not there any more")
        self._tell_unfit(news)

    def _tell_unfit(self, news: PartitionError | None) -> None:
        """Say once why the topic cannot be consumed in this way."""
        if news is not None:
            self.last_failure = news
            logger.error("%s: %s", self._topic, news)
            self._owner.on_error(news)

    def _new_lookupds(self, found: Found) -> list[Callable[[], None]]:
        """Ask at once those that were named for the first time. Needs _lock."""
        named = self._leadership.take_new(address for address, _ in found.lookupds)
        asks = [address for address in named if address not in self._asking]
        self._asking.update(asks)
        return [self._asker(address) for address in asks]

    def _want(
        self, lookupd: str, places: list[Place], merged: TopicRoutes
    ) -> list[Callable[[], None]]:
        """Note what was named, and return the dials that are due. Needs _lock."""
        dials = []
        now = time.monotonic()
        extended = merged.meta is not None and merged.meta.extended
        for place in places:
            known = self._known.get(place)
            if known is None:
                self._log.discovered(str(place), lookupd)
                known = self._known[place] = Known(direct=False)
            known.listed_at = now
            if known.sub is None and not known.direct:
                if place.partition is not None and not known.has_flipped:
                    known.extended = extended
                dials.append(self._dialer(place, known))
        return dials
