"""Which nsqds were silent for too long, and when their connections are replaced."""

from types import SimpleNamespace

from nsqclient.consumer.backoff import Phase
from nsqclient.consumer import watchdog
from nsqclient.consumer.watchdog import Observed, SilenceWatch, Watchdog
from tests.support.consumer_context import make_context
from tests.support.virtual_time import VirtualTimer


class World:
    def __init__(self):
        self.watch, self.now = SilenceWatch(2.0), 100.0
        self.state = dict(received=0, rdy=1, in_flight=0, patience=10.0)

    def found_at(self, seconds=60, **state):
        """Seconds until the nsqd is found silent; None if it is not within ``seconds``."""
        self.state.update(state)
        for passed in range(seconds + 1):
            if self.watch.look(self.now, {"a": Observed(**self.state)}):
                return passed
            self.now += 1
        return None


def test_silence_lasts_for_msg_timeout():
    assert World().found_at() == 10


def test_rdy_0_and_messages_in_flight_are_no_silence():
    world = World()
    assert world.found_at(rdy=0) is None
    assert world.found_at(rdy=1, in_flight=1) is None
    assert world.found_at(in_flight=0) == 9


def test_a_message_ends_the_silence():
    world = World()
    assert world.found_at(8) is None
    assert world.found_at(received=1) == 10


def test_time_in_which_the_process_did_not_run_is_no_silence():
    world = World()
    for _ in range(4):
        assert world.found_at(0) is None
        world.now += 70
    assert world.found_at(1) is None


def test_an_empty_channel_is_asked_for_again_after_msg_timeout():
    world = World()
    assert world.found_at() == 10
    world.now += 1
    assert world.found_at() == 9


class Connection:
    """A connection on which nothing arrives."""

    address = place = "nsqd:4150"
    msg_timeout, is_watched, is_retired, delivered_twice = 10.0, True, False, None

    def __init__(self, replace):
        self.counters, self.is_lost = SimpleNamespace(received=0), False
        self.conn = SimpleNamespace(close=lambda reason: replace(self))

    def count_in_flight(self, now):
        return 0

    def post_cls(self):
        pass


def test_connections_that_stay_silent_are_replaced_less_and_less_often(monkeypatch):
    """The test of a backoff waits for a message that is never published."""
    timer, replaced, subs = VirtualTimer(), [], []

    def replace(sub):
        sub.is_lost = True
        replaced.append(timer.now)
        subs[:] = [Connection(replace)]

    monkeypatch.setattr(watchdog.time, "monotonic", lambda: timer.now)
    subs.append(Connection(replace))
    flow = SimpleNamespace(
        rdy_by_connection=lambda: {sub: 1 for sub in subs}, retire=lambda sub: None,
        backoff=SimpleNamespace(phase=Phase.TESTING))
    Watchdog(make_context(timer=timer), flow, lambda sub: None).start()
    timer.advance(1000)
    pauses = [round((after - before) / 10) for before, after in zip(replaced, replaced[1:])]
    assert pauses[:5] == [2, 4, 8, 16, 16]
    subs[0].counters.received = 1  # a message
    del replaced[:]
    timer.advance(30)
    assert len(replaced) == 1
