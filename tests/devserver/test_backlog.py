"""A backlog that moves from a topic to its channels in slices."""

import pytest

from nsqclient.devserver.broker import Broker
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.persistence import DataPath
from nsqclient.devserver.queues import FLOW_SLICE, QueueLimits
from tests.support.waiting import wait_until

COUNT = 3 * FLOW_SLICE


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


def test_several_channels_get_it_in_slices(broker):
    broker.prepare_topic("t", ["a", "b"], 0.0, paused=True)
    publish(broker)
    broker.pause_topic("t", False, 0.0)
    assert len(held(broker, "a")) == FLOW_SLICE
    publish(broker, COUNT, 3)
    slices = 1
    while broker.scheduler.flowing:
        broker.scheduler.flow(0.0)
        slices += 1
    assert slices == 4
    assert held(broker, "a") == held(broker, "b") == list(range(COUNT + 3))
    publish(broker, COUNT + 3, 1)
    assert held(broker, "a")[-1] == COUNT + 3


@pytest.mark.parametrize("change", [
    lambda broker: broker.pause_topic("t", True, 0.0),
    lambda broker: broker.topic("t").empty(),
    lambda broker: broker.delete_topic("t"),
])
def test_pausing_emptying_and_deleting_end_the_move(broker, change):
    broker.prepare_topic("t", ["a", "b"], 0.0, paused=True)
    publish(broker)
    broker.pause_topic("t", False, 0.0)
    change(broker)
    broker.scheduler.flow(0.0)
    assert not broker.scheduler.flowing
    if "t" in broker.topics:
        assert len(held(broker, "a")) == FLOW_SLICE


def test_the_engine_moves_all_slices():
    broker = Broker(QueueLimits(mem_queue_size=10))
    engine = Engine(broker)
    engine.start()
    try:
        with engine:
            broker.prepare_topic("t", ["a", "b"], engine.now, paused=True)
            publish(broker)
            broker.pause_topic("t", False, engine.now)
            assert len(held(broker, "a")) == FLOW_SLICE
        wait_until(lambda: len(held(broker, "b")) == COUNT)
        with engine:
            broker.channel("t", "a").empty(engine.now)
            assert held(broker, "a") == []
    finally:
        engine.stop()
