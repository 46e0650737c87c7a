"""How much of max_in_flight the handlers finish in time, and sharing it out as RDY."""

import copy
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsqclient.consumer.rdy import WINDOW, LevelReason, RdyDistributor, RdyLevel, Snapshot
from tests.support.fuzz import fuzz

SETTLE, IDLE, PIN = 0.5, 10.0, 30.0


def make(count, *, max_rdy=2500, idle=IDLE, pin=PIN, seed=0, **options):
    """Return a distributor with connections 0, 1, 2... added at time 0."""
    distributor = RdyDistributor(SETTLE, idle, pin, random.Random(seed), **options)
    for key in range(count):
        distributor.add(key, max_rdy, 0.0)
    return distributor


def levels(distributor):
    return [state.rdy for state in distributor.states.values()]


def busy(distributor, now, in_flight=0):
    for state in distributor.states.values():
        state.last_message = now
        state.in_flight = in_flight


def decide(distributor, now, max_in_flight, only_one=False):
    """Return what must be sent: pairs of key and RDY."""
    changes = distributor.decide(now, max_in_flight, level=max_in_flight, only_one=only_one)
    return [(state.key, state.rdy) for state in changes]


def wants_more(distributor, now, max_in_flight, only_one=False):
    return distributor.wants_more(now, max_in_flight, level=max_in_flight, only_one=only_one)


# -- even shares


@pytest.mark.parametrize("count, max_in_flight, shares", [
    (1, 1, [1]), (1, 10, [10]), (2, 10, [5, 5]), (3, 10, [3, 3, 4]), (3, 11, [3, 4, 4]),
    (4, 4, [1] * 4), (3, 0, [0] * 3), (0, 5, []),
])
def test_connections_get_even_shares(count, max_in_flight, shares):
    distributor = make(count)
    changes = decide(distributor, 0.0, max_in_flight)
    assert sorted(levels(distributor)) == shares
    assert dict(changes) == {
        key: state.rdy for key, state in distributor.states.items() if state.rdy
    }


def test_nothing_is_sent_twice():
    distributor = make(3)
    decide(distributor, 0.0, 10)
    assert decide(distributor, 0.0, 10) == decide(distributor, 5.0, 10) == []
    assert not wants_more(distributor, 5.0, 10)


@pytest.mark.parametrize("max_rdys, max_in_flight, shares", [
    ([2500], 10_000, [2500]),
    ([1, 2500], 10, [1, 9]),
    ([2500, 1, 3], 30, [26, 1, 3]),
    ([2, 2], 10, [2, 2]),
])
def test_no_share_is_above_max_rdy_count(max_rdys, max_in_flight, shares):
    distributor = make(0)
    for key, max_rdy in enumerate(max_rdys):
        distributor.add(key, max_rdy, 0.0)
    decide(distributor, 0.0, max_in_flight)
    assert levels(distributor) == shares
    assert not wants_more(distributor, 0.0, max_in_flight)


# -- the ceiling


def test_a_share_is_raised_after_the_lowered_one_has_settled():
    distributor = make(1)
    decide(distributor, 0.0, 10)
    distributor.add(1, 2500, 1.0)
    assert decide(distributor, 1.0, 10) == [(0, 5)]
    assert wants_more(distributor, 1.0, 10)
    assert decide(distributor, 1.0 + SETTLE - 0.01, 10) == []
    assert decide(distributor, 1.0 + SETTLE, 10) == [(1, 5)]
    assert not wants_more(distributor, 1.0 + SETTLE, 10)


def test_a_ceiling_of_zero_stops_the_flow_and_a_higher_one_restarts_it():
    """After a pause the old levels come back at once: they are counted still."""
    distributor = make(2)
    decide(distributor, 0.0, 10)
    assert sorted(decide(distributor, 1.0, 0)) == [(0, 0), (1, 0)]
    assert not wants_more(distributor, 1.0, 0)
    assert sorted(decide(distributor, 1.1, 10)) == [(0, 5), (1, 5)]
    assert distributor.load(1.1) == 10


def test_levels_settle_one_by_one():
    """A second lowering does not make the first, higher level last longer."""
    distributor = make(1)
    decide(distributor, 0.0, 10)
    decide(distributor, 1.0, 3)
    decide(distributor, 1.4, 2)
    assert [distributor.load(now) for now in (1.4, 1.5, 1.8, 1.9)] == [10, 3, 3, 2]


def test_a_test_gives_rdy_1_to_one_connection():
    distributor = make(3)
    decide(distributor, 0.0, 0)
    changes = decide(distributor, 0.0, 10, only_one=True)
    assert [rdy for _, rdy in changes] == [1]
    assert distributor.load(0.0) == 1
    assert decide(make(3), 0.0, 0, only_one=True) == []


def test_a_test_waits_for_what_is_out():
    distributor = make(2)
    distributor.states[0].in_flight = distributor.states[1].in_flight = 2
    assert wants_more(distributor, 0.0, 10, only_one=True)
    [(_, rdy)] = decide(distributor, 0.0, 10, only_one=True)
    assert rdy == 1  # on a connection that has two out already: nothing comes
    assert distributor.load(0.0) == 4


def test_little_headroom_goes_to_connections_without_rdy():
    for seed in range(10):
        distributor = make(3, seed=seed)
        distributor.states[0].rdy = distributor.states[2].rdy = 1
        distributor.states[0].in_flight = 2
        assert decide(distributor, 0.0, 4) == [(1, 1)]
        assert wants_more(distributor, 0.0, 4)


# -- idle and busy


def test_idle_connections_keep_one():
    distributor = make(3)
    decide(distributor, 0.0, 12)
    distributor.states[0].last_message = 9.0
    assert sorted(decide(distributor, IDLE, 12)) == [(1, 1), (2, 1)]
    assert decide(distributor, IDLE + SETTLE, 12) == [(0, 10)]
    distributor.states[1].last_message = 11.0
    distributor.states[1].in_flight = 1
    assert decide(distributor, 11.0, 12) == [(0, 5)]
    assert decide(distributor, 11.0 + SETTLE, 12) == [(1, 6)]


def test_a_long_message_is_no_idleness():
    distributor = make(2)
    decide(distributor, 0.0, 10)
    busy(distributor, 0.0, in_flight=1)
    assert decide(distributor, 1000.0, 10) == []


# -- fewer places than connections


def holders(distributor):
    return {key for key, state in distributor.states.items() if state.rdy}


def test_with_fewer_places_than_connections_some_have_rdy_1():
    distributor = make(5)
    decide(distributor, 0.0, 2)
    assert sorted(levels(distributor)) == [0, 0, 0, 1, 1]
    first = holders(distributor)
    busy(distributor, IDLE, in_flight=0)
    assert decide(distributor, IDLE + 1, 2) == []
    assert holders(distributor) == first


def test_a_holder_with_a_message_blocks_the_place():
    distributor = make(2)
    decide(distributor, 0.0, 1)
    [first] = holders(distributor)
    distributor.states[first].in_flight = 1
    assert decide(distributor, PIN, 1) == [(first, 0)]
    assert decide(distributor, PIN + 100, 1) == []
    assert wants_more(distributor, PIN + 100, 1)
    distributor.states[first].in_flight = 0
    assert decide(distributor, PIN + 100, 1) == [(1 - first, 1)]


def test_turns_pass_one_by_one():
    """When the turns of all holders end together, only as many stop as others wait."""
    distributor = make(5)
    decide(distributor, 0.0, 4)
    for now in (PIN, PIN + 0.05, PIN + 0.1):
        busy(distributor, now)
        decide(distributor, now, 4)
        assert len(holders(distributor)) == 3
    decide(distributor, PIN + SETTLE, 4)
    assert len(holders(distributor)) == 4


# -- whatever happens


class Simulation:
    """Connections with an nsqd each that uses every RDY it may still believe in.

    An RDY that was replaced may be in force, or messages sent under it on their way, until
    SETTLE has passed since.
    """

    def __init__(self, seed, idle=IDLE, pin=PIN):
        self.now = 0.0
        self.distributor = make(0, seed=seed, idle=idle, pin=pin)
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
        return max(
            rdy for until, rdy in self.history[key] if until is None or self.now < until + SETTLE
        )

    def load(self):
        return sum(
            max(self.possible(key), state.in_flight)
            for key, state in self.distributor.states.items()
        )

    def decide(self):
        before = self.load()
        old = {key: state.rdy for key, state in self.distributor.states.items()}
        for key, rdy in decide(
            self.distributor, self.now, self.max_in_flight, only_one=self.testing
        ):
            history = self.history[key]
            history[-1] = (self.now, history[-1][1])
            history.append((None, rdy))
        for key, state in self.distributor.states.items():
            assert state.rdy == self.history[key][-1][1]
        assert self.load() <= max(self.limit, before)
        # Raising must fit when all has settled, too.
        states = self.distributor.states.items()
        without = sum(max(min(state.rdy, old[key]), state.in_flight) for key, state in states)
        settled = sum(max(state.rdy, state.in_flight) for _, state in states)
        assert settled <= max(self.limit, without)

    def wants_more(self):
        return wants_more(
            self.distributor, self.now, self.max_in_flight, only_one=self.testing)

    def _some(self, number):
        keys = list(self.distributor.states)
        return keys[number % len(keys)] if keys else None

    # -- what may happen; ``number`` chooses what or how much

    def add(self, number):
        key = next(self.names)
        self.history[key] = [(None, 0)]
        self.distributor.add(key, (1, 3, 2500)[number % 3], self.now)

    def remove(self, number):
        key = self._some(number)
        self.distributor.remove(key)
        self.history.pop(key, None)

    def arrive(self, number):
        key = self._some(number)
        if key is not None:
            state = self.distributor.states[key]
            for _ in range(1 + number // 7):
                if state.in_flight < self.possible(key):
                    state.in_flight += 1
                    state.last_message = self.now

    def finish(self, number):
        key = self._some(number)
        if key is not None:
            state = self.distributor.states[key]
            state.in_flight = max(0, state.in_flight - 1 - number // 7)

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
def test_the_ceiling_holds_whatever_happens(events, seed):
    Simulation(seed).play(_START + events)


@fuzz
@given(_EVENTS, st.integers(0, 5))
@example([(7, 14), (8, 10)], 0)  # the turn ends in the third look
def test_the_flow_is_never_stuck(events, seed):
    """Connected, not paused, not backing off: when all is settled some connection has RDY."""
    simulation = Simulation(seed)
    simulation.play(_START + events)
    distributor = simulation.distributor
    simulation.paused = simulation.waiting = False
    simulation.ceiling = max(1, simulation.ceiling)
    simulation.add(2)
    for state in distributor.states.values():
        state.in_flight = 0
    has_rdy = []
    for _ in range(5):
        simulation.decide()
        has_rdy.append(any(levels(distributor)))
        simulation.now += SETTLE
    # In the first look, and in a later one, a holder's turn may end: the next one begins when the
    # RDY of the last has settled.
    assert all(one or after for one, after in zip(has_rdy[1:], has_rdy[2:]))


@fuzz
@given(_EVENTS, st.integers(0, 5))
def test_wants_more_says_whether_another_look_is_needed(events, seed):
    simulation = Simulation(seed, idle=float("inf"), pin=float("inf"))
    for event in _START + events:
        simulation.play([event])
        if not simulation.wants_more():
            later = copy.deepcopy(simulation)
            for state in later.distributor.states.values():
                state.in_flight = 0
            later.now += 100.0
            before = levels(later.distributor)
            later.decide()
            assert levels(later.distributor) == before


@fuzz
@given(_EVENTS, st.integers(0, 5))
def test_everything_is_given_in_the_end(events, seed):
    simulation = Simulation(seed, idle=float("inf"), pin=float("inf"))
    simulation.play(_START + events)
    distributor = simulation.distributor
    for state in distributor.states.values():
        state.in_flight = 0
    for _ in range(3):
        simulation.decide()
        simulation.now += SETTLE
    simulation.decide()
    assert not simulation.wants_more()
    most = sum(state.max_rdy for state in distributor.states.values())
    assert sum(levels(distributor)) == min(simulation.limit, most)


def longest_waits(states, places, idle, interval, settle, seconds=200.0, seed=1):
    """Idle connections for so long; return the longest time that each went without RDY."""
    distributor = RdyDistributor(settle, idle, max(idle, 1.0), random.Random(seed))
    all_states = [distributor.add(n, 2500, 0.0) for n in range(states)]
    now, next_look, retry = 0.0, 0.0, None
    had, longest = [0.0] * states, [0.0] * states
    while now < seconds:
        now = min(next_look, retry if retry is not None else next_look)
        if now >= next_look:
            next_look += interval
        decide(distributor, now, places)
        assert distributor.load(now) <= places
        retry = distributor.next_settled(now) if wants_more(distributor, now, places) else None
        for state in all_states:
            if state.rdy:
                had[state.key] = now
            longest[state.key] = max(longest[state.key], now - had[state.key])
    return longest


@pytest.mark.parametrize("states, places", [(2, 1), (5, 1), (10, 8), (10, 9), (12, 5), (7, 6)])
@pytest.mark.parametrize("idle, interval, settle", [
    (1.0, 0.2, 0.5), (1.0, 0.5, 0.5), (1.0, 0.2, 2.0), (10.0, 5.0, 0.5), (1.0, 0.05, 0.5),
])
def test_every_connection_gets_its_turn(states, places, idle, interval, settle):
    """Within the time that all others need for a turn each, settling included, or two of them."""
    waits = longest_waits(states, places, idle, interval, settle)
    turns = states / places
    assert max(waits) <= 2 * (turns + 1) * (idle + interval + settle)


@pytest.mark.parametrize("seed", range(5))
def test_connections_in_different_phases_all_get_a_turn(seed):
    """Where turns begin at different times, a level that has not settled takes nobody's turn."""
    chance = random.Random(seed)
    distributor = RdyDistributor(0.5, 1.0, 1.0, chance)
    states = [distributor.add(n, 2500, 0.0) for n in range(10)]
    for n, state in enumerate(states):  # pairs, 0.4 s apart, as found in a simulation
        state.rdy = int(n < 8)
        state.granted = -0.4 * (n // 2) if n < 8 else -500.0
    starved = {state.key for state in states if not state.rdy}
    now = 0.0
    while now < 20 and starved:
        now += 0.1
        decide(distributor, now, 8)
        starved -= {state.key for state in states if state.rdy}
    assert not starved


def test_after_a_shrink_the_number_out_only_falls():
    """More is out than may be: an answered message is not replaced, though its level is free."""
    distributor = RdyDistributor(0.5, 10.0, 30.0, random.Random(1))
    states = [distributor.add(n, 2500, 0.0) for n in range(3)]
    for state in states:
        state.in_flight = 1
    states[2].granted = 1.0  # the last in line: its message may take as long as it likes
    (raised, count), = decide(distributor, 2.0, 2)
    assert count == 1
    states[1 - raised].in_flight = 0
    assert distributor.load(2.0) == 2
    assert decide(distributor, 2.0, 2) == []


# -- the level

#: One worker and connection, and half a second for the messages in flight.
SEEN = Snapshot(max_in_flight=1000, workers=1, connections=1, msg_timeout=1.0, arrived=0,
                longest_running=0.0)


def make_level(*handler_times, value=0, share=0.5, now=0.0, **seen):
    """Return a RdyLevel that had ``value`` and looked once, after handlers of these times."""
    level = RdyLevel(share)
    level.value = value
    level.handler_times.extend(handler_times)
    level.look(now, SEEN._replace(**seen))
    return level


@pytest.mark.parametrize("workers, connections, value", [(1, 1, 1), (8, 1, 8), (2, 5, 5)])
def test_the_first_level_is_one_for_each_worker_and_each_connection(workers, connections, value):
    level = make_level(workers=workers, connections=connections)
    assert (level.value, level.reason, level.handler_time) == (value, LevelReason.START, None)


def test_the_level_doubles_whenever_as_many_messages_have_arrived():
    level = make_level()
    level.handler_times.append(1e-6)
    levels = []
    for arrived in range(2000):
        if level.look(0.0, SEEN._replace(arrived=arrived)):
            levels.append((arrived, level.value))
    assert levels[:4] == [(1, 2), (3, 4), (7, 8), (15, 16)]
    assert levels[7:] == [(127 + WINDOW, 256)] + [
        (255 + WINDOW * n, min(1000, 256 * 2 ** n)) for n in (1, 2)] or levels[-1][1] == 1000
    assert level.reason is LevelReason.MAX_IN_FLIGHT


@pytest.mark.parametrize("handler_time, workers, msg_timeout, share, value", [
    (0.005, 1, 1.0, 0.5, 100), (0.005, 8, 1.0, 0.5, 800), (0.005, 1, 1.0, 1.0, 200),
    (0.005, 1, 2.0, 0.5, 200), (0.0006, 1, 1.0, 0.5, 833), (0.4, 1, 1.0, 0.5, 1),
])
def test_what_is_in_flight_is_handled_within_the_share(
    handler_time, workers, msg_timeout, share, value
):
    level = make_level(
        handler_time, value=1000, workers=workers, msg_timeout=msg_timeout, share=share)
    assert (level.value, level.reason) == (value, LevelReason.HANDLER_TIME)


@pytest.mark.parametrize("workers", [1, 8])
def test_each_worker_has_one_message_however_long_it_takes(workers):
    assert make_level(100.0, value=1000, workers=workers).value == workers


def test_the_slowest_of_the_last_handlers_counts():
    """A slow handler holds up all messages behind it; it is forgotten in time."""
    level = make_level(*[0.001] * WINDOW, value=500)
    assert level.value == 500
    level.handler_times.append(0.1)
    level.look(0.0, SEEN)
    assert (level.value, level.handler_time) == (5, 0.1)
    level.handler_times.extend([0.001] * WINDOW)
    level.look(0.0, SEEN._replace(arrived=5))
    assert level.value == 10


@pytest.mark.parametrize("handler_time", [0.0051, 0.006, 0.0098])
def test_the_level_does_not_oscillate(handler_time):
    level = make_level(0.0098, value=1000)
    assert level.value == 51
    for arrived in range(1000):
        level.handler_times.clear()
        level.handler_times.append(handler_time if arrived % 2 else 0.0098)
        assert not level.look(0.0, SEEN._replace(arrived=arrived))


@pytest.mark.parametrize("change", [{"max_in_flight": 0}, {"max_in_flight": 1}, {"workers": 8}])
def test_no_change_leaves_a_level_of_zero(change):
    level = make_level(**change)
    level.hold(until=5.0)
    for now in (1.0, 5.0):
        level.look(now, SEEN._replace(**change))
        assert level.value >= 1
