"""``ConnectionManager``: keeps a consumer connected to its nsqds and reconnects lost ones.

Dialing happens on the threads of a ``DialScheduler``, lookups on background threads. Source: client
guide, "Discovery".
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nsqclient.config import Config
from nsqclient.connection.connection import InterruptedSendError
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.subscription import NsqdSubscription
from nsqclient.discovery import LookupResult, Poller, config_for, lookup_topic
from nsqclient.display import without_password
from nsqclient.errors import ConnectError, DiscoveryError, NSQError, with_hint
from nsqclient.log_records import log_fields
from nsqclient.protocol.events import Endpoint
from nsqclient.runtime.addresses import parse_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import lookup_delay, reconnect_delay
from nsqclient.runtime.dialing import DIRECT, MAX_DIALS, DialScheduler
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import LineLimit, PrefixedLogger
from nsqclient.runtime.timer import Timer, TimerTask

C = TypeVar("C")
S = TypeVar("S", bound=NsqdSubscription)

HANDSHAKE_TIMEOUT = 5.0
#: A connection that ends within this many seconds counts as a failed dial.
_SHORT_LIFE = 1.0
#: Failed rounds that one such failure counts as.
_SHORT_LIFE_ROUNDS = 3
#: Seconds after which a disconnected nsqd that no nsqlookupd lists is forgotten.
_FORGET_AFTER = 600.0


class NsqdSources(NamedTuple):
    """The user's choice of nsqds for a consumer: addresses, nsqlookupds and callbacks."""

    nsqds: Sequence[str]  #: TCP addresses
    lookupds: Sequence[str] = ()  #: HTTP addresses
    #: Called with the addresses from one nsqlookupd. Returns the addresses to use.
    discovery_filter: Callable[[list[str]], Iterable[str]] | None = None
    #: Raises an NSQError if this nsqd must not be subscribed to. May block.
    check_nsqd: Callable[[Endpoint], None] = lambda place: None
    #: HTTP addresses of nsqds, in any order, to query the channel depth.
    nsqd_http: Sequence[str] = ()

    def choose(self, nsqds: Iterable[str]) -> list[str]:
        nsqds = list(dict.fromkeys(nsqds))
        if self.discovery_filter is None:
            return nsqds
        addresses = list(self.discovery_filter(nsqds))
        for address in addresses:
            parse_address(address, "an address that discovery_filter returned")
        return addresses


@dataclass
class NsqdEntry:
    """One nsqd. Guarded by ConnectionManager's lock."""

    direct: bool  # the user gave its address
    has_worked: bool = False  # it took our subscription once
    sub: Any | None = None  # the subscription that is open, or being opened
    is_open: bool = False  # ``sub`` is subscribed
    opened_at: float = 0.0  # when ``sub`` was subscribed, on time.monotonic()
    failures: int = 0  # dials in a row that failed
    listed_at: float = 0.0  # when an nsqlookupd named it last, on time.monotonic()

    @property
    def is_lost(self) -> bool:
        """True if an nsqd found by lookup was connected once and is not connected now."""
        return self.has_worked and not self.is_open and not self.direct


class Redial(Enum):
    AT_ONCE = "at once"
    LATER = "later"
    NEVER = "never"  #: no dial can succeed


class ConnectionsOwner(Protocol[S]):
    """The interface that a ConnectionManager reports to. Called on dialing and lookup threads."""

    def make_subscription(self, place: Endpoint) -> S: ...

    def on_connected(self, sub: S) -> None:
        """Give RDY to the open Subscription and start it."""

    def on_error(self, error: NSQError) -> None: ...


def call_filter(log: PrefixedLogger, function: Callable[[], C]) -> C | None:
    try:
        return function()
    except BaseException:  # the next round asks again
        log.exception("discovery_filter failed: this answer is not used")
        return None


class LookupRounds:
    """Schedules rounds of lookups, and notes which nsqlookupds know the topic. Not thread-safe."""

    def __init__(
        self, config: Config, timer: Timer, rng: random.Random, poll: Callable[[], None]
    ) -> None:
        self._config = config
        self._timer = timer
        self._rng = rng
        self._poll = poll
        #: Consecutive rounds that began before any listed nsqd was connected.
        self.unconnected: int = 0
        #: Rounds since a connection was last lost.
        self.since_loss: int = 0
        self.next_at: float = 0.0
        self._next: TimerTask | None = None
        self._without_topic: set[str] = set()  # nsqlookupds that did not know the topic
        self._is_unknown_logged = False

    def schedule(self, has_lost: bool, limit: Callable[[float], float]) -> None:
        """Schedule the next round and cancel the one scheduled before.

        ``has_lost``: a listed nsqd has lost its connection: retry soon, then less and less often.
        """
        if self._next is not None:
            self._next.cancel()
        config = self._config
        delay = lookup_delay(
            self.unconnected, config.lookupd_poll_interval, config.lookupd_poll_jitter, self._rng)
        if has_lost:
            delay = reconnect_delay(self.since_loss, delay, self._rng)
        delay = limit(delay)
        self.next_at = time.monotonic() + delay
        self._next = self._timer.schedule(delay, self._poll)

    def begin(self, is_connected: bool) -> None:
        self.unconnected = 0 if is_connected else self.unconnected + 1
        self.since_loss += 1

    def note_answer(self, lookupd: str, is_listed: bool, lookupds: Iterable[str]) -> bool:
        """Record whether an nsqlookupd lists the topic. Returns True if none of them does."""
        if is_listed:
            self._is_unknown_logged = True  # once known, later silence is not worth a warning
            self._without_topic.discard(lookupd)
        else:
            self._without_topic.add(lookupd)
        return self._without_topic.issuperset(lookupds)

    def warn_of_unknown(self, topic: str, log: PrefixedLogger) -> NSQError:
        was_logged, self._is_unknown_logged = self._is_unknown_logged, True
        if not was_logged:
            log.warning(
                "no nsqlookupd lists the topic %s yet: check its spelling, or publish to it or"
                " create it; retrying after 1, 2, 4 ... s, at most %g s",
                topic, self._config.lookupd_poll_interval)
        return NSQError(f"no nsqlookupd lists the topic {topic}")


class ConnectionManager(Generic[S]):
    """Keeps a consumer connected.

    The ``max_dials`` concurrent dials are shared equally among the sources: each nsqlookupd given
    by the user is one source, and all nsqds given by the user are another.

    Lifecycle: ``start()``, then ``stop()``; cannot be restarted. Threads: any.
    """

    def __init__(
        self, context: ConsumerContext, sources: NsqdSources, owner: ConnectionsOwner[S], *,
        max_dials: int = MAX_DIALS,
    ) -> None:
        self._topic = context.topic
        self._config = context.config
        self._timer = context.timer
        self._log = context.log
        self._sources = sources
        self._owner = owner
        self._discoveries = LineLimit()
        self.failed_dials = LineLimit()
        self._rng = random.Random()
        self._lock = Lock()
        # Guarded by _lock, as all below.
        self._entries: dict[Endpoint, NsqdEntry] = {
            Endpoint(nsqd): self.make_entry(is_direct=True) for nsqd in sources.nsqds}
        self._listed: dict[str, frozenset[str]] = {}  # nsqlookupd -> nsqds in its last answer
        #: ``stop()`` closes it; the caller then joins it.
        self.dials: DialScheduler[Endpoint] = DialScheduler(
            ([DIRECT] if self._entries else []) + list(sources.lookupds), self._dial,
            self._timer.schedule, limit=max_dials)
        #: The reason why no dial can succeed, or None.
        self.incompatibility: NSQError | None = None
        self.last_failure: NSQError | None = None
        self._stopped = False
        self._poller: Poller[Any] = Poller(
            self.lookup, lambda lookupd, task: context.run_in_background(task), self._lock,
            self.merge, self._report)
        self._rounds = LookupRounds(self._config, self._timer, self._rng, self.poll)

    def start(self) -> None:
        with self._lock:
            for place, entry in self._entries.items():
                self._put(place, entry)
        self.dials.dispatch()
        if self._sources.lookupds:
            self.poll()

    def stop(self) -> list[S]:
        """Returns the subscriptions that are open or being opened."""
        self.dials.close()  # first: dials that look for an address keep _lock busy
        with self._lock:
            self._stopped = True
        return self.subscriptions()

    def abandon(self) -> None:
        """Abandon the parent's sockets in a forked child. Lock-free: a lock may be held forever."""
        for entry in list(self._entries.values()):
            if entry.sub is not None:
                entry.sub.abandon()

    def subscriptions(self) -> list[S]:
        with self._lock:
            return [entry.sub for entry in self._entries.values() if entry.sub is not None]

    def addresses(self) -> set[str]:
        with self._lock:
            return set(map(str, self._entries))

    def worked(self) -> set[str]:
        with self._lock:
            return {place.address for place, entry in self._entries.items() if entry.has_worked}

    def has_untried(self) -> bool:
        """True if the first dial of some nsqd has neither succeeded nor failed yet."""
        with self._lock:
            return any(not (each.has_worked or each.failures) for each in self._entries.values())

    def look_for(self, listed: Iterable[str]) -> None:
        """Begin a round of lookups if ``listed`` contains nsqds that are not known here yet."""
        with self._lock:
            known = {place.address for place in self._entries}
        if not known.issuperset(listed):
            self.poll()

    def lost(self, sub: S, error: NSQError | None = None) -> None:
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
                or isinstance(error, InterruptedSendError)  # a signal handler raised
            )
            entry.failures = 0 if had_worked else entry.failures + 1
            if entry.direct:
                self._put(sub.place, entry, is_retry=True)
            else:
                # Within 2 s: nsqd may have been restarted several times.
                self._rounds.since_loss = (
                    0 if had_worked else min(entry.failures, _SHORT_LIFE_ROUNDS))
                if not had_worked:
                    self._schedule_round()
        if entry.direct:
            self.dials.dispatch()
        elif had_worked:
            self.poll()

    # -- methods to override

    def make_entry(self, *, is_direct: bool) -> NsqdEntry:
        return NsqdEntry(is_direct)

    def make_subscription(self, place: Endpoint, entry: NsqdEntry) -> S:
        """Return a Subscription that is not open yet. Needs _lock."""
        return self._owner.make_subscription(place)

    def lookup(self, lookupd: str) -> Any:
        config = config_for(lookupd, self._sources.lookupds, self._config)
        return lookup_topic(lookupd, self._topic, config)

    def merge(self, lookupd: str, answer: Any | None, error: DiscoveryError | None) -> list[str]:
        """Returns further nsqlookupds to ask. Needs _lock."""
        return []

    def begin_round(self) -> list[str]:
        return list(self._sources.lookupds)

    def given_lookupds(self, place: Endpoint) -> set[str]:
        return {lookupd for lookupd, nsqds in self._listed.items() if place.address in nsqds}

    def on_lookup(self, lookupd: str, answer: Any) -> None:
        found: LookupResult = answer
        self.note_whether_known(lookupd, bool(found.nsqds), found.problem)
        nsqds = call_filter(self._log, lambda: self._sources.choose(found.nsqds))
        if nsqds is None:
            return
        with self._lock:
            if self._stopped:
                return
            self._listed[lookupd] = frozenset(nsqds)
            self._drop_unlisted()
            self._want([Endpoint(nsqd) for nsqd in nsqds], lookupd)
        self.dials.dispatch()

    def on_opened(self, place: Endpoint, entry: NsqdEntry) -> list[S]:
        """Returns other subscriptions to close. Needs _lock."""
        return []

    def on_refused(self, place: Endpoint, entry: NsqdEntry, error: NSQError) -> Redial:
        """Decide after a failed dial whether to dial again. Needs _lock."""
        if error.is_final:
            self.incompatibility = self.incompatibility or error
            return Redial.NEVER
        return Redial.LATER

    def limit_wait(self, delay: float, place: Endpoint | None = None) -> float:
        """Limit the wait before the next dial or lookup round. Needs _lock."""
        return delay

    def missing(self) -> str:
        """Describe the part of the topic without a connection; empty if all is connected."""
        return ""

    # -- dialing

    def _put(self, place: Endpoint, entry: NsqdEntry, *, is_retry: bool = False) -> None:
        """Queue a dial, after a pause if it is a retry; dispatch() comes next. Needs _lock."""
        retry_at = 0.0
        if is_retry:
            delay = reconnect_delay(entry.failures, self._config.max_reconnect_delay, self._rng)
            retry_at = time.monotonic() + self.limit_wait(delay, place)
        self.dials.put(
            place, self._named_by(place, entry), has_worked=entry.has_worked,
            failures=entry.failures, retry_at=retry_at)

    def _named_by(self, place: Endpoint, entry: NsqdEntry) -> set[str]:
        return self.given_lookupds(place) | ({DIRECT} if entry.direct else set())

    def _dial(self, place: Endpoint) -> None:
        """Connect, or record the failure. On a dialing thread."""
        with self._lock:
            entry = self._entries.get(place)
            if self._stopped or entry is None or entry.sub is not None:
                return
            sub: S = self.make_subscription(place, entry)
            entry.sub = sub
        try:
            self._sources.check_nsqd(place)
            sub.open(Deadline(HANDSHAKE_TIMEOUT))
        except Exception as exc:  # otherwise the address would count as connected forever
            if not isinstance(exc, NSQError):
                self._log.exception("%s: unexpected error while dialing", place,
                                    extra=log_fields(nsqd=place.address))
                exc = ConnectError(place.address, repr(exc))
            self._on_dial_failed(place, entry, exc)
            return
        with self._lock:
            entry.opened_at = time.monotonic()
            entry.has_worked = entry.is_open = True
            replaced = self.on_opened(place, entry)
            if self._rounds.unconnected and not entry.direct and not self._stopped:
                self._rounds.unconnected = 0  # no need to ask again so soon
                self._schedule_round()
        self._log.info("consuming from %s", place, extra=log_fields(nsqd=str(place)))
        try:
            self._owner.on_connected(sub)
        except Exception:  # the system has no more threads, for example
            self._log.exception("%s: unexpected error after the connection was made", place,
                                extra=log_fields(nsqd=place.address))
            sub.conn.close()
        for old in replaced:
            old.conn.close(f"{place} is used now")

    def _on_dial_failed(self, place: Endpoint, entry: NsqdEntry, error: NSQError) -> None:
        with self._lock:
            entry.sub = None
            if self._stopped or self._entries.get(place) is not entry:
                return
            entry.failures += 1
            former = self.incompatibility
            redial = self.on_refused(place, entry, error)
            news = self.incompatibility
            if redial is Redial.AT_ONCE:
                self._put(place, entry)
            elif redial is Redial.LATER and (
                entry.direct or not entry.is_lost and self._named_by(place, entry)
            ):
                self._put(place, entry, is_retry=True)
            elif redial is Redial.LATER and not entry.is_lost:  # no source names it any more
                self._forget([place])
        self.dials.dispatch()
        if redial is Redial.NEVER:
            self._report_incompatibility(former, news)
        elif redial is Redial.LATER:
            self.last_failure = error
            if not getattr(error, "is_repeated", False):
                self._log.log(
                    self.failed_dials.level(logging.WARNING),
                    "cannot consume from %s: %s", place, with_hint(error, str(place)),
                    extra=log_fields(nsqd=str(place)))
            self._owner.on_error(error)

    def _report_incompatibility(self, former: NSQError | None, news: NSQError | None) -> None:
        if news is not None and str(news) != str(former):
            self.last_failure = news
            self._log.error("cannot be consumed: %s", news)
            self._owner.on_error(news)

    # -- lookups

    def poll(self) -> None:
        """Ask every nsqlookupd that is not being asked, and schedule the next round."""
        with self._lock:
            if self._stopped:
                return
            self._drop_unlisted()
            # A listed nsqd is not enough: it may be dead, with a stale registration.
            is_connected = any(
                entry.has_worked and not entry.direct for entry in self._entries.values())
            self._rounds.begin(is_connected)
            self._schedule_round()
            self._poller.ask(self.begin_round())

    def _schedule_round(self) -> None:
        has_lost = any(entry.is_lost for entry in self._entries.values())
        self._rounds.schedule(has_lost, self.limit_wait)

    def _report(self, lookupd: str, answer: Any | None, error: DiscoveryError | None) -> None:
        if error is None:
            self.on_lookup(lookupd, answer)
        elif error.is_final:
            with self._lock:
                former, self.incompatibility = self.incompatibility, error
            self._report_incompatibility(former, error)
        else:
            self._log.warning("no answer from %s", with_hint(error))
            self.last_failure = error
            self._owner.on_error(error)

    def note_whether_known(self, lookupd: str, is_listed: bool, problem: str = "") -> None:
        if problem and not is_listed:
            self.last_failure = NSQError(problem)
            return
        with self._lock:
            is_unknown = self._rounds.note_answer(lookupd, is_listed, self._sources.lookupds)
            if not is_unknown or self._entries:
                return
        self.last_failure = self._rounds.warn_of_unknown(self._topic, self._log)

    def _forget(self, places: Collection[Endpoint]) -> list[S]:
        """Stop dialing the given endpoints. Returns their connections. Needs _lock."""
        for place in places:
            self.dials.discard(place)
        subs = [self._entries.pop(place).sub for place in places]
        return [sub for sub in subs if sub is not None]

    def _drop_unlisted(self) -> None:
        """Drop unlisted nsqds, lost ones after _FORGET_AFTER, connected ones never. Needs _lock."""
        oldest = time.monotonic() - _FORGET_AFTER
        for place, entry in list(self._entries.items()):
            is_listed = bool(self._named_by(place, entry))
            if not is_listed:
                self.dials.discard(place)
            is_old = entry.listed_at < oldest if entry.is_lost else not is_listed
            # stop() must find the connection of an nsqd that is being dialed.
            if is_old and entry.sub is None:
                if entry.is_lost:
                    self._log.info("removed %s: no nsqlookupd lists it any more", place,
                                   extra=log_fields(nsqd=str(place)))
                self._forget([place])

    def _want(self, places: Iterable[Endpoint], lookupd: str) -> None:
        now = time.monotonic()
        for place in places:
            entry = self._entries.get(place)
            if entry is None:
                self._log.log(
                    self._discoveries.level(logging.INFO), "nsqlookupd %s lists %s",
                    without_password(lookupd), place, extra=log_fields(nsqd=str(place)))
                entry = self._entries[place] = self.make_entry(is_direct=False)
            entry.listed_at = now
            if entry.sub is None:
                self._put(place, entry)
