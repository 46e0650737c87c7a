"""ConnectionManager by value: dials, retries, and forgotten addresses."""

import pytest

from nsqclient.config import Config
from nsqclient.connection.connection import InterruptedSendError
from nsqclient.consumer import connections
from nsqclient.consumer.connections import ConnectionManager, NsqdSources
from nsqclient.discovery import LookupResult
from nsqclient.errors import ConnectError, ConnectionLostError, DiscoveryError
from nsqclient.protocol.events import Endpoint
from tests.support.consumer_context import make_context
from tests.support.inline_thread import InlineThread
from tests.support.virtual_time import VirtualTimer


class FakeSubscription:
    def __init__(self, place, world):
        self.address = place.address
        self.place = place
        self.conn = self
        self._world = world
        self.is_closed = False

    def open(self, deadline):
        self._world.dialed.append((round(self._world.timer.now, 2), self.address))
        failure = self._world.failures.get(self.address)
        if failure is not None:
            raise failure

    def close(self, reason=""):
        self.is_closed = True


class World:
    """A ConnectionManager and the answers of nsqlookupds; tasks and dials run at once."""

    def __init__(self, monkeypatch, nsqds=(), lookupds=(), **options):
        self.monkeypatch = monkeypatch
        self.timer = VirtualTimer()
        self.failures = {}
        self.answers = {}
        self.asked, self.dialed, self.errors, self.connected = [], [], [], []
        self.start_fails = None
        monkeypatch.setattr(connections, "lookup_topic", self.look_up)
        monkeypatch.setattr(connections.time, "monotonic", lambda: self.timer.now)
        self.filter = options.pop("discovery_filter", None)
        context = make_context(
            Config(**options), self.timer, self.timer.put_background, channel="")
        self.connections = self.make(context, NsqdSources(nsqds, lookupds, self.filter))
        self.connections.dials._make_thread = InlineThread

    def make(self, context, sources):
        return ConnectionManager(context, sources, self)

    def start(self):
        self.connections.start()
        self.timer.run_background()

    def look_up(self, lookupd, topic, config):
        answer = self.answer(lookupd)
        return answer if isinstance(answer, LookupResult) else LookupResult(tuple(answer))

    def answer(self, lookupd):
        self.asked.append((self.timer.now, lookupd))
        answer = self.answers.get(lookupd, [])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def make_subscription(self, place):
        return FakeSubscription(place, self)

    def on_connected(self, sub):
        if self.start_fails is not None:
            raise self.start_fails
        self.connected.append(sub)

    def on_error(self, error):
        self.errors.append(error)

    def mark_lost(self, sub):
        """nsqd ends a connection."""
        self.connected.remove(sub)
        self.lost(sub)

    def lost(self, sub, error=None):
        self.connections.lost(sub, error)
        self.timer.run_background()

    def addresses(self):
        return sorted(sub.address for sub in self.connected)


REFUSED = ConnectError("a:1", "connection refused")


def test_pauses_between_failed_dials_grow(monkeypatch, caplog):
    world = World(monkeypatch, ["a:1"], max_reconnect_delay=4.0)
    world.failures["a:1"] = REFUSED
    world.start()
    assert "cannot consume from a:1: connection refused" in caplog.text
    world.timer.advance(20)
    for delay, base in zip(world.timer.delays, [0.5, 1, 2, 4, 4, 4]):
        assert 0.75 * base <= delay <= base
    assert set(world.errors) == {REFUSED}


def test_a_lost_direct_nsqd_is_dialed_at_once(monkeypatch):
    world = World(monkeypatch, ["a:1"])
    world.start()
    world.timer.advance(30)
    world.mark_lost(world.connected[0])
    world.timer.advance(0)
    assert world.dialed == [(0, "a:1"), (30, "a:1")]


@pytest.mark.parametrize("direct", [True, False])
def test_an_nsqd_that_drops_us_at_once_is_not_hammered(monkeypatch, direct):
    if direct:
        world = World(monkeypatch, ["a:1"])
    else:
        world = World(monkeypatch, lookupds=["l:1"])
        world.answers["l:1"] = ["a:1"]
    world.start()
    for _ in range(6000):
        for sub in list(world.connected):
            world.mark_lost(sub)
        world.timer.advance(0.01)
    assert 5 <= len(world.dialed) <= (12 if direct else 45)


def test_a_dial_that_fails_oddly_is_repeated(monkeypatch):
    world = World(monkeypatch, ["a:1"])
    world.failures["a:1"] = ValueError("odd")
    world.start()
    del world.failures["a:1"]
    world.timer.advance(1)
    assert world.addresses() == ["a:1"]


def test_a_connection_that_cannot_be_started_is_closed_and_dialed_again(monkeypatch, caplog):
    world = World(monkeypatch, ["a:1"])
    subs = []
    make = world.make_subscription
    world.make_subscription = lambda target: subs.append(make(target)) or subs[-1]
    world.start_fails = RuntimeError("can't start new thread")
    world.start()
    world.start_fails = None
    assert subs[0].is_closed


def test_all_nsqlookupds_are_asked_and_their_answers_united(monkeypatch):
    world = World(monkeypatch, lookupds=["l:1", "l:2", "l:3"])
    world.answers = {"l:1": ["a:1", "a:1"], "l:2": DiscoveryError("l:2", "no"), "l:3": ["b:1"]}
    world.start()
    assert world.addresses() == ["a:1", "b:1"]
    assert [str(error) for error in world.errors] == [str(world.answers["l:2"])]


def test_a_topic_with_unreachable_nsqds_is_asked_for_soon(monkeypatch):
    """Neither an old registration nor an nsqlookupd without the topic delays the first message."""
    world = World(monkeypatch, lookupds=["l:1", "l:2"], lookupd_poll_jitter=0)
    world.answers = {"l:1": ["dead:1"], "l:2": []}
    world.failures["dead:1"] = ConnectError("dead:1", "connection refused")
    world.start()
    world.timer.advance(200)
    rounds = [at for at, lookupd in world.asked if lookupd == "l:2"]
    assert rounds == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    world.answers["l:2"] = ["a:1"]
    world.timer.advance(60)
    assert world.addresses() == ["a:1"]


def test_after_a_loss_rounds_come_soon_until_all_are_back(monkeypatch):
    world = World(monkeypatch, lookupds=["l:1"], lookupd_poll_jitter=0)
    world.answers["l:1"] = ["a:1"]
    world.start()
    world.timer.advance(30)
    world.answers["l:1"] = []
    del world.timer.delays[:]
    world.mark_lost(world.connected[0])
    world.timer.advance(5)
    for delay, base in zip(world.timer.delays, [0.5, 1, 2, 4]):
        assert 0.75 * base <= delay <= base
    world.answers["l:1"] = ["a:1"]
    world.timer.advance(20)
    assert world.addresses() == ["a:1"]
    assert world.timer.delays[-1] == 60


def test_what_left_every_nsqlookupd_is_forgotten_when_it_is_dead(monkeypatch):
    """A live connection is kept however long nobody lists it."""
    world = World(monkeypatch, lookupds=["l:1"])
    world.answers["l:1"] = ["a:1"]
    world.start()
    world.answers["l:1"] = []
    world.timer.advance(3600)
    assert world.addresses() == ["a:1"]
    world.mark_lost(world.connected[0])
    world.timer.advance(120)
    assert world.connections.subscriptions() == []
    world.answers["l:1"] = ["a:1"]
    world.timer.advance(120)
    assert world.addresses() == ["a:1"]


def test_what_is_being_dialed_is_not_forgotten(monkeypatch):
    """A round in the middle of a dial leaves one connection, that stop() knows."""
    monkeypatch.setattr(connections, "_FORGET_AFTER", 0.0)
    world = World(monkeypatch, lookupds=["l:1"])
    world.answers["l:1"] = ["a:1"]
    world.failures["a:1"] = REFUSED
    world.start()
    del world.failures["a:1"]

    def open_slowly(sub, deadline):
        if len(world.dialed) < 5:
            world.dialed.append((0, sub.address))
            world.timer.now += 1
            world.connections.poll()
            world.timer.run_background()

    monkeypatch.setattr(FakeSubscription, "open", open_slowly)
    world.timer.advance(1)
    assert world.addresses() == ["a:1"]
    assert world.connections.stop() == world.connected


@pytest.mark.parametrize("bad", [lambda found: 1 / 0, lambda found: [[]]])
def test_a_filter_that_fails_stops_nothing(monkeypatch, bad, caplog):
    filters = [bad, lambda found: found]
    world = World(
        monkeypatch, lookupds=["l:1"], lookupd_poll_interval=1,
        discovery_filter=lambda found: filters.pop(0)(found) if filters else found,
    )
    world.answers["l:1"] = ["a:1"]
    world.start()
    assert "discovery_filter" in caplog.text
    world.timer.advance(2)
    assert world.addresses() == ["a:1"]


def test_nothing_is_dialed_or_asked_after_stop(monkeypatch):
    world = World(monkeypatch, ["a:1"], ["l:1"])
    world.answers["l:1"] = ["b:1"]
    world.start()
    subs = world.connections.stop()
    assert sorted(sub.address for sub in subs) == ["a:1", "b:1"]
    before = len(world.dialed)
    for sub in subs:
        world.mark_lost(sub)
    world.timer.advance(1000)
    assert len(world.dialed) == before
    assert world.connections.subscriptions() == []


def test_the_last_failure_says_why_there_is_no_connection(monkeypatch):
    world = World(monkeypatch, lookupds=["l:1"])
    world.answers["l:1"] = DiscoveryError("l:1", "down")
    world.start()
    assert world.connections.last_failure is world.answers["l:1"]
    world.answers["l:1"] = []
    world.timer.advance(100)
    assert str(world.connections.last_failure) == "no nsqlookupd lists the topic t"
    world.answers["l:1"] = LookupResult(problem="nsqd announces '[::1]'")
    world.timer.advance(100)
    assert str(world.connections.last_failure) == "nsqd announces '[::1]'"
    world.answers["l:1"], world.failures["a:1"] = ["a:1"], REFUSED
    world.timer.advance(100)
    assert world.connections.last_failure is REFUSED
    world.failures.clear()
    world.timer.advance(1000)
    sub, = world.connected
    world.failures["a:1"] = ConnectError("a:1", "again")
    gone = ConnectionLostError("a:1", "gone")
    world.connections.stop()
    world.lost(sub, gone)
    assert world.connections.last_failure is gone


class Slots:
    """Threads that begin when a test says so: ``run()`` lets the dials go on."""

    def __init__(self):
        self.waiting = []

    def __call__(self, target, name):
        slots = self

        class Thread(InlineThread):
            def launch(self):
                slots.waiting.append(self)

        return Thread(target, name)

    def run(self):
        while self.waiting:
            self.waiting.pop(0)._target()


def names(count, host="silent"):
    return [f"{host}{number}:1" for number in range(count)]


def test_what_no_nsqlookupd_names_any_more_is_not_dialed(monkeypatch):
    world = World(monkeypatch, ["d:1"], ["l:1", "l:2"], lookupd_poll_jitter=0)
    slots = world.connections.dials._make_thread = Slots()
    world.answers = {"l:1": ["a:1", "b:1", "d:1"], "l:2": ["b:1"]}
    world.start()
    world.answers["l:1"] = []
    world.timer.advance(60)
    slots.run()
    assert world.addresses() == ["b:1", "d:1"]
    assert set(world.connections._entries) == {Endpoint("b:1"), Endpoint("d:1")}


def test_a_new_nsqd_that_fails_is_dialed_again_without_asking_nsqlookupds(monkeypatch):
    world = World(monkeypatch, lookupds=["l:1"])
    world.answers["l:1"] = ["a:1", "b:1"]
    world.failures["a:1"] = REFUSED
    world.start()
    world.timer.advance(50)
    times = [at for at, address in world.dialed if address == "a:1"]
    assert len(world.asked) == 1 and 6 <= len(times) <= 9
    assert all(later > 1.4 * earlier for earlier, later in zip(times[2:], times[3:]))


def test_connections_that_interrupts_end_do_not_slow_down_the_next(monkeypatch):
    """nsqd had no part in their ends: however many there were, it is dialed at once."""
    world = World(monkeypatch, ["a:1"])
    world.start()
    place = Endpoint("a:1")
    for _ in range(20):
        sub = world.connections._entries[place].sub
        assert sub is not None
        world.lost(sub, InterruptedSendError("a:1", "interrupted while sending"))
    assert world.connections._entries[place].failures == 0
