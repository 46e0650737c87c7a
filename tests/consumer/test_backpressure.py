"""Backpressure: holding the flow, queueing, dropping, and ending a connection."""

from types import SimpleNamespace

import pytest

from nsqclient import Config, RemoteProtocolError
from nsqclient.consumer.backpressure import Backpressure
from nsqclient.consumer.processor import HandlerSettings, MessageProcessor
from nsqclient.consumer.subscription import Subscription
from nsqclient.message import MESSAGE_OVERHEAD, Message
from tests.support.consumer_context import make_context
from tests.support.virtual_time import VirtualTimer

#: A body that makes a message count a thousand bytes.
BODY = b"x" * (1000 - MESSAGE_OVERHEAD)


class PendingProcessor(MessageProcessor):
    """A processor without workers, some of whose messages wait for their partition."""

    def __init__(self, context, flow, clock):
        super().__init__(context, flow, HandlerSettings(print, print))
        self.backpressure = Backpressure(context, flow, self, clock=clock)
        self.messages = []
        self.requeued = 0

    def waiting(self):
        return self.messages + super().waiting()

    def remove_waiting(self, condition):
        taken = [message for message in self.messages if condition(message)]
        self.messages = [message for message in self.messages if not condition(message)]
        return taken + super().remove_waiting(condition)

    def requeue_queued(self):
        self.requeued += 1
        return 0


class World:
    """A Backpressure with a limit of ten messages, and its collaborators."""

    def __init__(self, limit=10_000, max_in_flight=1000):
        self.timer = VirtualTimer()
        self.holds = []
        self.flow = SimpleNamespace(
            settle_time=0.5, max_in_flight=max_in_flight, is_held=False,
            update=lambda: self.holds.append(self.flow.is_held),
            backoff=SimpleNamespace(is_active=False), handler_times=[], running={},
            counts_arrivals=False,
        )
        self.background = []
        context = make_context(
            Config(max_queued_bytes=limit), self.timer, self.background.append, "orders", "mail")
        self.sub = Subscription("nsqd:4150", context, None)  # never opened
        self.flow.subscriptions = [self.sub]
        self.processor = PendingProcessor(context, self.flow, lambda: self.timer.now)
        self.queue, self.backpressure = self.processor.workers, self.processor.backpressure
        self._count = 0

    def deliver(self, count, timeout=60.0, body=BODY, ids=None):
        sub, deadline = self.sub, self.timer.now + timeout
        messages = []
        for _ in range(count):
            self._count += 1
            number = self._count if ids is None else ids
            messages.append(
                Message(body, b"%016x" % number, self._count, 1, 0.0, deadline, sub))
        sub.in_flight.add(messages)
        self.processor.enqueue(sub, messages, count * len(body))

    def handle(self, count):
        for _ in range(count):
            message = self.queue.take(0.0)
            message.responder.in_flight.take([message])


def test_the_flow_is_held_above_the_limit_until_half_of_it_is_left():
    world = World()
    world.deliver(10)
    assert not world.flow.is_held
    world.deliver(1)
    assert world.flow.is_held and world.holds == [True]
    assert world.backpressure.queued_bytes() == 11_000
    world.handle(5)
    world.timer.advance(1)
    assert world.holds == [True]
    world.handle(1)
    world.timer.advance(0.1)
    assert world.holds == [True, False] and not world.flow.is_held


def test_messages_that_wait_for_their_partition_count():
    world = World()
    world.deliver(8)
    world.processor.messages = world.queue.take_all()
    world.deliver(3)
    assert world.flow.is_held


def test_messages_of_handlers_count_beyond_max_in_flight():
    """As many as may be out do not: a handler may collect messages of any size."""
    for max_in_flight, is_held in ((12, False), (11, True)):
        world = World(max_in_flight=max_in_flight)
        world.deliver(6)
        world.queue.take_all()  # handlers have them, and have not answered
        world.deliver(6)
        world.queue.take_all()
        world.deliver(10)
        assert world.flow.is_held is is_held


def test_expired_messages_are_dropped_before_the_flow_is_held():
    world = World()
    world.deliver(4)
    world.deliver(4, timeout=1.0)
    world.deliver(2)
    world.timer.advance(1)
    world.deliver(1)
    assert not world.flow.is_held
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
    assert world.flow.is_held
    world.timer.advance(2.1)
    assert not world.flow.is_held
    assert (len(world.queue), world.sub.counters.expired) == (0, 11)


def test_messages_of_a_lost_connection_are_dropped():
    """nsqd has taken them back; each delivery of the same id counts until then."""
    world = World()
    for _ in range(11):
        world.deliver(1, ids=7)
    assert len(world.sub) == 1
    world.processor.messages = world.queue.take_all()
    assert world.flow.is_held
    world.sub.in_flight.mark_lost()
    world.flow.subscriptions = []
    world.timer.advance(0.1)
    assert not world.flow.is_held
    assert world.processor.messages == []


@pytest.mark.parametrize("size", [1, 10**6])
def test_one_message_always_fits(size):
    world = World()
    world.deliver(1, body=b"x" * size)
    assert not world.flow.is_held


def test_a_queue_near_its_limit_is_not_measured_for_every_message(monkeypatch):
    """A sixteenth of the limit lies between two measurements, which take time."""
    world, measured = World(limit=160_000), []
    world.deliver(159)
    monkeypatch.setattr(world.backpressure, "measure", lambda: measured.append(world._count))
    for _ in range(20):
        world.handle(1)
        world.deliver(1)
    assert measured and measured[0] >= 161


def test_a_peer_that_ignores_rdy_0_is_cut_off():
    """After the settle time, and more bytes than may wait."""
    world = World()
    world.deliver(11)
    world.timer.advance(0.4)
    world.deliver(100)
    world.timer.advance(0.2)
    world.deliver(10)
    with pytest.raises(RemoteProtocolError, match="MiB came later than 0.5 s after RDY 0"):
        world.deliver(1)


def test_a_hold_ends_while_another_thread_begins_it():
    """Of two threads that set RDY the last has the right value."""
    world = World()
    seen = []

    def update():
        seen.append(world.flow.is_held)
        if len(seen) == 1:  # the queue runs empty before RDY 0 is sent
            world.queue.take_all()
            world.backpressure.measure()

    world.flow.update = update
    world.deliver(11)
    assert seen == [True, False] and not world.flow.is_held
