"""Backpressure: when the flow is held, what is queued or dropped, what ends a connection."""

import ctypes
import logging
import platform
import random
from collections import deque
from types import SimpleNamespace

import pytest

from nsqclient import Config, RemoteProtocolError
from nsqclient.consumer.backpressure import (
    UNDER_WAY, UNDER_WAY_EACH, Backpressure, QueueLimit, release_memory,
)
from nsqclient.consumer.processor import HandlerSettings, MessageProcessor
from nsqclient.consumer.subscription import Subscription
from nsqclient.message import MESSAGE_OVERHEAD, Message
from tests.support.consumer_context import make_context
from tests.support.memory import MIB, resident
from tests.support.packages import HAS_INTERPRETER_LOCK
from tests.support.processes import in_child, start_threads
from tests.support.virtual_time import VirtualTimer

# -- the bound on what waits

LIMIT = 1000


def held(now=0.0):
    """A limit with half a second to settle, whose hold began at ``now``."""
    bound = QueueLimit(LIMIT, 0.5)
    bound.measured(2, LIMIT + 1, now)
    assert bound.is_held
    return bound


def test_the_queue_is_measured_when_what_arrived_could_be_over_the_limit():
    """Not before: what has left meanwhile is not counted."""
    bound = QueueLimit(LIMIT, 0.5)
    assert not bound.add(600)
    assert not bound.add(400)
    assert bound.add(1)


def test_a_queue_near_its_limit_is_not_measured_for_every_message():
    """Measuring a long queue takes time; a sixteenth of the limit lies between two measurements."""
    bound = QueueLimit(1600, 0.5)
    bound.measured(1000, 1600, 0.0)
    assert not bound.is_held
    assert [bound.add(10) for _ in range(10)] == [False] * 9 + [True]


def test_more_than_the_limit_begins_a_hold_and_half_of_it_ends_it():
    bound = QueueLimit(LIMIT, 0.5)
    seen = []
    for size in (1000, 1001, 900, 501, 500, 501, 1000, 1001):
        bound.measured(3, size, 0.0)
        seen.append(bound.is_held)
    assert seen == [False, True, True, True, False, False, False, True]


@pytest.mark.parametrize("size", [1, LIMIT, 10**9])
def test_one_message_always_fits(size):
    """Whatever its size: else it could never be received."""
    bound = QueueLimit(LIMIT, 0.5)
    bound.measured(1, size, 0.0)
    assert not bound.is_held
    bound.measured(2, LIMIT + size, 0.0)
    assert bound.is_held
    bound.measured(1, size, 0.0)
    assert not bound.is_held


def test_what_was_sent_before_rdy_0_is_queued():
    """32 MiB of it, or 16 MiB for each connection where there are many."""
    bound = held()
    bound.add(UNDER_WAY - 1)
    assert bound.accepts("a", 1)
    bound = held()
    bound.add(10 * UNDER_WAY_EACH - 1)
    assert bound.accepts("a", 10)


def test_beyond_that_one_message_of_each_connection_is_queued():
    """One may be in the middle of its way on each; what follows it goes back to nsqd."""
    bound = held()
    bound.add(UNDER_WAY)
    assert [bound.accepts(name, 2) for name in "aabb"] == [True, False, True, False]


def test_everything_is_queued_while_nothing_is_held():
    bound = QueueLimit(LIMIT, 0.5)
    bound.add(10**9)
    assert bound.accepts("a", 1) and bound.accepts("a", 1)


def test_what_arrives_before_rdy_0_has_settled_is_no_flood():
    """However much it is: nsqd may not have read RDY 0 yet."""
    bound = held(now=10.0)
    assert not bound.is_flood("a", 10**6, 10**9, 1, now=10.49)


def test_after_the_settle_time_twice_the_highest_rdy_may_still_arrive():
    """A slow network delays so many; one more was sent in spite of RDY 0."""
    bound = held()
    assert not any(bound.is_flood("a", 1, 1, 3, now=0.5 + n) for n in range(6))
    assert not bound.is_flood("b", 1, 1, 3, now=9.0)  # connections are judged one by one
    assert bound.is_flood("a", 1, 1, 3, now=9.0)


def test_a_connection_that_never_had_rdy_may_send_nothing():
    assert held().is_flood("a", 1, 1, 0, now=0.5)


def test_after_the_settle_time_no_more_bytes_arrive_than_sockets_hold():
    """A single message of any size is none too much."""
    bound = held()
    assert not bound.is_flood("a", 1, 10 * UNDER_WAY, 1000, now=1.0)
    assert bound.is_flood("a", 1, 1, 1000, now=1.0)


def test_a_new_hold_begins_to_count_again():
    bound = held()
    assert not bound.is_flood("a", 2, 2, 1, now=1.0)
    bound.add(UNDER_WAY)
    assert bound.accepts("a", 1) and not bound.accepts("a", 1)
    bound.measured(0, 0, 2.0)
    bound.measured(2, LIMIT + 1, 3.0)
    assert not bound.is_flood("a", 2, 2, 1, now=4.0)
    bound.add(UNDER_WAY)
    assert bound.accepts("a", 1)


@pytest.mark.parametrize("seed", range(20))
def test_what_waits_has_a_bound_whatever_is_sent(seed):
    rng = random.Random(seed)
    limit = rng.choice([1, 10_000, 10**7, 256 * 2**20])
    bound, largest, connections = QueueLimit(limit, 0.5), 0, rng.randint(1, 12)
    queue = deque()
    waiting = 0
    sizes = rng.choice([[1], [100_000], [30 * 2**20], [1, 10_000, 10 * 2**20]])
    pace = rng.choice([0.0, 0.3, 0.6, 0.9])  # of the handlers
    over = limit + limit / 16
    most = over + max(UNDER_WAY, connections * UNDER_WAY_EACH)
    for _ in range(6000):
        if rng.random() < 0.7:
            size = MESSAGE_OVERHEAD + rng.choice(sizes)
            largest = max(largest, size)
            if bound.accepts(rng.randrange(connections), connections):
                queue.append(size)
                waiting += size
                if bound.add(size):
                    bound.measured(len(queue), waiting, 0.0)
        if queue and rng.random() < pace:
            waiting -= queue.popleft()
        if bound.is_held and rng.random() < 0.1:
            bound.measured(len(queue), waiting, 0.0)
        assert waiting <= most + (connections + 1) * largest
        assert bound.is_held or waiting <= over + largest


# -- on a virtual clock

#: A body that makes a message count a thousand bytes.
BODY = b"x" * (1000 - MESSAGE_OVERHEAD)


class PendingProcessor(MessageProcessor):
    """A processor without workers, some of whose messages wait for their partition."""

    def __init__(self, flow):
        super().__init__(make_context(), flow, HandlerSettings(print, print))
        self.messages = []
        self.requeued = 0

    def waiting(self):
        return self.messages + super().waiting()

    def remove_waiting(self, condition):
        taken = [message for message in self.messages if condition(message)]
        self.messages = [message for message in self.messages if not condition(message)]
        return taken + super().remove_waiting(condition)

    def drop_expired(self):
        """Not by the real clock."""

    def requeue_queued(self):
        self.requeued += 1
        return 0


class World:
    """A Backpressure with a limit of ten messages, and what it works on."""

    def __init__(self, limit=10_000, max_in_flight=1000):
        self.timer = VirtualTimer()
        self.holds = []
        self.flow = SimpleNamespace(
            settle_time=0.5, max_in_flight=max_in_flight, set_held=self.holds.append,
            is_backing_off=False, handler_times=[], running={},
            counts_arrivals=False,
        )
        self.processor = PendingProcessor(self.flow)
        self.queue = self.processor.workers
        self.background = []
        context = make_context(
            Config(max_queued_bytes=limit), self.timer, self.background.append, "orders", "mail")
        self.sub = Subscription("nsqd:4150", context, None)  # never opened
        self.sub.highest_rdy = 5
        self.sub.requeue_excess = lambda messages: None
        self.flow.subscriptions = [self.sub]
        self.backpressure = Backpressure(
            context, self.flow, self.processor, clock=lambda: self.timer.now)
        self._count = 0

    def deliver(self, count, timeout=60.0, body=BODY, ids=None):
        """Messages come, and are queued where that is allowed."""
        sub, deadline = self.sub, self.timer.now + timeout
        messages = []
        for _ in range(count):
            self._count += 1
            number = self._count if ids is None else ids
            messages.append(Message(body, b"%016x" % number, 1, 1, 0.0, deadline, sub))
        sub.in_flight.add(messages)
        before = len(self.queue)
        self.backpressure.enqueue(sub, messages, count * len(body))
        return len(self.queue) > before

    def handle(self, count):
        for _ in range(count):
            taken = []
            assert self.queue.take_into(taken, 0)
            taken[0]._responder.in_flight.take(taken)


def test_the_flow_is_held_above_the_limit_until_half_of_it_is_left():
    world = World()
    world.deliver(10)
    assert not world.backpressure.is_held
    world.deliver(1)
    assert world.backpressure.is_held and world.holds == [True]
    assert world.backpressure.queued_bytes() == 11_000
    world.handle(5)
    world.timer.advance(1)
    assert world.holds == [True]
    world.handle(1)
    world.timer.advance(0.1)
    assert world.holds == [True, False] and not world.backpressure.is_held


def test_messages_that_wait_for_their_partition_count():
    world = World()
    world.deliver(8)
    world.processor.messages = world.queue.take_all()
    world.deliver(3)
    assert world.backpressure.is_held


def test_messages_of_handlers_count_beyond_max_in_flight():
    """As many as may be out do not: a handler may collect messages of any size."""
    for max_in_flight, is_held in ((12, False), (11, True)):
        world = World(max_in_flight=max_in_flight)
        world.deliver(6)
        world.queue.take_all()  # handlers have them, and have not answered
        world.deliver(6)
        world.queue.take_all()
        world.deliver(10)
        assert world.backpressure.is_held is is_held


def test_expired_messages_are_dropped_before_the_flow_is_held():
    world = World()
    world.deliver(4)
    world.deliver(4, timeout=1.0)
    world.deliver(2)
    world.timer.advance(1)
    world.deliver(1)
    assert not world.backpressure.is_held
    assert len(world.queue) == 7
    assert world.sub.counters.expired == 4


def test_a_stop_requeues_what_was_turned_round_meanwhile():
    processor = World().processor
    processor.requeues_incoming = True
    assert processor.remove_waiting(lambda message: True) == []
    assert processor.requeued == 1


def test_messages_that_expire_during_a_hold_end_it():
    world = World()
    world.deliver(11, timeout=2.0)
    assert world.backpressure.is_held
    world.timer.advance(2.1)
    assert not world.backpressure.is_held
    assert (len(world.queue), world.sub.counters.expired) == (0, 11)


def test_messages_of_a_lost_connection_are_dropped():
    """nsqd has taken them back; each delivery of the same id counts until then."""
    world = World()
    for _ in range(11):
        world.deliver(1, ids=7)
    assert len(world.sub) == 1
    world.processor.messages = world.queue.take_all()
    assert world.backpressure.is_held
    world.sub.in_flight.mark_lost()
    world.flow.subscriptions = []
    world.timer.advance(0.1)
    assert not world.backpressure.is_held
    assert world.processor.messages == []


def test_far_above_the_limit_messages_are_not_queued():
    """Else they would take memory for the whole settle time."""
    world = World(limit=2**20)
    body = b"x" * 2**20
    queued = [world.deliver(1, body=body) for _ in range(50)]
    assert queued == [True] * 34 + [False] * 16


def test_a_peer_that_ignores_rdy_0_is_cut_off():
    """Only after the settle time, and more than twice its highest RDY."""
    world = World()
    world.deliver(11)
    world.timer.advance(0.4)
    world.deliver(100)
    world.timer.advance(0.2)
    world.deliver(10)
    with pytest.raises(RemoteProtocolError, match="more messages came later than 0.5 s after RDY"):
        world.deliver(1)


def test_holds_are_logged_once_a_minute(caplog):
    caplog.set_level(logging.INFO)
    world = World()
    for _ in range(100):
        world.deliver(12)
        world.handle(12)
        world.timer.advance(1)
    assert len(world.holds) == 200
    assert len(caplog.messages) == 4
    assert caplog.messages[0].startswith("orders/mail: RDY 0 until workers catch up: 0.0 MiB wait")
    assert caplog.messages[1] == "orders/mail: half of max_queued_bytes is free again, RDY restored"


@pytest.mark.parametrize("limit, background", [(2**20, []), (64 * 2**20, [release_memory])])
def test_memory_is_released_after_a_long_queue(limit, background):
    """Once at the end of a hold, on a background thread."""
    world = World(limit)
    world.deliver(9, body=b"x" * (limit // 8))
    assert world.backpressure.is_held and world.background == []
    world.handle(9)
    world.timer.advance(1)
    assert world.background == background


def test_a_hold_ends_where_another_thread_began_it_meanwhile():
    """Of two threads that set RDY the last has the right value."""
    world = World()
    seen = []

    def set_held(held):
        seen.append(held)
        if len(seen) == 1:  # the queue runs empty before RDY 0 is sent
            world.queue.take_all()
            world.backpressure._measure()

    world.flow.set_held = set_held
    world.deliver(11)
    assert seen[-1] is world.backpressure.is_held is False


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc" or not HAS_INTERPRETER_LOCK,
                    reason="Python does not allocate by glibc's functions")
def test_what_another_thread_freed_is_released():
    """Though the last thing that it allocated is still in use."""
    def work():
        kept = []

        def allocate():
            blocks = [b"x" * 100_000 for _ in range(1000)]
            kept.append(b"x" * 100_000)
            blocks.clear()

        start_threads(1, allocate)[0].join()
        before, _ = resident()
        release_memory()
        after, _ = resident()
        assert before - after > 50 * MIB, f"{before / MIB:.0f} MiB, then {after / MIB:.0f} MiB"

    assert in_child(work) == 0


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_nothing_is_released_with_other_c_libraries(monkeypatch, error):
    def fail(name):
        raise error("no malloc_trim")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    release_memory()
