"""The broker: creating, deleting and pausing topics and channels, publishing, subscribing."""

import errno

import pytest

from nsqclient.devserver.broker import Broker, BrokerError, TopicChange, TopicNotFound
from nsqclient.devserver.queues import Consumer, Backend, QueueLimits

WALL = 1_795_000_000_000_000_000


class FullBackend(Backend):
    """A disk that is full once ``is_full`` is set."""

    is_full = False

    def put(self, message):
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().put(message)


def make_full_broker(*channels):
    """Return a broker without memory whose disks are full from now on, with one message each."""
    backends = []

    def open_backend(topic, channel):
        backends.append(FullBackend())
        return backends[-1]

    broker = Broker(QueueLimits(mem_queue_size=0), open_backend=open_backend)
    for channel in channels:
        broker.open_channel("t", channel, 0.0)
    publish(broker, "t", b"1")
    for backend in backends:
        backend.is_full = True
    return broker


def publish(broker, topic, *bodies, deferral=0.0, now=0.0):
    broker.publish(topic, bodies, now, WALL, deferral)


def subscribe(broker, topic, channel, number=1, ready=100):
    consumer = Consumer(number, 60.0)
    joined = broker.subscribe(topic, channel, consumer, 0.0)
    joined.set_ready(consumer, ready, 0.0)
    return joined, consumer


def bodies(consumer):
    return [body for *_, body in consumer.outbox]


def test_first_channel_gets_the_stored_messages():
    broker = Broker()
    publish(broker, "t", b"1", b"2")
    assert len(broker.topic("t").queue) == 2
    _, first = subscribe(broker, "t", "first", 1)
    _, second = subscribe(broker, "t", "second", 2)
    publish(broker, "t", b"3")
    assert (bodies(first), bodies(second)) == ([b"1", b"2", b"3"], [b"3"])
    assert first.outbox[2][:1] + first.outbox[2][2:] == second.outbox[0][:1] + second.outbox[0][2:]


def test_ephemeral_channel_is_deleted_with_its_last_consumer():
    broker = Broker()
    joined, first = subscribe(broker, "t", "c#ephemeral", 1)
    _, second = subscribe(broker, "t", "c#ephemeral", 2)
    broker.unsubscribe(joined, first)
    assert "c#ephemeral" in broker.topic("t").channels
    broker.unsubscribe(joined, second)
    assert broker.topic("t").channels == {}


def test_ephemeral_topic_is_deleted_with_its_last_channel():
    """A durable channel keeps an ephemeral topic; a topic that never had a channel stays."""
    broker = Broker()
    publish(broker, "t#ephemeral", b"1")
    joined, consumer = subscribe(broker, "t#ephemeral", "c#ephemeral")
    broker.open_channel("t#ephemeral", "durable", 0.0)
    broker.unsubscribe(joined, consumer)
    assert list(broker.topic("t#ephemeral").channels) == ["durable"]
    broker.delete_channel("t#ephemeral", "durable")
    with pytest.raises(TopicNotFound):
        broker.topic("t#ephemeral")


def test_an_old_consumer_does_not_delete_a_new_channel():
    broker = Broker()
    joined, consumer = subscribe(broker, "t", "c#ephemeral")
    broker.delete_channel("t", "c#ephemeral")
    broker.open_channel("t", "c#ephemeral", 0.0)
    broker.unsubscribe(joined, consumer)
    assert "c#ephemeral" in broker.topic("t").channels


def test_delete_topic_ends_consumers_and_reports_changes():
    broker = Broker()
    _, consumer = subscribe(broker, "t", "c")
    broker.delete_topic("t")
    assert consumer.is_ended
    assert broker.take_changes() == [
        TopicChange(True, "t", None), TopicChange(True, "t", "c"),
        TopicChange(False, "t", None), TopicChange(False, "t", "c"),
    ]
    assert broker.take_changes() == []


def test_exiting_broker_rejects_publish_and_subscribe():
    broker = Broker()
    broker.is_exiting = True
    for act in (
        lambda: publish(broker, "t", b"x"),
        lambda: subscribe(broker, "t", "c"),
        lambda: broker.open_topic("t"),
    ):
        with pytest.raises(BrokerError, match="^exiting$"):
            act()


def test_close_moves_all_messages_to_the_backends():
    backends = {}

    def open_backend(topic, channel):
        return backends.setdefault((topic, channel), Backend())

    broker = Broker(open_backend=open_backend)
    joined, consumer = subscribe(broker, "t", "c", ready=1)
    subscribe(broker, "e#ephemeral", "c#ephemeral", 2, ready=0)
    publish(broker, "t", b"1", b"2")
    publish(broker, "t", b"3", deferral=9.0)
    publish(broker, "alone", b"4")
    publish(broker, "e#ephemeral", b"5")
    broker.close(keep=True)
    assert [m.body for m in backends["t", "c"].peek()] == [b"2", b"1", b"3"]
    assert [m.attempts for m in backends["t", "c"].peek()] == [0, 1, 0]
    assert [m.body for m in backends["alone", None].peek()] == [b"4"]
    assert consumer.is_ended and set(backends) == {("t", None), ("t", "c"), ("alone", None)}


def test_full_disk_rejects_new_messages_alone():
    broker = make_full_broker("c")
    with pytest.raises(OSError, match="No space left"):
        publish(broker, "t", b"2")
    joined, consumer = subscribe(broker, "t", "c")
    assert bodies(consumer) == [b"1"]
    assert (broker.topic("t").message_count, joined.message_count) == (1, 1)


@pytest.mark.parametrize("give_back", [
    lambda channel, consumer, id_: channel.requeue(consumer, id_, 0.0, 1.0),
    lambda channel, consumer, id_: (
        channel.requeue(consumer, id_, 5.0, 1.0), channel.tick(6.0)),
    lambda channel, consumer, id_: channel.tick(60.0),
])
def test_full_disk_loses_no_message_that_comes_back(give_back):
    broker = make_full_broker("c")
    channel, consumer = subscribe(broker, "t", "c")
    channel.set_ready(consumer, 1, 0.0)
    [(_, _, message_id, _)], consumer.outbox = consumer.outbox, []
    channel.set_paused(True, 0.0)
    give_back(channel, consumer, message_id)
    assert [message.body for message in channel.queue.memory] == [b"1"]
    channel.set_paused(False, 70.0)
    assert bodies(consumer) == [b"1"]


def test_full_disk_loses_no_message_on_its_way_to_the_channels():
    broker = make_full_broker()
    broker.pause_topic("t", True, 0.0)
    for name in ("a", "b"):
        broker.open_channel("t", name, 0.0).queue.backend.is_full = True
    broker.pause_topic("t", False, 0.0)
    for name in ("a", "b"):
        channel = broker.channel("t", name)
        assert [message.body for message in channel.queue.memory] == [b"1"]
