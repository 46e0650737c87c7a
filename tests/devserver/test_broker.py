"""Topics: how they come and go, store and copy; message ids."""

from __future__ import annotations

import pytest

from nsqclient.devserver.broker import (
    Broker,
    BrokerError,
    ChannelNotFound,
    MessageIds,
    Notice,
    TopicNotFound,
)
from nsqclient.devserver.queues import Consumer, QueueLimits
from nsqclient.devserver.store import MemoryBackend

WALL = 1_795_000_000_000_000_000


def publish(broker, topic, *bodies, deferral=0.0, now=0.0):
    broker.publish(topic, bodies, now, WALL, deferral)


def subscribe(broker, topic, channel, number=1, ready=100):
    consumer = Consumer(number, 60.0)
    joined = broker.subscribe(topic, channel, consumer, 0.0)
    joined.set_ready(consumer, ready, 0.0)
    return joined, consumer


def bodies(consumer):
    return [body for *_, body in consumer.outbox]


def test_ids_increase_and_are_consecutive():
    """Ids are 16 hex digits, consecutive in one publish, and rise whatever the clock does."""
    ids = MessageIds(1000)
    first = ids.take(3, WALL)
    assert [int(b, 16) - int(a, 16) for a, b in zip(first, first[1:])] == [1, 1]
    later = ids.take(1, WALL - 10**12) + ids.take(9000, WALL) + ids.take(1, WALL + 10**9)
    everything = first + later
    assert everything == sorted(set(everything))
    assert {len(id_) for id_ in everything} == {16}


def test_id_is_made_as_nsqd_makes_it():
    """Time, node and sequence stand at nsqd's places in the id."""
    number = int(MessageIds(691).take(1, WALL)[0], 16)
    assert number >> 22 == (WALL >> 20) - 1288834974288
    assert (number >> 12 & 1023, number & 4095) == (691, 0)


def test_topic_stores_until_the_first_channel_comes():
    """The first channel gets all that was stored, later ones only what is new."""
    broker = Broker()
    publish(broker, "t", b"1", b"2")
    assert len(broker.topic("t").queue) == 2
    _, first = subscribe(broker, "t", "first", 1)
    _, second = subscribe(broker, "t", "second", 2)
    publish(broker, "t", b"3")
    assert (bodies(first), bodies(second)) == ([b"1", b"2", b"3"], [b"3"])
    assert first.outbox[2][:1] + first.outbox[2][2:] == second.outbox[0][:1] + second.outbox[0][2:]


def test_counters():
    """A topic counts messages and bytes since its start; a channel counts what reached it."""
    broker = Broker()
    publish(broker, "t", b"12", b"345")
    joined, _ = subscribe(broker, "t", "c")
    topic = broker.topic("t")
    assert (topic.message_count, topic.message_bytes, joined.message_count) == (2, 5, 2)


def test_paused_topic():
    """A paused topic keeps its messages, deferred ones with their whole delay."""
    broker = Broker()
    joined, consumer = subscribe(broker, "t", "c")
    broker.pause_topic("t", True, 0.0)
    publish(broker, "t", b"1")
    publish(broker, "t", b"2", deferral=5.0)
    assert bodies(consumer) == [] and len(broker.topic("t").queue) == 2
    broker.pause_topic("t", False, 100.0)
    assert bodies(consumer) == [b"1"] and joined.scheduled == 105.0


def test_prepared_channels_all_get_the_first_message():
    """Channels that are made with the topic exist before a message flows."""
    broker = Broker()
    publish(broker, "t", b"1")
    broker.prepare_topic("t", ["a", "b"], 0.0)
    assert [len(broker.channel("t", name).queue) for name in "ab"] == [1, 1]


def test_ephemeral_channel_goes_with_its_last_consumer():
    """An ephemeral channel lives as long as somebody is subscribed."""
    broker = Broker()
    joined, first = subscribe(broker, "t", "c#ephemeral", 1)
    _, second = subscribe(broker, "t", "c#ephemeral", 2)
    broker.unsubscribe(joined, first)
    assert "c#ephemeral" in broker.topic("t").channels
    broker.unsubscribe(joined, second)
    assert broker.topic("t").channels == {}


def test_ephemeral_topic_goes_with_its_last_channel():
    """A durable channel keeps an ephemeral topic, and one that only publishes lives on."""
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
    """Leaving a channel that was deleted does nothing to one of the same name."""
    broker = Broker()
    joined, consumer = subscribe(broker, "t", "c#ephemeral")
    broker.delete_channel("t", "c#ephemeral")
    broker.open_channel("t", "c#ephemeral", 0.0)
    broker.unsubscribe(joined, consumer)
    assert "c#ephemeral" in broker.topic("t").channels


def test_delete_ends_consumers_and_tells():
    """Deleting a topic ends the consumers of its channels; notices come in order."""
    broker = Broker()
    _, consumer = subscribe(broker, "t", "c")
    broker.delete_topic("t")
    assert consumer.is_ended
    assert broker.take_notices() == [
        Notice(True, "t", None), Notice(True, "t", "c"),
        Notice(False, "t", None), Notice(False, "t", "c"),
    ]
    assert broker.take_notices() == []


def test_limit_of_consumers():
    """One consumer too many is refused with nsqd's words."""
    broker = Broker(QueueLimits(max_channel_consumers=1))
    subscribe(broker, "m2", "c", 1)
    with pytest.raises(BrokerError, match="^consumers for m2:c exceeds limit of 1$"):
        subscribe(broker, "m2", "c", 2)


def test_exiting():
    """A broker that is exiting takes nothing any more."""
    broker = Broker()
    broker.is_exiting = True
    for act in (
        lambda: publish(broker, "t", b"x"),
        lambda: subscribe(broker, "t", "c"),
        lambda: broker.open_topic("t"),
    ):
        with pytest.raises(BrokerError, match="^exiting$"):
            act()


def test_unknown_names():
    """What does not exist is told apart: the topic, or the channel."""
    broker = Broker()
    with pytest.raises(TopicNotFound):
        broker.empty_channel("t", "c", 0.0)
    broker.open_topic("t")
    with pytest.raises(ChannelNotFound):
        broker.delete_channel("t", "c")


def test_empty():
    """Emptying a topic leaves its channels alone, and the other way round."""
    broker = Broker()
    publish(broker, "t", b"1")
    broker.empty_topic("t")
    broker.open_channel("t", "c", 0.0)
    publish(broker, "t", b"2")
    broker.pause_channel("t", "c", True, 0.0)
    broker.empty_topic("t")
    assert len(broker.channel("t", "c").queue) == 1
    broker.empty_channel("t", "c", 0.0)
    assert broker.channel("t", "c").is_idle()


def test_close_keeps_what_is_in_hand():
    """At the end memory, in flight and deferred go to the backends, ephemerals to nothing."""
    backends = {}

    def open_backend(topic, channel):
        return backends.setdefault((topic, channel), MemoryBackend())

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
