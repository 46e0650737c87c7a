"""OrderedProcessor: messages that wait for another message of their partition."""

from types import SimpleNamespace

import pytest

from nsqclient.partitioned.ordered import OrderedProcessor
from nsqclient.partitioned.subscription import OrderedSubscription
from nsqclient.consumer.processor import HandlerSettings
from tests.support.consumer_context import make_context


def message(partition, number):
    """A message with the attributes that the processor reads."""
    return SimpleNamespace(partition=partition, number=number, responder=None)


class World(OrderedProcessor):
    """Further messages of the partition arrive while the first is handled."""

    def __init__(self, during):
        flow = SimpleNamespace(
            subscriptions=(), handler_times=[], running={}, backoff=None)
        super().__init__(make_context(), flow, HandlerSettings(None, None), None)
        self._during = during
        self.seen = None
        self.is_over = False

    def should_handle(self, message, now):
        if message.number == 0:
            for number in range(1, 5):
                self.run(SimpleNamespace(
                    partition=message.partition, number=number, responder=None))
            self.seen = self._during(self)
            self.is_over = True
        return None  # nothing more is done with it


def test_messages_that_wait_for_their_partition_are_pending_and_then_queued_again():
    world = World(lambda world: [message.number for message in world.waiting()])
    world.run(message(1, 0))
    assert world.seen == [1, 2, 3, 4]
    assert [message.number for message in world.workers.items()] == [1, 2, 3, 4]
    assert world.waiting() == world.workers.items()


def test_pending_messages_can_be_removed():
    world = World(lambda world: world.remove_waiting(lambda message: message.number % 2 == 1))
    world.run(message(1, 0))
    assert [message.number for message in world.seen] == [1, 3]
    assert [message.number for message in world.workers.items()] == [2, 4]


@pytest.mark.parametrize(("last", "is_behind"), [
    (None, False), ((10, 100), False), ((9, 60), False), ((11, 100), True), ((10, 101), True),
])
def test_what_lies_before_the_last_finished_message_is_behind(last, is_behind):
    """By id or by offset. The same message may arrive again."""
    sub = OrderedSubscription.__new__(OrderedSubscription)
    sub.last_finished = last
    assert sub.is_behind(SimpleNamespace(internal_id=10, offset=100)) is is_behind
