"""A backlog that moves from a topic to its channels."""

import pytest

from nsqclient.devserver.broker import Broker
from nsqclient.devserver.persistence import DataPath
from nsqclient.devserver.queues import QueueLimits

COUNT = 100


@pytest.fixture(params=["memory", "disk"])
def broker(request, tmp_path):
    """A broker that keeps ten messages of each queue in memory, the others in a backend."""
    limits = QueueLimits(mem_queue_size=10)
    if request.param == "memory":
        yield Broker(limits)
        return
    data = DataPath(str(tmp_path))
    broker = Broker(limits, open_backend=data.open_disk_queue)
    yield broker
    broker.close(keep=False)
    data.close()


def publish(broker, first=0, count=COUNT, deferral=0.0):
    bodies = [b"%d" % number for number in range(first, first + count)]
    broker.publish("t", bodies, 0.0, 1, deferral)


def held(broker, channel):
    return [int(message.body) for message in broker.channel("t", channel).queue.peek()]


def test_deferrals_begin_when_a_message_reaches_the_channel(broker):
    publish(broker, 0, 2, deferral=5.0)
    publish(broker, 2, 2)
    channel = broker.open_channel("t", "c", 100.0)
    assert held(broker, "c") == [2, 3]
    broker.scheduler.tick(104.9)
    assert len(channel.deferred) == 2
    broker.scheduler.tick(105.0)
    assert sorted(held(broker, "c")) == [0, 1, 2, 3]


def test_several_channels_get_it_in_order(broker):
    broker.prepare_topic("t", ["a", "b"], 0.0, paused=True)
    publish(broker)
    broker.pause_topic("t", False, 0.0)
    publish(broker, COUNT, 1)
    assert held(broker, "a") == held(broker, "b") == list(range(COUNT + 1))
