"""How many messages a consumer asks for, and how RDY shares them out: snapshots in, changes out.

``RdyLevel`` decides how much of ``max_in_flight`` the handlers finish in time; ``RdyDistributor``
shares it out.

nsqd treats RDY as a level: it sends while fewer messages are out than RDY. A lowered RDY does
not call messages back, so what may be out on a connection is::

    max(level, in flight)

where *level* is the highest RDY that may still be in force: a lowered RDY counts at its old
value until it has settled. The sum of this over all connections never grows past
``max_in_flight``. Source: client guide, "RDY State"; behaviour of nsqd 1.3.0.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

#: How many handlers are remembered. The slowest of them counts: one handler that waits for a
#: database holds up all that is queued behind it.
WINDOW = 128


class LevelReason(Enum):
    """What decides how many messages may be in flight."""

    START = "start"  #: how long handlers take is not known yet, or not for so many messages
    HANDLER_TIME = "handler_time"  #: more would expire in the queue
    MAX_IN_FLIGHT = "max_in_flight"
    HELD = "held"  #: messages are collected on purpose: ``max_in_flight`` applies
    OFF = "off"  #: ``rdy_share_of_timeout`` is 0: ``max_in_flight`` applies


class Snapshot(NamedTuple):
    """What a RdyLevel looks at."""

    max_in_flight: int
    workers: int  #: threads that handle messages
    connections: int
    msg_timeout: float  #: the shortest of all connections, in seconds
    arrived: int  #: messages that have arrived so far
    longest_running: float  #: for how many seconds the oldest handler has been running


class RdyLevel:
    """How many messages may be in flight so that all are handled within a share of msg_timeout.

    It begins with one message for each worker and each connection, and at most doubles whenever
    as many have arrived. It falls at once, and rises only when twice as many would be handled in
    time, so that it does not oscillate.

    Args:
        share: the part of msg_timeout in which what is here is to be handled.

    Not thread-safe, save ``handler_times``: the caller holds a lock.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        #: Seconds that handlers took, the last ones. Any thread appends.
        self.handler_times: deque[float] = deque(maxlen=WINDOW)
        #: The level; it may be above a max_in_flight that was lowered since.
        self.value: int = 0
        self._changed_at = 0  # how many messages had arrived when it was changed last
        self._held_until = float("-inf")
        self.reason: LevelReason = LevelReason.START
        #: Seconds of the slowest handler at the last look, also of a handler that still ran.
        self.slowest: float = 0.0

    @property
    def handler_time(self) -> float | None:
        """Seconds that the slowest of the last handlers took; None before the first."""
        return max(self.handler_times.copy(), default=None)

    def is_held(self, now: float) -> bool:
        """Whether messages are collected on purpose: then how long that takes does not count."""
        return now < self._held_until

    def hold(self, until: float) -> None:
        """A handler has kept a message, or asked whether more will come."""
        self._held_until = until
        self.handler_times.clear()

    def look(self, now: float, seen: Snapshot) -> bool:
        """Decide anew; return whether the level changed."""
        before = self.value, self.reason
        self.value, self.reason = self._decide(now, seen)
        if self.value != before[0]:
            self._changed_at = seen.arrived
        return (self.value, self.reason) != before

    def _decide(self, now: float, seen: Snapshot) -> tuple[int, LevelReason]:
        most, least = seen.max_in_flight, seen.workers
        if self.is_held(now):
            return max(most, least), LevelReason.HELD
        slowest = self.slowest = max(self.handler_time or 0.0, seen.longest_running)
        if not slowest:
            if self.reason is LevelReason.START:
                return max(least, seen.connections), LevelReason.START
            return self.value, self.reason
        in_time = seen.workers * self._share * seen.msg_timeout / slowest
        level = self.value
        if in_time < level:
            level = max(least, int(in_time))
        elif in_time >= 2 * level and level < most:
            if seen.arrived - self._changed_at >= min(level, WINDOW):
                level = min(2 * level, most)
        if level >= most:
            return level, LevelReason.MAX_IN_FLIGHT
        is_rising = self.reason is LevelReason.START and in_time >= 2 * level
        return level, LevelReason.START if is_rising else LevelReason.HANDLER_TIME


@dataclass(eq=False)  # each is compared with itself alone, and often
class RdyState:
    """One connection as the sharing sees it. ``key`` names it to the caller."""

    key: Any
    max_rdy: int  #: nsqd's max_rdy_count; 0: the connection is being replaced
    since: float  #: when it was added
    rdy: int = 0  #: the RDY that was sent last
    #: RDY that was lowered and may still be in force: (until when, RDY), the highest first.
    lowered: list[tuple[float, int]] = field(default_factory=list)
    in_flight: int = 0  #: messages out and not past their deadline; set by the caller
    last_message: float = float("-inf")  #: when the last message came; set by the caller
    raised: float = float("-inf")  #: when RDY went from 0 to more
    granted: float = float("-inf")  #: when its turn began: then, or when the last one was over

    def load(self, now: float) -> int:
        """How many messages may be out on it."""
        while self.lowered and now >= self.lowered[0][0]:
            del self.lowered[0]
        level = self.lowered[0][1] if self.lowered else 0
        return max(level, self.rdy, self.in_flight)


class RdyDistributor:
    """The RDY of every connection of one consumer. Not thread-safe: the caller holds a lock.

    Args:
        settle_time: seconds for which a lowered RDY still counts at its old value.
        idle_timeout: seconds without a message after which a connection counts as idle
            (``low_rdy_idle_timeout``).
        pin_timeout: the longest time one connection keeps RDY 1 while others have none
            (``low_rdy_timeout``).
    """

    def __init__(
        self,
        settle_time: float,
        idle_timeout: float,
        pin_timeout: float,
        rng: random.Random,
    ) -> None:
        self._settle_time = settle_time
        self._idle_timeout = idle_timeout
        self._pin_timeout = pin_timeout
        self._rng = rng
        self.states: dict[object, RdyState] = {}

    def add(self, key: object, max_rdy: int, now: float) -> RdyState:
        """Take a connection in, with RDY 0."""
        state = self.states[key] = RdyState(key, max_rdy, now)
        return state

    def remove(self, key: object) -> None:
        """Forget a connection; nsqd counts its messages no longer."""
        self.states.pop(key, None)

    def load(self, now: float) -> int:
        """How many messages may be out on all connections together."""
        return sum(state.load(now) for state in self.states.values())

    def decide(
        self, now: float, max_in_flight: int, *, level: int, only_one: bool = False
    ) -> list[RdyState]:
        """Bring RDY nearer to what it should be; return the states whose RDY must be sent.

        ``max_in_flight`` 0 stops the flow; ``level`` is how much of it is shared out, where that
        is less; ``only_one`` lets one message through, to test. Lowering happens at once; raising
        only as far as the ceiling allows, so call again when something has settled or was answered
        (see ``wants_more``).
        """
        states = list(self.states.values())
        limit, wanted = self._wanted(states, now, max_in_flight, level, only_one)
        changes = []
        for state in states:
            if state.rdy > wanted[state.key]:
                self._set(state, wanted[state.key], now)
                changes.append(state)
            elif state.rdy > 0 and self._turn_is_over(state, now):
                state.granted = now  # nobody had waited longer: a new turn
        headroom = limit - self.load(now)
        # The same when all has settled: what costs nothing now may cost something then.
        spare = limit - sum(max(state.rdy, state.in_flight) for state in states)
        if only_one:  # what is out may be more than one, but not more than max_in_flight
            spare = max(0, spare)
        self._rng.shuffle(states)
        # First those without any, so that little headroom reaches as many as possible, and
        # of these the connection that has waited longest.
        states.sort(key=lambda state: (state.rdy > 0, state.granted if state.rdy == 0 else 0.0))
        takes_turns = only_one or limit < len(states)
        waiting = 0
        for state in states:
            # What is out beyond its RDY is counted already, so raising up to it costs nothing.
            free, kept = state.load(now), max(state.rdy, state.in_flight)
            target = min(wanted[state.key], free + max(0, headroom), kept + spare)
            if spare < 0 and wanted[state.key] > state.rdy:
                # More is out than may be: the place of an answered message stays free here.
                spare = min(0, spare + kept - max(target, state.rdy))
            if takes_turns and wanted[state.key] > state.rdy:
                if target <= state.rdy:
                    waiting += 1
                elif waiting and free > kept:
                    # Its last turn has not settled. With a new one right now it never would, and
                    # connections that have waited longer, for headroom, would wait for ever.
                    waiting -= 1
                    continue
            if target > state.rdy:
                headroom -= max(0, target - free)
                spare -= max(0, target - kept)
                self._set(state, target, now)
                changes.append(state)
        return changes

    def wants_more(
        self, now: float, max_in_flight: int, *, level: int, only_one: bool = False
    ) -> bool:
        """Return whether some connection should have more RDY than the ceiling allowed so far."""
        states = list(self.states.values())
        _, wanted = self._wanted(states, now, max_in_flight, level, only_one)
        return any(state.rdy < wanted[state.key] for state in states)

    def next_settled(self, now: float) -> float | None:
        """When the next lowered RDY will have settled; None when all have."""
        times = [
            until for state in self.states.values() for until, _ in state.lowered if until > now
        ]
        return min(times, default=None)

    def _set(self, state: RdyState, count: int, now: float) -> None:
        if count < state.rdy:
            while state.lowered and state.lowered[-1][1] <= state.rdy:
                state.lowered.pop()  # lower, and over sooner
            state.lowered.append((now + self._settle_time, state.rdy))
        elif state.rdy == 0:
            state.raised = state.granted = now
        state.rdy = count

    def _wanted(
        self, states: list[RdyState], now: float, max_in_flight: int, level: int, only_one: bool
    ) -> tuple[int, dict[object, int]]:
        """How much may be out, and the RDY that each connection should have, by key."""
        places = min(1, max_in_flight) if only_one else max_in_flight
        if not all([state.max_rdy for state in states]):
            ended = {state.key: 0 for state in states if not state.max_rdy}
            states = [state for state in states if state.max_rdy]
            places, wanted = self._wanted(states, now, max_in_flight, level, only_one)
            return places, wanted | ended
        if level >= places or level >= len(states):
            places = min(level, places)
            return places, self._shares(states, now, places)
        # Fewer places than connections: those that send nothing take no place and have RDY 1, so
        # that a message on them is seen.
        quiet = [state for state in states if self._is_quiet(state, now)][:places - level]
        others = [state for state in states if state not in quiet]
        wanted = self._shares(others, now, level)
        wanted.update((state.key, 1) for state in quiet)
        return level + len(quiet), wanted

    def _is_quiet(self, state: RdyState, now: float) -> bool:
        """Whether nothing has ever come on it, or nothing for a while although it has RDY."""
        if state.in_flight:
            return False
        last = max(state.last_message, state.raised)
        return state.last_message == float("-inf") or (
            state.rdy > 0 and now - last >= self._settle_time)

    def _shares(
        self, states: list[RdyState], now: float, max_in_flight: int
    ) -> dict[object, int]:
        if max_in_flight < len(states):
            chosen = self._take_turns(states, now, max_in_flight)
            return {state.key: int(state.key in chosen) for state in states}
        idle = [state for state in states if self._is_idle(state, now)]
        busy = [state for state in states if not self._is_idle(state, now)]
        if not idle or not busy:
            return self._even(states, max_in_flight)
        # Idle connections keep RDY 1, so that a message on them is seen; busy ones take the rest.
        wanted: dict[object, int] = {state.key: 1 for state in idle}
        wanted.update(self._even(busy, max_in_flight - len(idle)))
        return wanted

    def _is_idle(self, state: RdyState, now: float) -> bool:
        return (
            state.in_flight == 0
            and now - max(state.last_message, state.since) >= self._idle_timeout
        )

    @staticmethod
    def _even(states: Iterable[RdyState], total: int) -> dict[object, int]:
        """Equal parts, the remainder spread, what a small max_rdy_count leaves given to others."""
        wanted: dict[object, int] = {}
        rest = sorted(states, key=lambda state: state.max_rdy)
        for index, state in enumerate(rest):
            share = min(total // (len(rest) - index), state.max_rdy)
            wanted[state.key] = share
            total -= share
        return wanted

    def _take_turns(self, states: list[RdyState], now: float, places: int) -> set[object]:
        """Fewer places than connections: return those that have RDY 1 now.

        A holder goes on until it was idle for idle_timeout, or has held for pin_timeout; then
        the connection that has waited longest gets its turn.
        """
        if places <= 0:
            return set()
        holders = [
            state for state in states if state.rdy > 0 and not self._turn_is_over(state, now)
        ]
        self._rng.shuffle(holders)
        chosen = holders[:places]
        others = [state for state in states if state not in chosen]
        self._rng.shuffle(others)
        others.sort(key=lambda state: state.granted)
        return {state.key for state in chosen + others[:places - len(chosen)]}

    def _turn_is_over(self, state: RdyState, now: float) -> bool:
        held = now - state.granted
        quiet = now - max(state.last_message, state.granted)
        return held >= self._pin_timeout or (
            quiet >= self._idle_timeout and state.in_flight == 0
        )
