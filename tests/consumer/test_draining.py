"""The requests of a drain, and its conclusions."""

from types import SimpleNamespace

import pytest

from nsqclient import Consumer
from nsqclient.config import Config
from nsqclient.consumer.drain_decision import ChannelDepth, ChannelDepths, DrainRules
from nsqclient.consumer.draining import TICK, Drain, check_rules
from nsqclient.consumer.context import consumer_log
from nsqclient.errors import ConfigError, ConnectError, PartitionError

EMPTY = ChannelDepths({"a:1": ChannelDepth(0, 0, 1)})
UNKNOWN = ChannelDepths({}, {"a:1": "refused"})


def test_bad_arguments_are_refused():
    config = Config()
    for silence in (0, -1, "x"):
        with pytest.raises(ConfigError, match="end_after_silence"):
            check_rules(silence, False, config, is_loop=False)
    with pytest.raises(ConfigError, match="wait_deferred needs to know"):
        check_rules(2, True, config, is_loop=False)
    consumer = Consumer("t", "c", nsqd_tcp_addresses=["127.0.0.1:1"])
    for addresses, why in (("a:4151,b:4151", "es must be a list"), (7, "es must be a list"),
                           (["a"], "")):
        with pytest.raises(ConfigError, match=f"nsqd_http_address{why}"):
            consumer.drain(nsqd_http_addresses=addresses)
    consumer.stop()


def test_the_rules_of_a_drain_are_checked():
    config = Config(drain_patience=7)
    assert check_rules(None, False, config, is_loop=True) == DrainRules(7.0, is_loop=True)
    assert check_rules(3, False, config, is_loop=False) == DrainRules(7.0, 3.0)


class Bench:
    """A drain of a consumer with two connections, with a clock and answers of the test's."""

    def __init__(self, monkeypatch, depths, **rules):
        self.now, self.depths, self.asked = 1000.0, depths, 0
        monkeypatch.setattr(
            "nsqclient.consumer.draining.time", SimpleNamespace(monotonic=lambda: self.now))
        self.subscriptions = [self.make_sub("a:1"), self.make_sub("b:1")]
        self.listed = frozenset({"a:1", "b:1"})
        self.looked_for = None
        counters = SimpleNamespace(finished=0, requeued=0, given_up=0)
        self.manager = SimpleNamespace(
            worked=lambda: {"a:1", "b:1"}, incompatibility=None, last_failure=None,
            look_for=lambda listed: setattr(self, "looked_for", listed))
        self.core = SimpleNamespace(
            connections=self.manager, flow=self, processor=SimpleNamespace(workers=[]),
            stats=lambda: SimpleNamespace(total=counters), log=consumer_log("t", "c"),
            context=SimpleNamespace(topic="t", run_in_background=lambda task: task()),
            shutdown=SimpleNamespace(has_begun=False), flush_batch=lambda: None,
            shown_addresses=lambda: "a:1, b:1")
        self.drain = Drain(self.core, DrainRules(**rules), self)

    @staticmethod
    def make_sub(address):
        return Hashable(address=address, rdy_state=SimpleNamespace(rdy=1, last_message=0.0),
                        in_flight=0)

    def fetch(self, connected):
        assert connected == {"a:1", "b:1"}
        self.asked += 1
        return self.depths

    def looks(self, most=1000):
        """Look every TICK; return after how many seconds it was over."""
        began = self.now
        while not self.drain.is_over():
            self.now += TICK
            most -= 1
            assert most
        return round(self.now - began, 1)


class Hashable(SimpleNamespace):
    __hash__ = object.__hash__

    def count_in_flight(self, now):
        return self.in_flight


def test_two_empty_answers_in_a_row_take_a_moment(monkeypatch):
    bench = Bench(monkeypatch, EMPTY)
    assert 0.1 <= bench.looks() <= 0.6 and bench.asked >= 2
    assert bench.looked_for == bench.listed
    for change in (lambda: setattr(bench.subscriptions[0].rdy_state, "last_message", 7.0),
                   lambda: bench.subscriptions.append(
                       bench.make_sub(bench.subscriptions.pop().address))):
        change()
        before = bench.asked
        assert 0.1 <= bench.looks() <= 0.6 and bench.asked >= before + 2


def test_a_connection_is_quiet_while_it_has_rdy_to_spare(monkeypatch):
    assert 2.0 <= Bench(monkeypatch, UNKNOWN, silence=2.0).looks() <= 2.6
    for place, blocked in (("rdy_state.rdy", 0), ("in_flight", 1)):
        bench = Bench(monkeypatch, UNKNOWN, silence=2.0)
        *path, name = place.split(".")
        holder = getattr(bench.subscriptions[1], path[0]) if path else bench.subscriptions[1]
        free = getattr(holder, name)
        setattr(holder, name, blocked)
        for _ in range(100):
            assert not bench.drain.is_over()
            bench.now += TICK
        setattr(holder, name, free)
        assert 1.7 <= bench.looks() <= 2.3


def test_an_nsqd_that_stays_away_is_an_error_after_drain_patience(monkeypatch):
    bench = Bench(monkeypatch, EMPTY._replace(unknown={"b:1": "refused"}))
    began = bench.now
    with pytest.raises(ConnectError, match="for 60 s .drain_patience.: b:1: refused"):
        bench.looks()
    assert 60.0 <= bench.now - began <= 61.0


def test_a_topic_that_cannot_be_consumed_is_an_error_at_once(monkeypatch):
    bench = Bench(monkeypatch, EMPTY)
    bench.manager.incompatibility = PartitionError("ordered")
    with pytest.raises(PartitionError, match="ordered"):
        bench.looks()


def test_an_end_that_cannot_be_known_is_an_error_before_the_first_message(monkeypatch):
    depths = UNKNOWN._replace(without_http=("a:1",))
    with pytest.raises(ConfigError, match="nsqd_http_addresses=.*a:1: refused"):
        Bench(monkeypatch, depths).drain.check()
    Bench(monkeypatch, depths, silence=2.0).drain.check()
