"""Ordered consumption: one at a time for each partition, never skipping."""

import logging
import threading

import pytest

from nsqclient import GiveUp, Requeue
from nsqclient.partitioned import BlockedAction, Consumer, ordered as consumer_processor
from nsqclient.partitioned.subscription import OrderedSubscription
from nsqclient.errors import OrderError
from tests.partitioned.conftest import QUICK, Collector
from tests.support.waiting import wait_until


@pytest.fixture
def topic(cluster):
    """An ordered topic of four partitions with two replicas each."""
    cluster.create_topic("t", 4, replicas=2, ordered=True, channels=["c"])
    return cluster


def publish(cluster, partition, bodies):
    return [cluster.publish("t", partition, body) for body in bodies]


def numbers(count):
    return [b"%d" % number for number in range(count)]


def test_messages_arrive_in_order_with_offset_and_size(topic, consume):
    """They are equal to the answers to the traced publishes."""
    got = Collector()
    stored = publish(topic, 1, numbers(20))
    consume(got, ordered=True, workers=4, connected=4)
    topic.wait_until_empty("t", "c")
    assert got.bodies(1) == numbers(20)
    assert [(m.internal_id, m.offset, m.size) for m in got.messages] == [
        (place.internal_id, place.offset, place.size) for place in stored]


def test_a_failing_message_blocks_only_its_partition(topic, consume):
    got = Collector()
    got.failures[b"bad"] = 20
    publish(topic, 2, [b"bad", b"behind it"])
    config = QUICK.replace(ordered_max_retry_delay=0.02, max_attempts=5)
    consumer = consume(got, ordered=True, workers=2, config=config, connected=4)
    for partition in (0, 1, 3):
        publish(topic, partition, numbers(10))
    wait_until(lambda: len(got.bodies(0) + got.bodies(1) + got.bodies(3)) == 30)
    topic.wait_until_empty("t", "c")
    assert got.bodies(2) == [b"bad", b"behind it"]
    assert [m.attempts for m in got.messages if m.body == b"bad"] == [21]
    assert consumer.stats().backoff == "flowing"
    names = {c.name for nsqd in topic.nsqds for c in nsqd.commands}
    assert all(c.event.delay_ms == 0 for n in topic.nsqds for c in n.commands if c.name == "REQ")
    assert "SUB_ORDERED" in names and "SUB" not in names


def test_a_waiting_message_is_touched(topic, consume):
    """It does not time out during a long delay."""
    got = Collector()
    got.failures[b"bad"] = 1
    consume(got, ordered=True, config=QUICK.replace(msg_timeout=2.0, ordered_retry_delay=2.5),
            connected=4)
    publish(topic, 0, [b"bad"])
    topic.wait_until_empty("t", "c")
    assert [message.attempts for message in got.messages] == [2]
    assert "TOUCH" in [c.name for c in topic.nsqds[0].commands]


def test_requeue_sets_the_pause(topic, consume):
    seen = []

    def handler(message):
        seen.append(message.attempts)
        if message.attempts == 1:
            raise Requeue(0.01)
        if message.attempts == 2:
            message.requeue(0.01)

    consume(handler, ordered=True)
    publish(topic, 0, [b"x"])
    topic.wait_until_empty("t", "c")
    assert seen == [1, 2, 3]


def test_the_policy_may_skip_a_message(topic, consume, caplog):
    asked = []

    def policy(message, error):
        asked.append((message.body, str(error)))
        return BlockedAction.SKIP if message.attempts == 3 else 0.0

    got = Collector()
    got.failures[b"bad"] = 99
    consume(got, ordered=True, on_blocked=policy)
    publish(topic, 0, [b"bad", b"next"])
    topic.wait_until_empty("t", "c")
    assert got.bodies() == [b"next"]
    assert asked == [(b"bad", "b'bad' fails")] * 3
    assert "is skipped because of on_blocked" in caplog.text


def test_give_up_skips_a_message_of_an_ordered_consumer(topic, consume):
    """on_giving_up gets the message, and the partition continues."""
    kept, handled = [], []

    def handler(message):
        if message.body == b"bad":
            raise GiveUp("hopeless")
        handled.append(message.body)

    consume(handler, ordered=True, on_giving_up=lambda message: kept.append(
        (message.body, message.attempts, message.failure.reason)))
    publish(topic, 0, [b"bad", b"next"])
    topic.wait_until_empty("t", "c")
    assert (kept, handled) == ([(b"bad", 1, "hopeless")], [b"next"])


async def coroutine():
    """Nobody awaits it."""


def raises(message, error):
    """A policy that raises."""
    raise RuntimeError("policy")


@pytest.mark.parametrize("policy", [raises, lambda message, error: coroutine()])
def test_a_policy_that_fails_skips_nothing(topic, consume, policy):
    got = Collector()
    got.failures[b"bad"] = 2
    consume(got, ordered=True, on_blocked=policy)
    publish(topic, 0, [b"bad"])
    topic.wait_until_empty("t", "c")
    assert got.bodies() == [b"bad"]


def test_many_attempts_are_logged(topic, consume, caplog, monkeypatch):
    got = Collector()
    got.failures[b"bad"] = 11
    monkeypatch.setattr(consumer_processor, "_WARN_AFTER", 2)
    monkeypatch.setattr(consumer_processor, "_ERROR_FROM", 10)
    config = QUICK.replace(ordered_retry_delay=0.0)
    consume(got, ordered=True, config=config)
    publish(topic, 0, [b"bad"])
    topic.wait_until_empty("t", "c")
    levels = [(record.levelno, int(record.args[1].split()[0])) for record in caplog.records
              if "blocks its partition" in record.getMessage()]
    assert levels == [(logging.WARNING, n) for n in (4, 6, 8)] + [
        (logging.ERROR, n) for n in (10, 12)]


@pytest.mark.parametrize(("decision", "handled"), [
    (BlockedAction.HANDLE, [b"0", b"1", b"0", b"1"]), (BlockedAction.SKIP, [b"0", b"1", b"1"]),
])
def test_the_policy_decides_on_messages_out_of_order(topic, consume, decision, handled):
    """Older messages arrive after the offset was set back."""
    errors = []

    def policy(message, error):
        errors.append(error)
        return decision

    got = Collector()
    consumer = consume(got, ordered=True, on_blocked=policy)
    publish(topic, 0, numbers(2))
    topic.wait_until_empty("t", "c")
    # The connection stays, as it would with a server that is confused.
    subs = consumer._core.flow.subscriptions
    sub = subs[[other.place.partition for other in subs].index(0)]
    with topic._engine as state:
        channel = state.topics["t"].partitions[0].log.channels["c"]
        channel.position = 0
        channel.flow(topic._engine.now)
    topic.wait_until_empty("t", "c")
    assert got.bodies() == handled
    assert all(isinstance(error, OrderError) for error in errors) and errors
    assert sub in consumer._core.flow.subscriptions


def test_no_two_of_a_partition_are_handled_at_once(topic, consume):
    """After a move, nsqd redelivers a message that is still being handled."""
    inside, most = [0], [0]
    release = threading.Event()
    entered = threading.Event()
    bodies = []

    def handler(message):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        entered.set()
        release.wait(10)
        bodies.append(message.body)
        inside[0] -= 1

    consumer = consume(handler, ordered=True, workers=4, connected=4)
    publish(topic, 0, numbers(2))
    assert entered.wait(10)
    topic.move_leader("t", 0)
    # The message is out again, at the new leader.
    wait_until(lambda: any(len(s.in_flight) for s in consumer._core.flow.subscriptions
                           if s.place.partition == 0 and not s.is_lost
                           and s.address == topic.nsqds[1].tcp_address))
    release.set()
    topic.wait_until_empty("t", "c")
    assert most == [1] and bodies == [b"0", b"0", b"1"]


def test_a_hold_keeps_the_order(topic, consume):
    """RDY goes to 0 because of ``max_queued_bytes``, and back."""
    got, release = Collector(), threading.Event()

    def handle(message):
        assert release.wait(20)
        got(message)

    for partition in range(4):
        publish(topic, partition, numbers(10))
    config = QUICK.replace(max_queued_bytes=1000)
    consumer = consume(handle, ordered=True, config=config, connected=4)
    wait_until(lambda: consumer.stats().is_held)
    wait_until(lambda: {conn.rdy for conn in consumer.stats().connections} == {0})
    release.set()
    topic.wait_until_empty("t", "c")
    assert [got.bodies(partition) for partition in range(4)] == [numbers(10)] * 4
    assert {message.attempts for message in got.messages} == {1}


def test_stop_requeues_waiting_messages(topic, consume):
    got = Collector()
    got.failures[b"bad"] = 1
    consumer = consume(got, ordered=True, config=QUICK.replace(ordered_retry_delay=60.0))
    publish(topic, 0, [b"bad"])
    wait_until(lambda: got.failures[b"bad"] == 0 and not consumer.stats().running)
    report = consumer.stop(5.0)
    assert report
    assert topic.messages("t", 0, "c") == [b"bad"]


def test_iterators_receive_ordered_messages(topic):
    publish(topic, 0, numbers(5))
    consumer = Consumer("t", "c", ordered=True, config=QUICK,
                        lookupd_http_addresses=topic.lookupd_http_addresses)
    bodies = []
    with consumer:
        for message in consumer.messages(timeout=10.0):
            bodies.append(message.body)
            if len(bodies) == 5:
                break
    assert bodies == numbers(5)


@pytest.mark.parametrize("workers", [4, 3])
def test_with_a_worker_for_each_partition_workers_receive_messages(
    topic, consume, monkeypatch, workers
):
    """Each worker receives the next message of its partition. Fewer workers do not."""
    names = []  # of the threads that received
    receive = OrderedSubscription.on_messages

    def note(self, *arguments):
        names.append(threading.current_thread().name)
        receive(self, *arguments)

    monkeypatch.setattr(OrderedSubscription, "on_messages", note)
    for partition in range(4):
        publish(topic, partition, numbers(100))
    got, is_connected = Collector(), threading.Event()

    def handle(message):
        assert is_connected.wait(20)  # with fewer connections three workers would be enough
        got(message)

    consume(handle, ordered=True, workers=workers, connected=4)
    is_connected.set()
    topic.wait_until_empty("t", "c")
    assert [got.bodies(partition) for partition in range(4)] == [numbers(100)] * 4
    by_workers = sum(name.startswith("nsq-worker") for name in names)
    assert len(names) == 400 and (by_workers > 40 if workers == 4 else by_workers == 0)


def test_a_message_of_an_async_answer_is_followed_at_once(topic, consume):
    """Finishing a message in a user's thread wakes the reader."""
    publish(topic, 0, numbers(30))
    held, got = [], []

    def handle(message):
        message.enable_async()
        got.append(message.body)
        held.append(message)

    consume(handle, ordered=True, workers=4)
    for number in range(30):
        wait_until(lambda: len(got) == number + 1)
        held.pop().finish()
    topic.wait_until_empty("t", "c")
    assert got == numbers(30)
