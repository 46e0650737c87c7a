"""The rules of channels, with the time as an argument; message ids."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqclient.devserver.queues import (
    Channel, Consumer, Backend, MessageIds, NullBackend, QueueLimits, Scheduler, StoredMessage,
)

WALL = 1_795_000_000_000_000_000


def make_channel(limits=QueueLimits(), backend=None, rng=None):
    return Channel("t", "c", limits, backend or Backend(), Scheduler(rng))


def make_message(number, deferral=0.0):
    return StoredMessage(b"%016x" % number, number, b"body", deferral=deferral)


def join(channel, ready=1, number=1, msg_timeout=60.0, now=0.0, sample_rate=0):
    consumer = Consumer(number, msg_timeout, sample_rate)
    channel.add_consumer(consumer)
    channel.set_ready(consumer, ready, now)
    return consumer


def numbers(consumer):
    taken, consumer.outbox = consumer.outbox, []
    return [timestamp for timestamp, *_ in taken]


def fill(channel, count, now=0.0):
    for number in range(count):
        channel.put(make_message(number), now)


def id_of(number):
    return b"%016x" % number


def test_rdy_limits_the_messages_in_flight():
    """RDY 2 means two in flight, not two deliveries: the next one comes after a FIN."""
    channel = make_channel()
    consumer = join(channel, ready=2)
    fill(channel, 4)
    assert numbers(consumer) == [0, 1]
    assert channel.finish(consumer, id_of(0), 1.0) is None
    assert numbers(consumer) == [2]
    channel.set_ready(consumer, 0, 1.0)
    channel.finish(consumer, id_of(1), 1.0)
    assert numbers(consumer) == [] and consumer.in_flight == 1
    channel.set_ready(consumer, 2, 1.0)
    assert numbers(consumer) == [3]
    channel.finish(consumer, id_of(3), 1.0)
    channel.set_ready(consumer, 1, 1.0)  # it was ready for one more
    channel.put(make_message(4), 1.0)
    assert numbers(consumer) == []


def test_ready_consumers_take_turns():
    channel = make_channel()
    first, second = join(channel, 10, 1), join(channel, 2, 2)
    fill(channel, 8)
    assert numbers(first) == [0, 2, 4, 5, 6, 7]
    assert numbers(second) == [1, 3]


class UnreadableBackend(Backend):
    """A disk that cannot be read while ``is_broken`` is set."""

    is_broken = True

    def get(self):
        if self.is_broken:
            raise OSError(5, "Input/output error")
        return super().get()


def test_a_read_error_leaves_the_consumer_ready():
    backend = UnreadableBackend()
    channel = make_channel(QueueLimits(mem_queue_size=0), backend)
    fill(channel, 2)
    with pytest.raises(OSError):
        join(channel, ready=2)
    consumer = channel.consumers[1]
    assert numbers(consumer) == []
    backend.is_broken = False
    channel.tick(1.0)
    assert numbers(consumer) == [0, 1]


def test_a_read_error_does_not_end_the_timeouts():
    backend = UnreadableBackend()
    channel = make_channel(QueueLimits(mem_queue_size=0), backend)
    first, second = join(channel, 1, 1, msg_timeout=1.0), join(channel, 1, 2, msg_timeout=2.0)
    fill(channel, 2)
    assert numbers(first) == [0] and numbers(second) == [1]
    with pytest.raises(OSError):
        channel.tick(1.0)
    assert channel.scheduled == 2.0
    backend.is_broken = False
    channel.tick(2.0)
    assert numbers(first) + numbers(second) == [0, 1]


def test_attempts_count_deliveries_modulo_2_16():
    channel = make_channel()
    consumer = join(channel)
    message = make_message(7)
    message.attempts = 0xFFFF
    channel.put(message, 0.0)
    assert consumer.outbox[0][1] == 0
    channel.requeue(consumer, id_of(7), 0, 1.0)
    assert [attempts for _, attempts, *_ in consumer.outbox] == [0, 1]


def test_timeout_is_prompt_and_never_early():
    channel = make_channel()
    consumer = join(channel, 1, msg_timeout=2.0)
    fill(channel, 1, now=10.0)
    assert channel.scheduled == 12.0
    channel.tick(11.999)
    assert channel.timeout_count == 0
    channel.tick(12.0)
    assert (channel.timeout_count, consumer.timeout_count) == (1, 1)
    assert [attempts for _, attempts, *_ in consumer.outbox] == [1, 2]
    assert channel.finish(consumer, id_of(0), 12.0) is None


def test_touch_restarts_the_timeout_up_to_a_cap():
    channel = make_channel(QueueLimits(max_msg_timeout=5.0))
    consumer = join(channel, 1, msg_timeout=2.0)
    fill(channel, 1)
    for now in (1.0, 2.5, 4.0):
        assert channel.touch(consumer, id_of(0), now) is None
    channel.tick(4.999)
    assert channel.timeout_count == 0
    channel.tick(5.0)
    assert channel.timeout_count == 1


def test_requeue_now_goes_to_the_end_and_later_is_deferred():
    channel = make_channel()
    consumer = join(channel, 1)
    fill(channel, 2)
    channel.requeue(consumer, id_of(0), 0, 1.0)
    channel.requeue(consumer, id_of(1), 3.0, 1.0)
    assert numbers(consumer) == [0, 1, 0]
    assert (channel.requeue_count, len(channel.deferred), len(channel.queue)) == (2, 1, 0)
    channel.finish(consumer, id_of(0), 1.5)
    channel.tick(3.9)
    assert numbers(consumer) == []
    channel.tick(4.0)
    assert numbers(consumer) == [1]


def test_removed_consumer_keeps_messages_until_their_timeout():
    channel = make_channel()
    gone = join(channel, 1, 1, msg_timeout=5.0)
    fill(channel, 1)
    channel.remove_consumer(gone)
    stays = join(channel, 1, 2)
    assert numbers(stays) == [] and len(channel.in_flight) == 1
    channel.tick(5.0)
    assert numbers(stays) == [0]


def test_paused_channel_delivers_nothing():
    channel = make_channel()
    consumer = join(channel, 5)
    channel.set_paused(True, 0.0)
    fill(channel, 2)
    assert numbers(consumer) == [] and len(channel.queue) == 2
    channel.set_paused(False, 1.0)
    assert numbers(consumer) == [0, 1]


def test_empty_drops_all_messages():
    """Consumers are ready again, and a late FIN fails."""
    channel = make_channel()
    consumer = join(channel, 1)
    fill(channel, 3)
    channel.put(make_message(9, deferral=1.0), 0.0)
    channel.empty(0.0)
    assert channel.is_idle() and consumer.in_flight == 0
    assert channel.finish(consumer, id_of(0), 0.0) == "ID not in flight"
    channel.tick(100.0)
    assert channel.timeout_count == 0
    numbers(consumer)
    channel.put(make_message(4), 0.0)
    assert numbers(consumer) == [4]


def test_ephemeral_channel_drops_messages_beyond_memory():
    channel = make_channel(QueueLimits(mem_queue_size=10), NullBackend())
    fill(channel, 25)
    assert (channel.message_count, len(channel.queue)) == (25, 10)


def test_message_reaches_a_waiting_consumer_without_memory():
    channel = make_channel(QueueLimits(mem_queue_size=0), NullBackend())
    consumer = join(channel, 1)
    fill(channel, 2)
    assert numbers(consumer) == [0] and channel.is_idle() is False
    assert len(channel.queue) == 0


def test_sample_rate_drops_for_the_whole_channel():
    """A sampled consumer gets its share; the rest is gone, without attempts or FIN."""
    channel = make_channel(rng=random.Random(1))
    consumer = join(channel, 2500, sample_rate=50)
    fill(channel, 1000)
    kept = len(numbers(consumer))
    assert 400 < kept < 620 and len(channel.in_flight) == kept
    assert len(channel.queue) == 0
    full = make_channel(rng=random.Random(1))
    everything = join(full, 2500, sample_rate=99)
    fill(full, 1000)
    assert len(numbers(everything)) == 1000


def test_deadlines_of_finished_messages_are_removed():
    channel = make_channel()
    consumer = join(channel, 10)
    for number in range(5000):
        channel.put(make_message(number), 0.0)
        channel.finish(consumer, id_of(number), 0.0)
        consumer.outbox.clear()
    assert len(channel._dues) < 200


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "defer", "fin", "req", "req later", "touch", "rdy", "pause", "go"]),
        st.integers(0, 9),
        st.integers(0, 2),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS, st.integers(0, 5))
@example([("put", 0, 0), ("rdy", 1, 0), ("fin", 0, 0)], 5)
def test_no_message_is_lost_or_doubled(operations, memory):
    channel = make_channel(QueueLimits(mem_queue_size=memory, max_msg_timeout=6.0))
    consumers = [join(channel, 0, number + 1, msg_timeout=3.0) for number in range(3)]
    alive: set[bytes] = set()
    now = 0.0
    for count, (operation, value, index) in enumerate(operations):
        consumer = consumers[index]
        held = sorted(channel.in_flight)
        target = held[value % len(held)] if held else id_of(999_999)
        now += value / 4
        if operation in ("put", "defer"):
            channel.put(make_message(count, 2.0 if operation == "defer" else 0.0), now)
            alive.add(id_of(count))
        elif operation == "fin":
            if channel.finish(consumer, target, now) is None:
                alive.remove(target)
        elif operation == "req":
            channel.requeue(consumer, target, 0, now)
        elif operation == "req later":
            channel.requeue(consumer, target, 1.5, now)
        elif operation == "touch":
            channel.touch(consumer, target, now)
        elif operation == "rdy":
            channel.set_ready(consumer, value, now)
        else:
            channel.set_paused(operation == "pause", now)
        channel._scheduler.tick(now)
        waiting = [message.id for message in channel.queue.peek()]
        places = [*waiting, *channel.in_flight, *channel.deferred]
        assert sorted(places) == sorted(alive)
        assert sum(each.in_flight for each in consumers) == len(channel.in_flight)
        if waiting and not channel.paused:
            assert not any(each.in_flight < each.ready for each in consumers)
        assert all(message.deadline > now for message in channel.in_flight.values())


def test_ids_increase_and_are_consecutive():
    """Ids are 16 hex digits, consecutive in one publish, and increase whatever the clock does."""
    ids = MessageIds(1000)
    first = ids.take(3, WALL)
    assert [int(b, 16) - int(a, 16) for a, b in zip(first, first[1:])] == [1, 1]
    later = ids.take(1, WALL - 10**12) + ids.take(9000, WALL) + ids.take(1, WALL + 10**9)
    everything = first + later
    assert everything == sorted(set(everything))
    assert {len(id_) for id_ in everything} == {16}


def test_id_has_nsqds_layout():
    number = int(MessageIds(691).take(1, WALL)[0], 16)
    assert number >> 22 == (WALL >> 20) - 1288834974288
    assert (number >> 12 & 1023, number & 4095) == (691, 0)
