"""Sharing max_in_flight out as RDY, with a clock that only the test moves."""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.flow.rdy import RdySharing
from tests.support.fuzz import fuzz

SETTLE, IDLE, PIN = 0.5, 10.0, 30.0


def make(count, *, max_rdy=2500, idle=IDLE, pin=PIN, seed=0, **options):
    """Return a sharing with connections 0, 1, 2... added at time 0."""
    sharing = RdySharing(SETTLE, idle, pin, random.Random(seed), **options)
    for key in range(count):
        sharing.add(key, max_rdy, 0.0)
    return sharing


def levels(sharing):
    """Return the RDY of every connection, in the order they were added."""
    return [link.rdy for link in sharing.links.values()]


def busy(sharing, now, in_flight=0):
    """Pretend that every connection just had a message."""
    for link in sharing.links.values():
        link.last_message = now
        link.in_flight = in_flight


# -- even shares


@pytest.mark.parametrize("count, max_in_flight, shares", [
    (1, 1, [1]), (1, 10, [10]), (2, 10, [5, 5]), (3, 10, [3, 3, 4]), (3, 11, [3, 4, 4]),
    (4, 4, [1] * 4), (3, 0, [0] * 3), (0, 5, []),
])
def test_even_shares(count, max_in_flight, shares):
    """All have the same, the remainder is spread, and the sum is what was asked for."""
    sharing = make(count)
    changes = sharing.decide(0.0, max_in_flight)
    assert sorted(levels(sharing)) == shares
    assert {change.key: change.rdy for change in changes} == {
        key: link.rdy for key, link in sharing.links.items() if link.rdy
    }


@pytest.mark.parametrize("count, expected, max_in_flight, shares", [
    (1, 3, 2500, [625]), (2, 1, 10, [3, 3]), (1, 20, 10, [1]), (2, 5, 2, [1, 1]),
    (3, 5, 1, [0, 0, 1]), (0, 2, 10, []),
])
def test_those_who_are_about_to_come_have_their_share(count, expected, max_in_flight, shares):
    """While others are dialed, nobody gets what would have to be taken back."""
    sharing = make(count)
    sharing.expected = expected
    sharing.decide(0.0, max_in_flight)
    assert sorted(levels(sharing)) == shares


def test_a_share_that_nobody_came_for_is_given_away():
    """A dial that failed leaves its share to the others, at once."""
    sharing = make(2)
    sharing.expected = 2
    sharing.decide(0.0, 12)
    assert levels(sharing) == [3, 3]
    sharing.expected = 0
    sharing.decide(0.0, 12)
    assert levels(sharing) == [6, 6]


def test_nothing_is_sent_twice():
    """A level that is right already is no change."""
    sharing = make(3)
    sharing.decide(0.0, 10)
    assert sharing.decide(0.0, 10) == sharing.decide(5.0, 10) == []
    assert not sharing.wants_more(5.0, 10)


@pytest.mark.parametrize("max_rdys, max_in_flight, shares", [
    ([2500], 10_000, [2500]),
    ([1, 2500], 10, [1, 9]),
    ([2500, 1, 3], 30, [26, 1, 3]),
    ([2, 2], 10, [2, 2]),
])
def test_max_rdy_count(max_rdys, max_in_flight, shares):
    """No share passes nsqd's own limit; the others have what that leaves."""
    sharing = make(0)
    for key, max_rdy in enumerate(max_rdys):
        sharing.add(key, max_rdy, 0.0)
    sharing.decide(0.0, max_in_flight)
    assert levels(sharing) == shares
    assert not sharing.wants_more(0.0, max_in_flight)


def test_removed_connections_leave_their_share():
    """nsqd sends nothing more on a closed connection, so its share is free at once."""
    sharing = make(2)
    sharing.decide(0.0, 10)
    sharing.links[0].in_flight = 5
    sharing.remove(0)
    sharing.remove(0)
    assert sharing.decide(0.1, 10) == [(1, 10)]


# -- the ceiling


def test_shrink_first_raise_after_it_settled():
    """A new connection gets its share when the lowered RDY of the other is in force for sure."""
    sharing = make(1)
    sharing.decide(0.0, 10)
    sharing.add(1, 2500, 1.0)
    assert sharing.decide(1.0, 10) == [(0, 5)]
    assert sharing.wants_more(1.0, 10)
    assert sharing.decide(1.0 + SETTLE - 0.01, 10) == []
    assert sharing.decide(1.0 + SETTLE, 10) == [(1, 5)]
    assert not sharing.wants_more(1.0 + SETTLE, 10)


def test_messages_in_flight_count():
    """Where more is out than RDY says, that many places are taken."""
    sharing = make(1)
    sharing.decide(0.0, 10)
    sharing.links[0].in_flight = 8
    sharing.add(1, 2500, 1.0)
    sharing.decide(1.0, 10)
    assert sharing.decide(2.0, 10) == [(1, 2)]
    assert sharing.wants_more(2.0, 10)
    sharing.links[0].in_flight = 6
    assert sharing.decide(2.0, 10) == [(1, 4)]
    sharing.links[0].in_flight = 0
    assert sharing.decide(2.0, 10) == [(1, 5)]


def test_lowering_the_ceiling():
    """A smaller max_in_flight is sent at once; what is out stays out."""
    sharing = make(2)
    sharing.decide(0.0, 10)
    busy(sharing, 0.0, in_flight=5)
    assert sorted(sharing.decide(1.0, 4)) == [(0, 2), (1, 2)]
    assert sharing.load(1.0) == sharing.load(2.0) == 10
    assert not sharing.wants_more(1.0, 4)


def test_stop_and_go():
    """After a pause the old levels come back at once: they are counted still."""
    sharing = make(2)
    sharing.decide(0.0, 10)
    assert sorted(sharing.decide(1.0, 0)) == [(0, 0), (1, 0)]
    assert not sharing.wants_more(1.0, 0)
    assert sorted(sharing.decide(1.1, 10)) == [(0, 5), (1, 5)]
    assert sharing.load(1.1) == 10


def test_a_raise_that_costs_nothing_now_must_not_cost_later():
    """A level that still counts is no room: when it has settled, the sum must fit."""
    sharing = make(2)
    sharing.decide(0.0, 20)
    sharing.links[0].in_flight = 3  # and stays so
    sharing.decide(1.0, 0)
    sharing.decide(1.1, 4)
    assert sum(max(link.rdy, link.in_flight) for link in sharing.links.values()) <= 4
    assert sharing.wants_more(1.1, 4)


def test_levels_settle_one_by_one():
    """A second lowering does not make the first, higher level last longer."""
    sharing = make(1)
    sharing.decide(0.0, 10)
    sharing.decide(1.0, 3)
    sharing.decide(1.4, 2)
    assert [sharing.load(now) for now in (1.4, 1.5, 1.8, 1.9)] == [10, 3, 3, 2]


def test_only_one():
    """A test lets one message through on one connection."""
    sharing = make(3)
    sharing.decide(0.0, 0)
    changes = sharing.decide(0.0, 10, only_one=True)
    assert [change.rdy for change in changes] == [1]
    assert sharing.load(0.0) == 1
    assert make(3).decide(0.0, 0, only_one=True) == []


def test_only_one_waits_for_what_is_out():
    """While older messages are out, the test message is not let through."""
    sharing = make(2)
    sharing.links[0].in_flight = sharing.links[1].in_flight = 2
    assert sharing.wants_more(0.0, 10, only_one=True)
    [change] = sharing.decide(0.0, 10, only_one=True)
    assert change.rdy == 1  # on a connection that has two out already: nothing comes
    assert sharing.load(0.0) == 4


def test_a_small_room_goes_to_those_without():
    """Who has no RDY comes before who wants more of it."""
    for seed in range(10):
        sharing = make(3, seed=seed)
        sharing.links[0].rdy = sharing.links[2].rdy = 1
        sharing.links[0].in_flight = 2
        assert sharing.decide(0.0, 4) == [(1, 1)]
        assert sharing.wants_more(0.0, 4)


# -- idle and busy


def test_idle_connections_keep_one():
    """Busy connections take what idle ones do not need, and give it back."""
    sharing = make(3)
    sharing.decide(0.0, 12)
    sharing.links[0].last_message = 9.0
    assert sorted(sharing.decide(IDLE, 12)) == [(1, 1), (2, 1)]
    assert sharing.decide(IDLE + SETTLE, 12) == [(0, 10)]
    sharing.links[1].last_message = 11.0
    sharing.links[1].in_flight = 1
    assert sharing.decide(11.0, 12) == [(0, 5)]
    assert sharing.decide(11.0 + SETTLE, 12) == [(1, 6)]


@pytest.mark.parametrize("now", [IDLE - 0.1, IDLE + 0.1])
def test_all_alike(now):
    """All busy or all idle: even shares."""
    sharing = make(3)
    sharing.decide(now, 12)
    assert levels(sharing) == [4, 4, 4]


def test_a_long_message_is_no_idleness():
    """A connection with a message in flight is busy, however long it takes."""
    sharing = make(2)
    sharing.decide(0.0, 10)
    busy(sharing, 0.0, in_flight=1)
    assert sharing.decide(1000.0, 10) == []


def test_even_shares_by_option():
    """Without by_activity all connections are alike."""
    sharing = make(2, by_activity=False)
    sharing.decide(0.0, 10)
    sharing.links[0].last_message = 11.0
    assert sharing.decide(11.0, 10) == []


# -- fewer places than connections


def holders(sharing):
    """Return the keys of those that have RDY."""
    return {key for key, link in sharing.links.items() if link.rdy}


def test_fewer_places():
    """Some have RDY 1, the others nothing, and it stays so while messages come."""
    sharing = make(5)
    sharing.decide(0.0, 2)
    assert sorted(levels(sharing)) == [0, 0, 0, 1, 1]
    first = holders(sharing)
    busy(sharing, IDLE, in_flight=0)
    assert sharing.decide(IDLE + 1, 2) == []
    assert holders(sharing) == first


def test_idle_holders_give_way():
    """Who had no message for idle_timeout lets another try."""
    sharing = make(2)
    sharing.decide(0.0, 1)
    [first] = holders(sharing)
    sharing.links[first].last_message = 5.0
    assert sharing.decide(5.0 + IDLE - 0.1, 1) == []
    assert sharing.decide(5.0 + IDLE, 1) == [(first, 0)]
    assert sharing.wants_more(5.0 + IDLE, 1)
    assert sharing.decide(5.0 + IDLE + SETTLE, 1) == [(1 - first, 1)]


def test_pinned_holders_give_way():
    """Who is always busy lets another try after pin_timeout."""
    sharing = make(2)
    sharing.decide(0.0, 1)
    [first] = holders(sharing)
    busy(sharing, PIN, in_flight=0)
    sharing.decide(PIN, 1)
    busy(sharing, PIN + SETTLE, in_flight=0)
    sharing.decide(PIN + SETTLE, 1)
    assert holders(sharing) == {1 - first}


def test_a_holder_with_a_message_blocks_the_place():
    """The turn passes on only when the message of the last one is answered."""
    sharing = make(2)
    sharing.decide(0.0, 1)
    [first] = holders(sharing)
    sharing.links[first].in_flight = 1
    assert sharing.decide(PIN, 1) == [(first, 0)]
    assert sharing.decide(PIN + 100, 1) == []
    assert sharing.wants_more(PIN + 100, 1)
    sharing.links[first].in_flight = 0
    assert sharing.decide(PIN + 100, 1) == [(1 - first, 1)]


def _who_had_turns(sharing, places, until, is_busy=True):
    """Let time pass in small steps; return who had RDY."""
    seen = set()
    now = 0.0
    while now < until:
        if is_busy:
            busy(sharing, now)
        sharing.decide(now, places)
        seen |= holders(sharing)
        now += 0.25
    return seen


@pytest.mark.parametrize("is_busy, turn", [(True, PIN), (False, IDLE)])
@pytest.mark.parametrize("count, places", [(2, 1), (5, 1), (5, 2), (5, 4)])
def test_nobody_starves(count, places, is_busy, turn):
    """Everybody has a turn within as many turns as there are connections."""
    sharing = make(count, seed=count)
    until = (turn + 2 * SETTLE) * count
    assert _who_had_turns(sharing, places, until, is_busy) == set(range(count))


def test_nobody_starves_behind_an_older_turn():
    """A holder whose turn began earlier than that of who waits has one more turn, not all."""
    sharing = make(2)
    sharing.decide(0.0, 1)
    [old] = holders(sharing)
    young = 1 - old
    sharing.links[young].granted = 20.0  # it lost a later turn when max_in_flight shrank
    busy(sharing, PIN)
    assert sharing.decide(PIN, 1) == []
    busy(sharing, 2 * PIN)
    assert sharing.decide(2 * PIN, 1) == [(old, 0)]
    assert sharing.decide(2 * PIN + SETTLE, 1) == [(young, 1)]


def test_turns_pass_one_by_one():
    """When the turns of all holders end together, only as many stop as others wait."""
    sharing = make(5)
    sharing.decide(0.0, 4)
    for now in (PIN, PIN + 0.05, PIN + 0.1):
        busy(sharing, now)
        sharing.decide(now, 4)
        assert len(holders(sharing)) == 3
    sharing.decide(PIN + SETTLE, 4)
    assert len(holders(sharing)) == 4


def test_turns_begin_when_places_become_few():
    """A connection that always had RDY does not lose it the moment the places become few."""
    sharing = make(3)
    for now in range(0, 1000, 5):
        busy(sharing, now)
        sharing.decide(now, 6)
    sharing.decide(996, 1)
    [first] = holders(sharing)
    busy(sharing, 1000)
    assert sharing.decide(1000, 1) == []


# -- whatever happens


class Simulation:
    """Connections with an nsqd each that uses every RDY it may still believe in.

    An RDY that was replaced may be in force, or messages sent under it on their way, until
    SETTLE has passed since.
    """

    def __init__(self, seed, idle=IDLE, pin=PIN):
        self.now = 0.0
        self.sharing = make(0, seed=seed, idle=idle, pin=pin)
        self.history = {}  # key -> [(when it was replaced or None, RDY)]
        self.names = iter(range(1000))
        self.ceiling = 5
        self.paused = self.waiting = self.testing = False
        self.last_load = 0

    @property
    def max_in_flight(self):
        return 0 if self.paused or self.waiting else self.ceiling

    @property
    def limit(self):
        return min(1, self.max_in_flight) if self.testing else self.max_in_flight

    def possible(self, key):
        """Return the highest RDY that the nsqd may act on."""
        return max(
            rdy for until, rdy in self.history[key] if until is None or self.now < until + SETTLE
        )

    def load(self):
        return sum(
            max(self.possible(key), link.in_flight) for key, link in self.sharing.links.items()
        )

    def decide(self):
        before = self.load()
        old = {key: link.rdy for key, link in self.sharing.links.items()}
        for key, rdy in self.sharing.decide(self.now, self.max_in_flight, only_one=self.testing):
            history = self.history[key]
            history[-1] = (self.now, history[-1][1])
            history.append((None, rdy))
        for key, link in self.sharing.links.items():
            assert link.rdy == self.history[key][-1][1]
        assert self.load() <= max(self.limit, before)
        # Raising must fit when all has settled, too.
        links = self.sharing.links.items()
        without = sum(max(min(link.rdy, old[key]), link.in_flight) for key, link in links)
        settled = sum(max(link.rdy, link.in_flight) for _, link in links)
        assert settled <= max(self.limit, without)

    def wants_more(self):
        return self.sharing.wants_more(self.now, self.max_in_flight, only_one=self.testing)

    def _some(self, number):
        keys = list(self.sharing.links)
        return keys[number % len(keys)] if keys else None

    # -- what may happen; ``number`` chooses what or how much

    def add(self, number):
        key = next(self.names)
        self.history[key] = [(None, 0)]
        self.sharing.add(key, (1, 3, 2500)[number % 3], self.now)

    def remove(self, number):
        key = self._some(number)
        self.sharing.remove(key)
        self.history.pop(key, None)

    def arrive(self, number):
        key = self._some(number)
        if key is not None:
            link = self.sharing.links[key]
            for _ in range(1 + number // 7):
                if link.in_flight < self.possible(key):
                    link.in_flight += 1
                    link.last_message = self.now

    def finish(self, number):
        key = self._some(number)
        if key is not None:
            link = self.sharing.links[key]
            link.in_flight = max(0, link.in_flight - 1 - number // 7)

    def set_ceiling(self, number):
        self.ceiling = number

    def pause(self, number):
        self.paused = not self.paused

    def backoff(self, number):
        self.waiting, self.testing = ((False, False), (True, False), (False, True))[number % 3]

    def wait(self, number):
        self.now += (0.1, 0.25, 0.5, 1.0, 9.0, 31.0)[number % 6]

    EVENTS = (add, remove, arrive, arrive, finish, set_ceiling, pause, backoff, wait, wait)

    def play(self, events):
        for index, number in events:
            self.EVENTS[index](self, number)
            self.decide()


_EVENTS = st.lists(st.tuples(st.integers(0, len(Simulation.EVENTS) - 1), st.integers(0, 20)),
                   max_size=60)
_START = [(0, 2), (0, 2), (0, 1)]  # three connections, so that little is wasted


@fuzz
@given(_EVENTS, st.integers(0, 5))
def test_ceiling_holds(events, seed):
    """Whatever happens, what may be out never grows past max_in_flight."""
    Simulation(seed).play(_START + events)


@fuzz
@given(_EVENTS, st.integers(0, 5))
def test_never_stuck(events, seed):
    """Connected, not paused, not backing off: when all is settled some connection has RDY."""
    simulation = Simulation(seed)
    simulation.play(_START + events)
    sharing = simulation.sharing
    simulation.paused = simulation.waiting = False
    simulation.ceiling = max(1, simulation.ceiling)
    simulation.add(2)
    for link in sharing.links.values():
        link.in_flight = 0
    for _ in range(2):  # in the first look a holder's turn may end
        simulation.decide()
        simulation.now += SETTLE
    simulation.decide()
    assert any(levels(sharing))


@fuzz
@given(_EVENTS, st.integers(0, 5))
def test_wants_more_tells(events, seed):
    """Where wants_more is false, no later look would raise anything: nobody needs to look."""
    simulation = Simulation(seed, idle=float("inf"), pin=float("inf"))
    for event in _START + events:
        simulation.play([event])
        if not simulation.wants_more():
            later = copy.deepcopy(simulation)
            for link in later.sharing.links.values():
                link.in_flight = 0
            later.now += 100.0
            before = levels(later.sharing)
            later.decide()
            assert levels(later.sharing) == before


@fuzz
@given(_EVENTS, st.integers(0, 5))
def test_everything_is_given_in_the_end(events, seed):
    """When all is answered and settled, wants_more ends, and the whole ceiling is given out."""
    simulation = Simulation(seed, idle=float("inf"), pin=float("inf"))
    simulation.play(_START + events)
    sharing = simulation.sharing
    for link in sharing.links.values():
        link.in_flight = 0
    for _ in range(3):
        simulation.decide()
        simulation.now += SETTLE
    simulation.decide()
    assert not simulation.wants_more()
    most = sum(link.max_rdy for link in sharing.links.values())
    assert sum(levels(sharing)) == min(simulation.limit, most)
