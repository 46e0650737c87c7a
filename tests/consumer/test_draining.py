"""When a drain is over, and what it asks for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nsqclient.config import Config
from nsqclient.consumer.draining import (
    TICK, Drain, DrainRules, DrainState, Step, check_http_addresses, check_rules, decide,
)
from nsqclient.consumer.lifecycle_log import LifecycleLogger
from nsqclient.errors import ConfigError, ConnectError
from nsqclient.http.channel_depth import ChannelDepth, ChannelDepths

EMPTY = ChannelDepths({"a:1": ChannelDepth(0, 0, 1)})
UNKNOWN = ChannelDepths({}, {"a:1": "refused"})
RULES = DrainRules(idle=2.0, stall=30.0)
#: Nothing is left, and was asked for twice.
DONE = DrainState(depths=EMPTY, empty_answers=2)


def with_depth(**counts):
    """What one nsqd says that has these."""
    return ChannelDepths({"a:1": ChannelDepth(0, 0, 1)._replace(**counts)})


@pytest.mark.parametrize("change, step", [
    ({}, Step.END),
    ({"depths": None}, Step.WAIT),
    ({"empty_answers": 1}, Step.WAIT),
    ({"depths": with_depth(depth=3)}, Step.WAIT),
    ({"depths": with_depth(depth=3), "quiet": 30.0}, Step.FAIL_STALLED),
    ({"depths": with_depth(depth=3, is_paused=True)}, Step.END),
    ({"depths": with_depth(in_flight=3), "quiet": 99.0}, Step.WAIT),
    ({"depths": with_depth(in_flight=3), "own": 3}, Step.FLUSH),
    ({"depths": with_depth(depth=1, in_flight=3), "own": 3}, Step.WAIT),
    ({"depths": with_depth(deferred=3)}, Step.END),
])
def test_a_drain_is_over_when_nothing_waits_and_nothing_is_in_flight(change, step):
    """Asked for twice; a last batch that is not full is handled before."""
    assert decide(RULES, DONE._replace(**change)) is step


@pytest.mark.parametrize("change, step", [
    ({"quiet": 1.9}, Step.WAIT),
    ({"quiet": 2.0}, Step.END),
    ({"quiet": 2.0, "are_all_connected": False}, Step.WAIT),
    ({"quiet": 5.0, "are_all_connected": False}, Step.END),
    ({"quiet": 1.9, "own": 3}, Step.WAIT),
    ({"quiet": 2.0, "own": 3}, Step.FLUSH),
    ({"quiet": 2.0, "requeued_for": 60.0}, Step.END),
    ({"quiet": 9.0, "depths": ChannelDepths(with_depth(depth=1).known, {"b:1": "x"})}, Step.WAIT),
    ({"quiet": 9.0, "depths": ChannelDepths(with_depth(in_flight=1).known, {"b:1": "x"})},
     Step.WAIT),
])
def test_where_the_depth_is_unknown_a_silence_is_the_end(change, step):
    """Of every connection; what the other nsqds say still counts."""
    state = DrainState(depths=UNKNOWN, silence=99.0)
    assert decide(RULES, state._replace(**change)) is step


def test_deferred_messages_are_waited_for_where_that_was_asked_for():
    """Also one's own where the depth is unknown."""
    rules = RULES._replace(wait_deferred=True)
    assert decide(rules, DONE._replace(depths=with_depth(deferred=1))) is Step.WAIT
    assert decide(rules, DONE) is Step.END
    silent = DrainState(depths=UNKNOWN, quiet=9.0, requeued_for=60.0)
    assert decide(rules, silent) is Step.WAIT
    assert decide(rules, silent._replace(requeued_for=-1.9)) is Step.WAIT
    assert decide(rules, silent._replace(requeued_for=-2.0)) is Step.END


def test_messages_that_a_loop_holds_do_not_keep_it():
    """Else it would wait for itself; those of other consumers count."""
    rules = RULES._replace(is_loop=True)
    held = DONE._replace(depths=with_depth(in_flight=3), own=3, silence=2.0)
    assert decide(rules, held) is Step.END
    assert decide(rules, held._replace(silence=1.9)) is Step.WAIT
    assert decide(rules, held._replace(depths=with_depth(in_flight=4))) is Step.WAIT


@pytest.mark.parametrize("change, step", [
    ({}, Step.WAIT),
    ({"is_topic_unknown": True}, Step.FAIL_UNKNOWN_TOPIC),
    ({"disconnected": 4.9, "has_failed": True}, Step.WAIT),
    ({"disconnected": 5.0, "has_failed": True}, Step.FAIL_UNREACHABLE),
    ({"disconnected": 99.0}, Step.WAIT),
])
def test_a_drain_without_any_connection_fails(change, step):
    """When no nsqlookupd knows the topic, or nsqds had time enough to come back."""
    assert decide(RULES, DONE._replace(is_connected=False, **change)) is step


def test_bad_arguments_are_refused():
    """With what to write."""
    config = Config()
    for idle in (0, -1, "x"):
        with pytest.raises(ConfigError, match="idle"):
            check_rules(idle, False, config, discovers=False, is_loop=False)
    with pytest.raises(ConfigError, match="nsqd_http_addresses must be a list"):
        check_http_addresses("a:4151,b:4151")
    with pytest.raises(ConfigError, match="nsqd_http_addresses must be a list"):
        check_http_addresses(7)
    with pytest.raises(ConfigError, match="nsqd_http_address"):
        check_http_addresses(["a"])


def test_a_stall_lasts_longer_than_a_round_of_lookups():
    """An nsqd that registered just now is found in the next one."""
    config = Config(lookupd_poll_interval=100, lookupd_poll_jitter=0.5)
    rules = check_rules(2, False, config, discovers=True, is_loop=False)
    assert rules.stall == 160.0
    assert check_rules(40, False, config, discovers=False, is_loop=False).stall == 40.0


class Bench:
    """A drain of a consumer with two connections, with a clock and answers of the test's."""

    def __init__(self, monkeypatch, depths, **rules):
        self.now, self.depths, self.asked = 1000.0, depths, 0
        monkeypatch.setattr(
            "nsqclient.consumer.draining.time", SimpleNamespace(monotonic=lambda: self.now))
        self.subs = [self.make_sub("a:1"), self.make_sub("b:1")]
        counters = SimpleNamespace(finished=0, requeued=0, given_up=0)
        self.manager = SimpleNamespace(
            addresses=lambda: {"a:1", "b:1"}, incompatibility=None, last_failure=None)
        self.drain = Drain(
            DrainRules(**rules), lambda: self, lambda task: task(), self.manager,
            lambda: list(self.subs), lambda: 0.0, lambda: SimpleNamespace(total=counters),
            lambda: 0, lambda: None, LifecycleLogger("t", "c"), "t", "a:1, b:1",
        )

    @staticmethod
    def make_sub(address):
        return SimpleNamespaceWithHash(
            place=SimpleNamespaceWithHash(address), rdy_state=SimpleNamespace(
                rdy=1, last_message=0.0), requeued_until=0.0, in_flight=0)

    def fetch(self):
        self.asked += 1
        return self.depths

    def is_topic_unknown(self):
        return False

    def looks(self, most=1000):
        """Look every TICK; return after how many seconds it was over."""
        began = self.now
        while not self.drain.is_over():
            self.now += TICK
            most -= 1
            assert most
        return round(self.now - began, 1)


class SimpleNamespaceWithHash(SimpleNamespace):
    """A connection, and the place of one."""

    __hash__ = object.__hash__

    def __init__(self, address="", partition=None, **attributes):
        super().__init__(address=address, partition=partition, **attributes)

    def __str__(self):
        return self.address

    def count_in_flight(self, now):
        return self.in_flight


def test_two_empty_answers_in_a_row_take_a_moment(monkeypatch):
    """Two more after a message, or the end of a connection."""
    bench = Bench(monkeypatch, EMPTY)
    assert 0.1 <= bench.looks() <= 0.6 and bench.asked >= 2
    for change in (lambda: setattr(bench.subs[0].rdy_state, "last_message", 7.0),
                   lambda: bench.subs.append(bench.make_sub(bench.subs.pop().place.address))):
        change()
        before = bench.asked
        assert 0.1 <= bench.looks() <= 0.6 and bench.asked >= before + 2


def test_a_connection_is_quiet_while_it_has_rdy_to_spare(monkeypatch):
    """Not without RDY, and not with all of it out."""
    assert 2.0 <= Bench(monkeypatch, UNKNOWN, idle=2.0).looks() <= 2.3
    for place, blocked in (("rdy_state.rdy", 0), ("in_flight", 1)):
        bench = Bench(monkeypatch, UNKNOWN, idle=2.0)
        *path, name = place.split(".")
        holder = getattr(bench.subs[1], path[0]) if path else bench.subs[1]
        free = getattr(holder, name)
        setattr(holder, name, blocked)
        for _ in range(100):
            assert not bench.drain.is_over()
            bench.now += TICK
        setattr(holder, name, free)
        assert 1.7 <= bench.looks() <= 2.3


def test_the_time_between_two_looks_is_no_silence(monkeypatch):
    """Such as that of the body of a loop: nobody waited for a message."""
    bench = Bench(monkeypatch, UNKNOWN, idle=2.0)
    for _ in range(5):
        assert not bench.drain.is_over()
        bench.now += 60
    assert bench.looks() >= 0.9


def test_a_time_in_which_the_process_was_suspended_is_not_counted(monkeypatch):
    """Neither as silence, nor as time without a connection, nor as time to wait for a requeue."""
    def suspend(bench):
        for _ in range(3):
            assert not bench.drain.is_over()
            bench.now += 60

    bench = Bench(monkeypatch, EMPTY._replace(known={"a:1": ChannelDepth(0, 1, 1)}), is_loop=True)
    bench.subs[0].in_flight = 1
    suspend(bench)
    assert 1.0 <= bench.looks() <= 2.3
    bench = Bench(monkeypatch, UNKNOWN, wait_deferred=True)
    bench.subs[0].requeued_until = bench.now + 10
    for _ in range(50):
        assert not bench.drain.is_over()
        bench.now += TICK
    suspend(bench)
    assert 1.0 <= bench.looks() <= 2.3
    bench = Bench(monkeypatch, EMPTY)
    bench.subs.clear()
    bench.manager.last_failure = ConnectError("a:1", "refused")
    suspend(bench)
    with pytest.raises(ConnectError, match="no nsqd could be reached for 5"):
        bench.looks()


def test_an_nsqd_that_restarts_is_waited_for(monkeypatch):
    """It may not be listed meanwhile, so that the others alone say that nothing is left."""
    bench = Bench(monkeypatch, EMPTY)
    assert not bench.drain.is_over()
    lost = bench.subs.pop()
    for _ in range(30):
        bench.now += TICK
        assert not bench.drain.is_over()
    bench.subs.append(bench.make_sub(lost.place.address))
    bench.depths = with_depth(depth=1)
    for _ in range(30):
        bench.now += TICK
        assert not bench.drain.is_over()
    bench.depths = EMPTY
    bench.subs[1].rdy_state.last_message = 7.0
    assert bench.looks() <= 1.0


@pytest.mark.parametrize(("idle", "longest"), [(2.0, 5.5), (8.0, 8.5)])
def test_an_nsqd_that_stays_away_does_not_keep_a_drain(monkeypatch, idle, longest):
    """It has the time in which a restarted one connects again."""
    bench = Bench(monkeypatch, EMPTY, idle=idle)
    assert not bench.drain.is_over()
    bench.subs.pop()
    assert longest - 1.0 <= bench.looks() <= longest


def test_an_nsqd_that_is_not_used_any_more_is_not_waited_for(monkeypatch):
    """nsqlookupd has dropped it, or another one leads its partition."""
    bench = Bench(monkeypatch, EMPTY)
    assert not bench.drain.is_over()
    bench.subs.pop()
    bench.manager.addresses = lambda: {"a:1"}
    assert bench.looks() <= 1.0


def test_questions_become_rarer_while_messages_are_waited_for(monkeypatch):
    """Two seconds lie between them at most, and a change makes the next one come soon."""
    bench = Bench(monkeypatch, with_depth(in_flight=1))
    for _ in range(600):
        assert not bench.drain.is_over()
        bench.now += TICK
    assert 28 <= bench.asked <= 40
    bench.depths = EMPTY
    bench.subs[0].rdy_state.last_message = 7.0
    assert bench.looks() <= 0.5
