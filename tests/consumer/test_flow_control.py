"""FlowControl on a virtual clock, over simulated nsqds: exact commands, and promises for a day."""

import contextlib
import itertools
import random
from types import SimpleNamespace

import pytest

from nsqclient import Config
from nsqclient.consumer.backoff import Backoff, Outcome, Phase
from nsqclient.consumer.flow_control import BackoffControl, FlowControl
from nsqclient.consumer.subscription import Subscription
from tests.support.consumer_context import make_context
from tests.support.faults.interrupts import interrupt_everywhere
from tests.support.virtual_time import VirtualTimer


class SimulatedNsqd(Subscription):
    """A connection and the nsqd behind it: RDY as a level that takes ``lag`` to arrive."""

    def __init__(self, name, timer, log, lag=0.0, max_rdy=2500):
        self.address = name
        self.rdy_state = None
        self.msg_timeout = 60.0
        self.on_arrival = lambda count: None
        self.conn = SimpleNamespace(settings=SimpleNamespace(max_rdy_count=max_rdy))
        self.out = []  # messages in flight
        self.queue = 0  # messages that wait in the channel
        self._timer = timer
        self._log = log
        self._lag = lag
        self._wire = 0
        self._in_force = 0
        self._seen = itertools.count()

    def post_rdy(self):
        if self.rdy_state.rdy != self._wire:
            self._wire = count = self.rdy_state.rdy
            self._log.append((round(self._timer.now, 3), f"{self.address} RDY {count}"))
            self._timer.schedule(self._lag, lambda: self._take_effect(count))

    def _take_effect(self, count):
        self._in_force = count
        self.deliver()

    def deliver(self):
        while self.queue and len(self.out) < self._in_force:
            self.queue -= 1
            self.out.append(next(self._seen))
            self.rdy_state.last_message = self._timer.now
            self.on_arrival(1)

    def finish_one(self):
        self.out.pop(0)
        self.deliver()

    def count_in_flight(self, now):
        return len(self.out)

    def forget_orphans(self, before):
        pass


class World:
    def __init__(self, config, max_in_flight, seed=0, workers=None):
        self.timer = VirtualTimer()
        self.log = []
        self.phases = []
        self.flow = FlowControl(
            make_context(config.replace(max_in_flight=max_in_flight), self.timer),
            lambda phase, wait: self.phases.append((phase, wait)),
            workers=workers, clock=lambda: self.timer.now, rng=random.Random(seed),
        )
        self.flow.start()
        self.nsqds = []

    def add(self, name, **options):
        nsqd = SimulatedNsqd(name, self.timer, self.log, **options)
        self.nsqds.append(nsqd)
        nsqd.on_arrival = lambda count: (
            self.flow.counts_arrivals and self.flow.on_arrival(count))
        self.flow.attach(nsqd)
        return nsqd

    def remove(self, nsqd):
        self.nsqds.remove(nsqd)
        self.flow.detach(nsqd)

    def commands(self):
        commands, self.log[:] = list(self.log), []
        return commands


def test_a_hold_is_rdy_0_independent_of_a_pause_and_no_reason_for_a_repair():
    """Nothing flows while too many bytes wait, for as long as that takes; then all at once."""
    world = World(Config(), 10)
    world.add("a")
    world.commands()
    world.flow.is_held = True
    world.flow.update()
    assert world.commands() == [(0, "a RDY 0")]
    world.timer.advance(3600)
    world.flow.set_paused(True)
    world.flow.is_held = False
    world.flow.update()
    assert world.commands() == []
    world.flow.set_paused(False)
    assert world.commands() == [(3600, "a RDY 10")]


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("seed", [
    0, 8, *[pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4, 5)]])
def test_a_day_of_random_faults_keeps_both_promises(seed, workers):
    """Never more out than the ceiling allowed; never stuck while something may flow.

    With workers, handlers take from nothing to more than msg_timeout, and the level follows.
    """
    rng = random.Random(seed)
    config = Config(low_rdy_idle_timeout=10, rdy_redistribute_interval=5)
    world = World(config, 20, seed, workers)
    timer, flow = world.timer, world.flow
    names = itertools.count()
    # A ceiling holds until the messages allowed under it are answered or have settled.
    shrunk = None
    held = False

    def out():
        return sum(len(nsqd.out) for nsqd in world.nsqds)

    def may_be_out():
        return sum(max(nsqd.rdy_state.load(timer.now), len(nsqd.out)) for nsqd in world.nsqds)

    def is_stuck():
        may_flow = world.nsqds and flow.max_in_flight and not flow.is_paused and not held and (
            flow.backoff.phase is not Phase.WAITING
        )
        return may_flow and not out() and not any(nsqd.rdy_state.rdy for nsqd in world.nsqds)

    while timer.now < 86_400:
        event = rng.random()
        if event < 0.02 and len(world.nsqds) < 12:
            world.add(f"n{next(names)}", lag=rng.uniform(0, 0.4), max_rdy=rng.choice([3, 2500]))
        elif event < 0.035 and world.nsqds:
            world.remove(rng.choice(world.nsqds))
        elif event < 0.05:
            before = max(flow.max_in_flight, shrunk or 0)
            flow.set_max_in_flight(rng.choice([0, 1, 2, 3, 5, 8, 12, 20, 50]))
            shrunk = before if flow.max_in_flight < before else None
        elif event < 0.06:
            flow.set_paused(not flow.is_paused)
        elif event < 0.08:
            held = not held
            flow.is_held = held
            flow.update()
        elif event < 0.3 and world.nsqds:
            nsqd = rng.choice(world.nsqds)
            nsqd.queue += rng.choice([1, 5, 50])
            nsqd.deliver()
        else:
            busy = [nsqd for nsqd in world.nsqds if nsqd.out]
            if busy:
                flow.handler_times.append(10 ** rng.uniform(-6, 2))
                outcome = rng.choices(list(Outcome), [200, 1, 1])[0]
                flow.backoff.on_result(outcome)
                rng.choice(busy).finish_one()
        timer.advance(rng.choice([0.0, 0.01, 0.3, 5.0, 30.0]))
        if may_be_out() <= flow.max_in_flight:
            shrunk = None
        assert out() <= max(flow.max_in_flight, shrunk or 0)
        stuck_until = timer.now + config.rdy_redistribute_interval
        while is_stuck():
            assert timer.now < stuck_until
            timer.advance(0.1)


def test_phases_are_reported_in_their_order_with_the_wait():
    """The message of the test may be handled before the test is reported."""
    world = World(Config(backoff_multiplier=1.0), max_in_flight=5)
    nsqd = world.add("a")
    world.flow.backoff.on_result(Outcome.FAILURE)
    posted = nsqd.post_rdy

    def post_and_handle():
        posted()
        if world.flow.backoff.phase is Phase.TESTING:
            world.flow.backoff.on_result(Outcome.SUCCESS)  # by a worker, at once

    nsqd.post_rdy = post_and_handle
    world.timer.advance(10)
    assert world.phases == [(Phase.WAITING, 2.0), (Phase.TESTING, 0.0), (Phase.FLOWING, 0.0)]


@pytest.mark.parametrize("function", [
    BackoffControl.on_result, BackoffControl._take_result, Backoff.on_result,
])
def test_an_interrupted_requeue_leaves_no_backoff_without_an_end(function):
    def work():
        world = World(Config(), 10)
        world.add("a")
        with contextlib.suppress(KeyboardInterrupt):
            world.flow.backoff.on_result(Outcome.FAILURE)

        def check():
            world.timer.advance(20)
            if world.flow.backoff.phase is not Phase.FLOWING:
                assert world.flow.backoff.phase is Phase.TESTING
                assert world.commands()[-1][1] == "a RDY 1"
                world.flow.backoff.on_result(Outcome.SUCCESS)
                assert world.flow.backoff.phase is Phase.FLOWING
            world.timer.advance(20)
            assert world.nsqds[0].rdy_state.rdy == 10

        return check

    assert interrupt_everywhere(function, work) > 1


def test_a_new_wait_is_not_ended_by_what_is_left_of_the_one_before():
    world = World(Config(), 10)
    world.add("a")
    world.flow.backoff.on_result(Outcome.FAILURE)
    world.timer.advance(2)
    world.flow.backoff.on_result(Outcome.FAILURE)
    world.flow.backoff.end_wait()
    world.timer.advance(3.9)
    assert world.flow.backoff.phase is Phase.WAITING
    world.timer.advance(0.2)
    assert world.flow.backoff.phase is Phase.TESTING


def test_without_a_handler_messages_flow_while_a_loop_runs_and_no_pause_is_in_force():
    world = World(Config(rdy_share_of_timeout=0), 10, workers=0)
    world.add("a")
    assert world.commands() == []
    world.flow.begin_loop(world)
    assert world.commands() == [(0, "a RDY 10")]
    world.flow.set_paused(True)
    world.flow.end_loop(world)
    world.flow.begin_loop(world)
    assert world.commands() == [(0, "a RDY 0")]
    world.flow.set_paused(False)
    assert world.commands() == [(0, "a RDY 10")]
