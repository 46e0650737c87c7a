"""How ``max_in_flight`` is shared out as RDY: a snapshot of the connections in, changes out.

nsqd treats RDY as a level: it sends while fewer messages are out than RDY. A lowered RDY does
not call messages back, so what may be out on a connection is::

    max(level, in flight)

where *level* is the highest RDY that may still be in force: a lowered RDY counts at its old
value until it has settled. The sum of this over all connections never grows past
``max_in_flight``. Source: client guide, "RDY State"; behaviour of nsqd 1.3.0.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(eq=False)  # each is compared with itself alone, and often
class Link:
    """One connection as the sharing sees it. ``key`` names it to the caller."""

    key: object
    max_rdy: int  #: nsqd's max_rdy_count
    since: float  #: when it was added
    rdy: int = 0  #: the RDY that was sent last
    #: RDY that was lowered and may still be in force: (until when, RDY), the highest first.
    lowered: list[tuple[float, int]] = field(default_factory=list)
    in_flight: int = 0  #: messages out and not past their deadline; set by the caller
    last_message: float = float("-inf")  #: when the last message came; set by the caller
    granted: float = float("-inf")  #: when its turn began: RDY went from 0 to more

    def load(self, now: float) -> int:
        """How many messages may be out on it."""
        while self.lowered and now >= self.lowered[0][0]:
            del self.lowered[0]
        level = self.lowered[0][1] if self.lowered else 0
        return max(level, self.rdy, self.in_flight)


class Change(NamedTuple):
    """``rdy`` must be sent on the connection ``key``."""

    key: object
    rdy: int


class RdySharing:
    """The RDY of every connection of one consumer. Not thread-safe: the caller holds a lock.

    Args:
        settle_time: seconds for which a lowered RDY still counts at its old value.
        idle_timeout: seconds without a message after which a connection counts as idle
            (``low_rdy_idle_timeout``).
        pin_timeout: the longest time one connection keeps RDY 1 while others have none
            (``low_rdy_timeout``).
        by_activity: whether idle connections keep RDY 1 only while others are busy; else all
            have even shares, as with go-nsq.
    """

    def __init__(
        self,
        settle_time: float,
        idle_timeout: float,
        pin_timeout: float,
        rng: random.Random,
        *,
        by_activity: bool = True,
    ) -> None:
        self._settle_time = settle_time
        self._idle_timeout = idle_timeout
        self._pin_timeout = pin_timeout
        self._rng = rng
        self._by_activity = by_activity
        self.links: dict[object, Link] = {}
        #: How many more are about to be added. Their share is kept free: taken back later, it
        #: would be of no use to anybody until it has settled.
        self.expected = 0

    def add(self, key: object, max_rdy: int, now: float) -> Link:
        """Take a connection in, with RDY 0."""
        link = self.links[key] = Link(key, max_rdy, now)
        return link

    def remove(self, key: object) -> None:
        """Forget a connection; nsqd counts its messages no longer."""
        self.links.pop(key, None)

    def load(self, now: float) -> int:
        """How many messages may be out on all connections together."""
        return sum(link.load(now) for link in self.links.values())

    def decide(self, now: float, max_in_flight: int, *, only_one: bool = False) -> list[Change]:
        """Return what must be sent so that RDY comes nearer to what it should be.

        ``max_in_flight`` 0 stops the flow; ``only_one`` lets one message through, to test.
        Lowering happens at once; raising only as far as the ceiling allows, so call again when
        something has settled or was answered (see ``wants_more``).
        """
        links = list(self.links.values())
        wanted = self._wanted(links, now, max_in_flight, only_one)
        changes = []
        for link in links:
            if link.rdy > wanted[link.key]:
                self._set(link, wanted[link.key], now)
                changes.append(Change(link.key, link.rdy))
            elif link.rdy > 0 and self._turn_is_over(link, now):
                link.granted = now  # nobody had waited longer: a new turn
        limit = min(1, max_in_flight) if only_one else max_in_flight
        room = limit - self.load(now)
        # The same when all has settled: what costs nothing now may cost something then.
        spare = limit - sum(max(link.rdy, link.in_flight) for link in links)
        if only_one:  # what is out may be more than one, but not more than max_in_flight
            spare = max(0, spare)
        self._rng.shuffle(links)
        # First those without any, so that a small room reaches as many as possible, and of
        # these the one that has waited longest.
        links.sort(key=lambda link: (link.rdy > 0, link.granted if link.rdy == 0 else 0.0))
        takes_turns = only_one or max_in_flight < len(links)
        waiting = 0
        for link in links:
            # What is out beyond its RDY is counted already, so raising up to it costs nothing.
            free, kept = link.load(now), max(link.rdy, link.in_flight)
            target = min(wanted[link.key], free + max(0, room), kept + spare)
            if spare < 0 and wanted[link.key] > link.rdy:
                # More is out than may be: the place of an answered message stays free here.
                spare = min(0, spare + kept - max(target, link.rdy))
            if takes_turns and wanted[link.key] > link.rdy:
                if target <= link.rdy:
                    waiting += 1
                elif waiting and free > kept:
                    # Its last turn has not settled. With a new one right now it never would, and
                    # those who have waited longer, for room, would wait for ever.
                    waiting -= 1
                    continue
            if target > link.rdy:
                room -= max(0, target - free)
                spare -= max(0, target - kept)
                self._set(link, target, now)
                changes.append(Change(link.key, target))
        return changes

    def wants_more(self, now: float, max_in_flight: int, *, only_one: bool = False) -> bool:
        """Tell whether some connection should have more RDY than the ceiling allowed so far."""
        links = list(self.links.values())
        wanted = self._wanted(links, now, max_in_flight, only_one)
        return any(link.rdy < wanted[link.key] for link in links)

    def next_settled(self, now: float) -> float | None:
        """When the next lowered RDY will have settled; None when all have."""
        times = [until for link in self.links.values() for until, _ in link.lowered if until > now]
        return min(times, default=None)

    def _set(self, link: Link, count: int, now: float) -> None:
        if count < link.rdy:
            while link.lowered and link.lowered[-1][1] <= link.rdy:
                link.lowered.pop()  # lower, and over sooner
            link.lowered.append((now + self._settle_time, link.rdy))
        elif link.rdy == 0:
            link.granted = now
        link.rdy = count

    def _wanted(
        self, links: list[Link], now: float, max_in_flight: int, only_one: bool
    ) -> dict[object, int]:
        """The RDY that each connection should have, by key."""
        if only_one:
            max_in_flight = min(1, max_in_flight)
        if max_in_flight < len(links):
            chosen = self._take_turns(links, now, max_in_flight)
            return {link.key: int(link.key in chosen) for link in links}
        idle = [link for link in links if self._is_idle(link, now)]
        busy = [link for link in links if not self._is_idle(link, now)]
        if not idle or not busy or not self._by_activity:
            expected = min(self.expected, max_in_flight - len(links))
            return self._even(links, max_in_flight, expected)
        # Idle connections keep RDY 1, so that a message on them is seen; busy ones take the rest.
        wanted: dict[object, int] = {link.key: 1 for link in idle}
        wanted.update(self._even(busy, max_in_flight - len(idle)))
        return wanted

    def _is_idle(self, link: Link, now: float) -> bool:
        return (
            link.in_flight == 0
            and now - max(link.last_message, link.since) >= self._idle_timeout
        )

    @staticmethod
    def _even(links: Iterable[Link], total: int, others: int = 0) -> dict[object, int]:
        """Equal parts, the remainder spread, what a small max_rdy_count leaves given to others.

        ``others`` more parts are left over.
        """
        wanted: dict[object, int] = {}
        rest = sorted(links, key=lambda link: link.max_rdy)
        for index, link in enumerate(rest):
            share = min(total // (len(rest) - index + others), link.max_rdy)
            wanted[link.key] = share
            total -= share
        return wanted

    def _take_turns(self, links: list[Link], now: float, places: int) -> set[object]:
        """Fewer places than connections: who has RDY 1 now.

        A holder goes on until it was idle for idle_timeout, or has held for pin_timeout; then
        the one that has waited longest gets its turn.
        """
        if places <= 0:
            return set()
        holders = [link for link in links if link.rdy > 0 and not self._turn_is_over(link, now)]
        self._rng.shuffle(holders)
        chosen = holders[:places]
        others = [link for link in links if link not in chosen]
        self._rng.shuffle(others)
        others.sort(key=lambda link: link.granted)
        return {link.key for link in chosen + others[:places - len(chosen)]}

    def _turn_is_over(self, link: Link, now: float) -> bool:
        held = now - link.granted
        quiet = now - max(link.last_message, link.granted)
        return held >= self._pin_timeout or (
            quiet >= self._idle_timeout and link.in_flight == 0
        )
