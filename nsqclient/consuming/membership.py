"""``Membership``: which nsqds a consumer is connected to, and how it gets back to lost ones.

Addresses come from two sources: given by the user, or listed by a nsqlookupd. The timer only
hands over; dialing and asking happen on chore threads.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from nsqclient.config import Config
from nsqclient.discovery import lookup
from nsqclient.errors import ConnectError, DiscoveryError, NSQError
from nsqclient.flow.delays import jittered, reconnect_delay
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.timer import Timer, TimerTask
from nsqclient.runtime.transport import parse_address
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

    def on_connected(self, sub: Subscription) -> None:
        """The Subscription is open; give it RDY and start it."""
        ...

    def on_error(self, error: NSQError) -> None:
        """A dial or a lookup failed; it is tried again."""
        ...


@dataclass
class _Known:
    """One nsqd that we want, or wanted. Guarded by the Membership's lock."""

    direct: bool
    is_expected: bool = True  # its first dial has not ended yet
    sub: Subscription | None = None  # open, or being opened
    opened_at: float = 0.0  # when ``sub`` was subscribed, on time.monotonic()
    failures: int = 0  # dials in a row that failed
    redial: TimerTask | None = None
    listed_at: float = 0.0  # when a nsqlookupd named it last, on time.monotonic()


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
    ) -> None:
        self._log = LifeLog(topic) if log is None else log
        self._filter = discovery_filter
        self._on_expected = on_expected
        self._topic = topic
        self._lookupds = list(lookupds)
        self._config = config
        self._timer = timer
        self._run_chore = run_chore
        self._owner = owner
        self._rng = random.Random()
        self._lock = threading.Lock()
        self._known = {address: _Known(direct=True) for address in nsqds}  # by _lock, as below
        self._asking: set[str] = set()  # lookupds with a request under way
        self._ignorant: set[str] = set()  # lookupds that have not known the topic
        self._is_unknown_told = False
        self._lost: set[str] = set()  # discovered nsqds that were connected and are not now
        self._hurry = 0  # rounds since the last loss
        self._next_round: TimerTask | None = None
        self._stopped = False

    def start(self) -> None:
        """Dial what was given, and ask every nsqlookupd at once."""
        self._count_expected()
        for address, known in list(self._known.items()):
            self._run_chore(self._dialer(address, known))
        if self._lookupds:
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

    def lost(self, sub: Subscription) -> None:
        """A connection ended: see to it that it comes back."""
        with self._lock:
            known = self._known.get(sub.address)
            if known is None or known.sub is not sub:
                return
            known.sub = None
            if self._stopped:
                return
            had_worked = time.monotonic() - known.opened_at >= _SHORT_LIFE
            known.failures = 0 if had_worked else known.failures + 1
            if known.direct:
                self._schedule_dial(sub.address, known)
                return
            self._lost.add(sub.address)
            if not had_worked:
                # Not at once, but within 2 s: it may just have been restarted several times.
                self._hurry = min(known.failures, _SHORT_LIFE_ROUNDS)
                self._schedule_round()
                return
            self._hurry = 0
        self._round()

    # -- dialing

    def _schedule_dial(self, address: str, known: _Known) -> None:
        """Needs _lock."""
        delay = reconnect_delay(known.failures, self._config.max_reconnect_delay, self._rng)
        dial = self._dialer(address, known)
        known.redial = self._timer.schedule(delay, lambda: self._run_chore(dial))

    def _dialer(self, address: str, known: _Known) -> Callable[[], None]:
        return lambda: self._dial(address, known)

    def _count_expected(self) -> None:
        """Say how many connections are about to come: those that are there leave them a share."""
        with self._lock:
            count = sum(known.is_expected for known in self._known.values())
        self._on_expected(count)

    def _dial(self, address: str, known: _Known) -> None:
        try:
            self._open(address, known)
        finally:
            if known.is_expected:
                known.is_expected = False
                self._count_expected()

    def _open(self, address: str, known: _Known) -> None:
        with self._lock:
            if self._stopped or known.sub is not None:
                return
            sub = known.sub = self._owner.make_subscription(address)
        try:
            sub.open(Deadline(HANDSHAKE_TIMEOUT))
        except NSQError as exc:
            self._on_dial_failed(address, known, exc)
            return
        except Exception as exc:  # else the address would count as connected for ever
            logger.exception("%s: the dial failed in an unforeseen way", address)
            self._on_dial_failed(address, known, ConnectError(address, repr(exc)))
            return
        with self._lock:
            known.opened_at = time.monotonic()
            self._lost.discard(address)
        self._log.connected(address)
        try:
            self._owner.on_connected(sub)
        except Exception:  # the system has no more threads, for example
            logger.exception("%s: connected, but cannot be used", address)
            sub.conn.close()

    def _on_dial_failed(self, address: str, known: _Known, error: NSQError) -> None:
        with self._lock:
            known.sub = None
            if self._stopped:
                return
            known.failures += 1
            if known.direct:
                self._schedule_dial(address, known)
            elif address not in self._lost:
                self._lost.add(address)
                self._hurry = 1
                self._schedule_round()
        self._log.cannot_connect(address, error)
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
            self._schedule_round()
            ask = [address for address in self._lookupds if address not in self._asking]
            self._asking.update(ask)
        for address in ask:
            self._run_chore(self._asker(address))

    def _forget_old(self, now: float) -> None:
        """Drop lost nsqds that no nsqlookupd has named for long. Needs _lock.

        One whose connection lives is never dropped: it may still have messages for us.
        """
        limit = now - self._config.lookupd_forget_after
        for address in list(self._lost):
            known = self._known[address]
            # One that is being dialed has a connection that stop() must find.
            if known.listed_at < limit and known.sub is None:
                self._log.forgotten(address)
                self._lost.discard(address)
                del self._known[address]

    def _schedule_round(self) -> None:
        """Needs _lock."""
        if self._next_round is not None:
            self._next_round.cancel()
        config = self._config
        delay = jittered(config.lookupd_poll_interval, config.lookupd_poll_jitter, self._rng)
        if self._lost:
            # Soon again, then less and less often, until all that were lost are back.
            delay = reconnect_delay(self._hurry, delay, self._rng)
        self._next_round = self._timer.schedule(delay, self._round)

    def _asker(self, lookupd: str) -> Callable[[], None]:
        return lambda: self._ask(lookupd)

    def _ask(self, lookupd: str) -> None:
        try:
            addresses = lookup(lookupd, self._topic, self._config)
        except DiscoveryError as exc:
            self._log.lookup_failed(exc)
            self._owner.on_error(exc)
            return
        finally:
            with self._lock:
                self._asking.discard(lookupd)
        self._note_answer(lookupd, is_empty=not addresses)
        if self._filter is not None:
            try:
                addresses = list(self._filter(addresses))
                for address in addresses:
                    parse_address(address, "an address that discovery_filter returned")
            except BaseException:  # the user's code; the next round asks again
                logger.exception("discovery_filter failed: this answer is not used")
                return
        self._on_answer(lookupd, addresses)

    def _note_answer(self, lookupd: str, is_empty: bool) -> None:
        """Tell once when all nsqlookupds have answered and none knows the topic."""
        with self._lock:
            if is_empty:
                self._ignorant.add(lookupd)
            else:
                self._is_unknown_told = True  # it is known, and a silence later means less
            tell = not self._is_unknown_told and len(self._ignorant) == len(self._lookupds)
            tell = tell and not self._known
            self._is_unknown_told = self._is_unknown_told or tell
        if tell:
            self._log.topic_unknown(self._config.lookupd_poll_interval)

    def _on_answer(self, lookupd: str, addresses: list[str]) -> None:
        dials = []
        with self._lock:
            if self._stopped:
                return
            now = time.monotonic()
            for address in addresses:
                known = self._known.get(address)
                if known is None:
                    self._log.discovered(address, lookupd)
                    known = self._known[address] = _Known(direct=False)
                known.listed_at = now
                if known.sub is None and not known.direct:
                    dials.append(self._dialer(address, known))
        self._count_expected()
        for dial in dials:
            self._run_chore(dial)
