"""More in flight than handlers finish in time, on a virtual clock: FlowControl, nsqds, workers.

The deliveries of nsqd are counted. The nsqds take a message back at its deadline, and the consumer
drops expired messages from its queue.
"""

import itertools
import logging
import random
from collections import deque
from types import SimpleNamespace

import pytest

from nsqclient import Config
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.rdy import LevelReason
from nsqclient.consumer.subscription import Subscription
from tests.support.consumer_context import make_context
from tests.support.virtual_time import VirtualTimer

#: Seconds from nsqd to the consumer, and back.
LAG = 0.0002


class Nsqd(Subscription):
    def __init__(self, world, msg_timeout):
        self.rdy_state = None
        self.msg_timeout = msg_timeout
        self.conn = SimpleNamespace(settings=SimpleNamespace(max_rdy_count=2500))
        self.queue, self.out = deque(), {}
        self.commands = 0
        self._world, self._wire, self._in_force = world, 0, 0

    def post_rdy(self):
        count = self.rdy_state.rdy
        if count != self._wire:
            self._wire = count
            self.commands += 1
            self._world.timer.schedule(LAG, lambda: self._obey(count))
        return True

    def _obey(self, count):
        self._in_force = count
        self.deliver()

    def publish(self, count):
        self.queue.extend(next(self._world.names) for _ in range(count))
        self.deliver()

    def deliver(self):
        while self.queue and len(self.out) < self._in_force:
            name, timer = self.queue.popleft(), self._world.timer
            self.out[name] = deadline = timer.now + self.msg_timeout
            self._world.deliveries += 1
            timer.schedule(LAG, lambda name=name: self._world.receive(self, name, deadline))
            timer.schedule(self.msg_timeout, lambda name=name: self._expire(name, deadline))

    def _expire(self, name, deadline):
        if self.out.get(name) == deadline:
            del self.out[name]
            self.queue.append(name)
            self.deliver()

    def finish(self, name, deadline):
        if self.out.get(name) == deadline:
            del self.out[name]
            self._world.finished[name] = self._world.timer.now
            self.deliver()

    def count_in_flight(self, now):
        return sum(deadline > now for deadline in self.out.values())

    def forget_orphans(self, before):
        pass


class World:
    """A consumer whose handlers take ``handler_time(now)`` seconds of the virtual clock."""

    def __init__(self, handler_time, *, max_in_flight=1000, workers=1, timeouts=(1.0,), **options):
        self.timer = VirtualTimer()
        self.flow = FlowControl(
            make_context(Config(max_in_flight=max_in_flight, **options), self.timer),
            lambda phase, wait: None, workers=workers, clock=lambda: self.timer.now,
            rng=random.Random(1),
        )
        self.names, self.deliveries, self.finished = itertools.count(), 0, {}
        self.levels = []
        self._handler_time, self._idle = handler_time, workers
        self._queue, self._running = deque(), self.flow.running
        self.flow.start()
        self.nsqds = [Nsqd(self, timeout) for timeout in timeouts]
        for nsqd in self.nsqds:
            self.flow.attach(nsqd)

    def receive(self, nsqd, name, deadline):
        nsqd.rdy_state.last_message = self.timer.now
        self._queue.append((nsqd, name, deadline))
        self.flow.times_handlers = True
        if self.flow.counts_arrivals:
            self.flow.on_arrival(1)
        self._work()

    def _work(self):
        while self._idle and self._queue:
            nsqd, name, deadline = self._queue.popleft()
            if deadline > self.timer.now:
                self._idle -= 1
                self._running[name, deadline] = self.timer.now
                taken = self._handler_time(self.timer.now)
                self.timer.schedule(taken, lambda: self._end(nsqd, name, deadline, taken))
                return self._work()

    def _end(self, nsqd, name, deadline, taken):
        del self._running[name, deadline]
        if self.flow.times_handlers:
            self.flow.times_handlers = self.flow.is_limited
            self.flow.handler_times.append(taken)
        self._idle += 1
        self.timer.schedule(LAG, lambda: nsqd.finish(name, deadline))
        self._work()

    def run_until(self, count, limit=1000.0):
        """Let time pass until ``count`` messages are finished; return the time."""
        while len(self.finished) < count:
            assert self.timer.now < limit, f"{len(self.finished)} of {count} are finished"
            self.timer.advance(0.01)
            if not self.levels or self.levels[-1] != self.flow.level:
                self.levels.append(self.flow.level)
        return max(self.finished.values())


@pytest.mark.parametrize("workers, timeouts", [(1, [1.0]), (8, [1.0] * 4), (1, [1.0, 60.0])])
def test_each_message_is_delivered_once(workers, timeouts):
    """Two seconds of work are queued at once, and msg_timeout is one second: no message expires."""
    count = 2000 * workers
    world = World(lambda now: 0.005, workers=workers, max_in_flight=2000, timeouts=timeouts)
    for nsqd in world.nsqds:
        nsqd.publish(count // len(timeouts))
    assert world.run_until(count) <= 1.1 * 10
    assert world.deliveries == count


def test_without_the_option_messages_expire_in_the_queue():
    world = World(lambda now: 0.005, rdy_share_of_timeout=0)
    world.nsqds[0].publish(2000)
    world.run_until(2000)
    assert world.deliveries > 2 * 2000
    assert (world.flow.level, world.flow.level_reason) == (1000, LevelReason.OFF)


def test_handlers_that_become_a_hundred_times_slower_and_recover():
    world = World(lambda now: 0.5 if 3 <= now < 10 else 0.005)
    world.nsqds[0].publish(2000)
    assert world.run_until(2000) <= 1.1 * (10 + 7)
    assert world.deliveries <= 1.1 * 2000
    assert (min(world.levels), world.flow.level) >= (1, 10)
    assert world.nsqds[0].commands <= 40


@pytest.mark.parametrize("workers, msg_timeout", [(1, 1.0), (4, 1.0), (1, 60.0)])
@pytest.mark.parametrize("slows_down_over, most", [(1, 1.15), (500, 1.05)])
def test_few_messages_expire_when_handlers_become_slower(
    workers, msg_timeout, slows_down_over, most
):
    """Handlers that finish 500 messages in half of msg_timeout become a hundred times slower.

    ``slows_down_over``: number of messages during which they do.
    """
    fast, before = 0.5 * msg_timeout * workers / 500, 1000
    world = World(
        lambda now: fast * min(100, max(1, 99 * (len(world.finished) - before) / slows_down_over)),
        max_in_flight=500, workers=workers, timeouts=[msg_timeout])
    world.nsqds[0].publish(before + 500)
    world.run_until(before + 500, limit=100 * msg_timeout)
    assert world.deliveries <= most * (before + 500)


def test_a_handler_that_hangs_gets_one_message_in_each_timeout():
    world = World(lambda now: 20.0 if 1 <= now < 2 else 0.005)
    world.nsqds[0].publish(1000)
    world.run_until(1000)
    assert world.deliveries <= 1000 + 100 + 25


def test_the_log_names_the_time_of_a_first_handler_that_still_runs(caplog):
    caplog.set_level(logging.INFO, "nsqclient")
    world = World(lambda now: 0.3, rdy_redistribute_interval=0.2)
    world.nsqds[0].publish(10)
    world.run_until(10)
    lines = [line for line in caplog.messages if "in flight at most" in line]
    assert "instead of max_in_flight 1000: handlers take up to 0.2 s" in lines[0]


def test_a_burst_after_an_hour_is_met_with_the_level_from_before():
    world = World(lambda now: 0.005)
    world.nsqds[0].publish(1000)
    world.run_until(1000)
    level = world.flow.level
    world.timer.advance(3600)
    assert world.flow.level == level
    world.nsqds[0].publish(1000)
    world.run_until(2000, limit=4000)
    assert world.deliveries == 2000


def test_a_quiet_nsqd_is_heard_while_another_one_keeps_all_workers_busy():
    world = World(lambda now: 0.3, timeouts=[1.0] * 5)
    world.nsqds[0].publish(300)
    world.timer.advance(5)
    assert world.flow.level < 5
    for number, nsqd in enumerate(world.nsqds[1:]):
        name = next(world.names)
        nsqd.queue.append(name)
        nsqd.deliver()
        began = world.timer.now
        while name not in world.finished:
            world.timer.advance(0.1)
            assert world.timer.now - began < 5, number
    world.run_until(304)
    assert world.deliveries <= 1.05 * 304


def test_a_consumer_that_asks_whether_it_is_starved_collects():
    """The level of the start does not starve it: RDY is raised, and it goes on collecting."""
    world = World(lambda now: 1e9, max_in_flight=500)
    world.nsqds[0].publish(1)
    world.timer.advance(0.1)
    assert world.flow.level == 1
    assert not world.flow.is_starved()
    assert (world.flow.level, world.flow.level_reason) == (500, LevelReason.HELD)
    world.nsqds[0].publish(499)
    world.timer.advance(0.1)
    assert world.flow.is_starved()


@pytest.mark.parametrize("interval, msg_timeout", [(1.0, 60.0), (100.0, 300.0), (100.0, 60.0)])
def test_messages_that_come_slowly_and_are_kept_starve_nobody(interval, msg_timeout):
    world = World(lambda now: 0.0, max_in_flight=200, timeouts=[msg_timeout])
    nsqd, starved = world.nsqds[0], []
    nsqd.finish = lambda name, deadline: starved.append(world.flow.is_starved())
    for _ in range(30):
        nsqd.publish(1)
        world.timer.advance(interval)
    assert starved and not any(starved)
