"""The broker made safe for threads: wake-ups, ticks and observers."""

import threading

import pytest

from nsqclient.devserver.broker import Broker, TopicChange
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.queues import Consumer
from tests.support.waiting import wait_until

WALL = 1_795_000_000_000_000_000


@pytest.fixture
def engine():
    engine = Engine(Broker())
    engine.start()
    yield engine
    engine.stop()


def subscribe(engine, number=1, msg_timeout=60.0, ready=1):
    consumer = Consumer(number, msg_timeout)
    with engine as broker:
        channel = broker.subscribe("t", "c", consumer, engine.now)
        channel.set_ready(consumer, ready, engine.now)
    return channel, consumer


def publish(engine, deferral=0.0):
    with engine as broker:
        broker.publish("t", [b"x"], engine.now, WALL, deferral)


def test_earlier_ticks_replace_later_ones(engine):
    channel, _ = subscribe(engine, ready=0)
    for number in range(20):
        publish(engine, deferral=0.2 - number / 100)
    wait_until(lambda: not channel.deferred)
    assert len(channel.queue) == 20
    publish(engine, deferral=60.0)
    assert len(engine._timer._heap) == 1


def test_wait_until_ends_when_a_tick_moves_a_message(engine):
    channel, _ = subscribe(engine, ready=0)
    publish(engine, deferral=0.05)
    assert engine.wait_until(lambda broker: len(channel.queue) == 1, 10.0)
    assert not engine.wait_until(lambda broker: False, 0.01)


def test_observer_that_fails_is_logged_and_the_next_is_called(engine, caplog):
    heard = []

    def fail(change):
        raise ValueError("no")

    engine.add_observer(fail)
    engine.add_observer(heard.append)
    with engine as broker:
        broker.open_topic("t")
    assert heard == [TopicChange(True, "t", None)]
    assert "observer failed" in caplog.text


def test_observers_get_the_changes_of_all_threads_in_order(engine):
    heard = []

    engine.add_observer(lambda change: heard.append(change.topic))

    def work(first):
        for number in range(first, 200, 4):
            with engine as broker:
                broker.open_topic(str(number))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(heard) == 200)
    with engine as broker:
        assert heard == list(broker.topics)
