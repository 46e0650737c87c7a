"""Decides how many messages a consumer asks for and how RDY is distributed. Does no I/O.

nsqd treats RDY as a level: it sends while fewer messages than RDY are in flight. Lowering RDY does
not call messages back, so the number of messages that may be in flight on a connection is::

    max(level, in flight)

Here *level* is the highest RDY that may still be in force: a lowered RDY counts at its old
value until it has settled. The sum of this maximum over all connections never grows past
``max_in_flight``. Source: client guide, "RDY State"; behaviour of nsqd 1.3.0.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from nsqclient.runtime.deques import copy_deque

#: Number of handler times to remember. The slowest counts: it delays all messages behind it.
WINDOW = 128


class LevelReason(Enum):
    START = "start"  #: handler times are not known yet, or not at a higher level
    HANDLER_TIME = "handler_time"  #: more would expire in the queue
    MAX_IN_FLIGHT = "max_in_flight"
    HELD = "held"  #: messages are collected on purpose: ``max_in_flight`` applies
    OFF = "off"  #: ``rdy_share_of_timeout`` is 0: ``max_in_flight`` applies


class Snapshot(NamedTuple):
    max_in_flight: int
    workers: int  #: threads that handle messages
    connections: int
    msg_timeout: float  #: the shortest msg_timeout of all connections, in seconds
    arrived: int  #: messages that have arrived so far
    longest_running: float  #: for how many seconds the oldest handler has been running


class RdyLevel:
    """The number of messages that can all be handled within a share of msg_timeout.

    It starts at the number of workers or of connections, whichever is greater. It doubles at most
    once per level's worth of arrived messages. It falls at once but rises only if twice as many
    messages could be handled in time, which prevents oscillation. Messages that are in flight when
    handlers become slower expire once, so the share is small.

    Not thread-safe. Only ``handler_times`` may be used without a lock.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        #: Durations of the last handlers, in seconds. Any thread appends.
        self.handler_times: deque[float] = deque(maxlen=WINDOW)
        #: The level. It may exceed a max_in_flight that was lowered since.
        self.value: int = 0
        self._changed_at = 0  # value of ``arrived`` at the last change
        self._held_until = float("-inf")
        self.reason: LevelReason = LevelReason.START
        #: Duration of the slowest handler at the last look, including handlers still running.
        self.slowest: float = 0.0

    @property
    def handler_time(self) -> float | None:
        return max(copy_deque(self.handler_times), default=None)

    def is_held(self, now: float) -> bool:
        return now < self._held_until

    def hold(self, until: float) -> None:
        """A handler collects messages on purpose: hold the level at max_in_flight until then."""
        self._held_until = until
        self.handler_times.clear()

    def look(self, now: float, seen: Snapshot) -> bool:
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
        in_time = seen.workers * self.share * seen.msg_timeout / slowest
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


@dataclass(eq=False)  # identity suffices, and comparisons are frequent
class RdyState:
    """The state of one connection in a RdyDistributor. ``key`` identifies it to the caller."""

    key: Any
    max_rdy: int  #: nsqd's max_rdy_count; 0: the connection is being replaced
    since: float  #: when it was added
    rdy: int = 0  #: the last RDY sent
    #: Former RDY values that may still be in force, as (until when, RDY), the highest first.
    lowered: list[tuple[float, int]] = field(default_factory=list)
    in_flight: int = 0  #: unexpired messages in flight; set by the caller
    last_message: float = float("-inf")  #: when the last message arrived; set by the caller
    raised: float = float("-inf")  #: when RDY was last raised from 0
    granted: float = float("-inf")  #: when its turn began or was last extended

    def load(self, now: float) -> int:
        while self.lowered and now >= self.lowered[0][0]:
            del self.lowered[0]
        level = self.lowered[0][1] if self.lowered else 0
        return max(level, self.rdy, self.in_flight)


class RdyDistributor:
    """The RDY of every connection of one consumer. Not thread-safe.

    Args:
        settle_time: seconds for which a lowered RDY still counts at its old value.
        idle_timeout: seconds without a message after which a connection counts as idle.
        pin_timeout: the longest time one connection keeps RDY 1 while others have none.
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
        state = self.states[key] = RdyState(key, max_rdy, now)
        return state

    def remove(self, key: object) -> None:
        self.states.pop(key, None)

    def load(self, now: float) -> int:
        return sum(state.load(now) for state in self.states.values())

    def decide(
        self, now: float, max_in_flight: int, *, level: int, only_one: bool = False
    ) -> list[RdyState]:
        """Move RDY toward its target. Returns the states whose RDY must be sent.

        ``max_in_flight`` 0 stops the flow. ``only_one`` lets a single message through as a test.
        RDY is lowered at once but raised only within the ceiling, so call again when a lowered RDY
        has settled or a message was answered (see ``wants_more``).
        """
        states = list(self.states.values())
        limit, wanted = self._wanted(states, now, max_in_flight, level, only_one)
        changes = []
        for state in states:
            if state.rdy > wanted[state.key]:
                self._set(state, wanted[state.key], now)
                changes.append(state)
            elif state.rdy > 0 and self._turn_is_over(state, now):
                state.granted = now  # no other connection had waited longer: a new turn
        headroom = limit - self.load(now)
        # Headroom after all lowered RDY has settled. A raise that is free now may not be then.
        spare = limit - sum(max(state.rdy, state.in_flight) for state in states)
        if only_one:  # more than one message may be in flight, up to max_in_flight
            spare = max(0, spare)
        self._rng.shuffle(states)
        # Connections with RDY 0 come first, longest waiting first, so that a small headroom
        # reaches as many connections as possible.
        states.sort(key=lambda state: (state.rdy > 0, state.granted if state.rdy == 0 else 0.0))
        takes_turns = only_one or limit < len(states)
        waiting = 0
        for state in states:
            # Messages in flight beyond RDY are already counted, so raising RDY up to them is free.
            free, kept = state.load(now), max(state.rdy, state.in_flight)
            target = min(wanted[state.key], free + max(0, headroom), kept + spare)
            if spare < 0 and wanted[state.key] > state.rdy:
                # Too many messages are in flight: do not refill the place of an answered message.
                spare = min(0, spare + kept - max(target, state.rdy))
            if takes_turns and wanted[state.key] > state.rdy:
                if target <= state.rdy:
                    waiting += 1
                elif waiting and free > kept:
                    # Its last turn has not settled. If it got another turn now, it never would, and
                    # connections that have waited longer for headroom would wait forever.
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
        states = list(self.states.values())
        _, wanted = self._wanted(states, now, max_in_flight, level, only_one)
        return any(state.rdy < wanted[state.key] for state in states)

    def next_settled(self, now: float) -> float | None:
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
        """Return the limit of messages in flight, and the target RDY of each connection by key."""
        places = min(1, max_in_flight) if only_one else max_in_flight
        if not all([state.max_rdy for state in states]):
            ended = {state.key: 0 for state in states if not state.max_rdy}
            states = [state for state in states if state.max_rdy]
            places, wanted = self._wanted(states, now, max_in_flight, level, only_one)
            return places, wanted | ended
        if level >= places or level >= len(states):
            places = min(level, places)
            return places, self._shares(states, now, places)
        # Fewer places than connections: quiet ones have RDY 1 without taking a place of the level.
        quiet = [state for state in states if self._is_quiet(state, now)][:places - level]
        others = [state for state in states if state not in quiet]
        wanted = self._shares(others, now, level)
        wanted.update((state.key, 1) for state in quiet)
        return level + len(quiet), wanted

    def _is_quiet(self, state: RdyState, now: float) -> bool:
        """True if no message ever arrived, or none for settle_time although RDY is above 0."""
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
        # Idle connections keep RDY 1 so that nsqd can send a message.
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
        """Divide ``total`` equally. Shares above a small max_rdy_count go to other connections."""
        wanted: dict[object, int] = {}
        rest = sorted(states, key=lambda state: state.max_rdy)
        for index, state in enumerate(rest):
            share = min(total // (len(rest) - index), state.max_rdy)
            wanted[state.key] = share
            total -= share
        return wanted

    def _take_turns(self, states: list[RdyState], now: float, places: int) -> set[object]:
        """Return the connections that have RDY 1 now, if there are fewer places than connections.

        A turn ends after idle_timeout without a message or after pin_timeout in total. The
        connection that has waited longest is next.
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
