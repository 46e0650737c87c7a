"""The tables of a Subscription by value: what is in flight, and what expired unhandled."""

from __future__ import annotations

import time
from collections import deque

import pytest

from nsqclient.consumer.subscription import InFlightTable, UnhandledDeliveries
from nsqclient.errors import AlreadyRespondedError
from nsqclient.message import Message
from nsqclient.partitioned.lookup_table import Endpoint
from tests.support.processes import start_threads


def make(number, deadline=60.0):
    return Message(b"x", b"%016d" % number, 1, 1, 0.0, deadline, None)


@pytest.fixture
def messages():
    return [make(n, deadline) for n, deadline in enumerate([10.0, 20.0, 30.0])]


@pytest.fixture
def in_flight(messages):
    in_flight = InFlightTable()
    in_flight.add(messages)
    return in_flight


def test_messages_past_their_deadline_do_not_count(in_flight, messages):
    """nsqd has taken them back; they are still held until they are forgotten."""
    assert [in_flight.count(now) for now in (0.0, 10.0, 29.0, 30.0)] == [3, 2, 1, 0]
    assert in_flight.unanswered(15.0) == set(messages[1:])
    in_flight.forget(25.0)
    assert (len(in_flight), in_flight.counters.orphaned) == (1, 2)


def test_messages_that_expire_are_reported_at_once_and_then_every_minute(in_flight):
    times = [5.0, 5.0, 64.0, 65.0, 65.5, 125.0]
    assert [in_flight.count_expired(now) for now in times] == [1, 0, 0, 3, 0, 2]
    assert in_flight.counters.expired == 6


def test_messages_that_were_lost_with_their_connection_are_not_reported(in_flight):
    """They are counted; what is to be mended is the connection."""
    in_flight.mark_lost()
    assert (in_flight.count_expired(5.0), in_flight.counters.expired) == (0, 1)


def test_one_answer_wins(in_flight, messages):
    in_flight.mark_responded(messages[0])
    with pytest.raises(AlreadyRespondedError):
        in_flight.mark_responded(messages[0])
    assert in_flight.take_unanswered(messages) == messages[1:]
    assert in_flight.take_unanswered(messages) == []


def test_a_message_is_taken_once(in_flight, messages):
    assert in_flight.take(messages[:2]) == messages[:2]
    assert in_flight.take(messages) == messages[2:]


def test_a_second_delivery_replaces_the_first(in_flight, messages):
    """The answer of the first would finish the second under its handler: it is not sent."""
    again = make(0)
    in_flight.add([again])
    assert in_flight.holds(again) and not in_flight.holds(messages[0])
    assert in_flight.take_finished(deque([messages[0]])) == ([], 0)
    assert in_flight.counters.late_answers == 1
    assert in_flight.take_finished(deque([again])) == ([again.id], 0)


def test_what_is_finished_when_the_connection_is_gone_is_lost(in_flight, messages):
    """It counts as an orphan, and its answer as lost."""
    in_flight.mark_lost()
    assert in_flight.take_finished(deque(messages[:1])) == ([], 1)
    assert (len(in_flight), in_flight.counters.orphaned, in_flight.is_lost) == (0, 3, True)


def test_the_time_of_messages_ends_with_their_connection(in_flight, messages):
    """nsqd gives them to somebody else at once, so those that are queued are not handled."""
    expired = messages[0].deadline = 1.0
    messages[1].deadline = messages[2].deadline = float("inf")
    in_flight.mark_lost()
    in_flight.extend(messages[1], float("inf"))
    assert messages[0].deadline == expired
    assert all(message.deadline <= time.monotonic() for message in messages)


def test_an_expired_message_gets_no_more_time(in_flight, messages):
    messages[2].deadline = float("inf")
    in_flight.expire(messages[2].id)
    in_flight.expire(b"unknown")
    assert messages[2].time_left <= 0


HERE = Endpoint("a:4150")


@pytest.mark.parametrize("place, name, count", [
    (HERE, b"1", 3), (HERE, b"2", 0), (Endpoint("b:4150"), b"1", 0),
    (Endpoint("a:4150", 0), b"1", 0),
])
def test_each_delivery_that_expired_counts(place, name, count):
    """Ids are unique within a topic of an nsqd, or within a partition."""
    unhandled = UnhandledDeliveries()
    for _ in range(3):
        unhandled.add(HERE, b"1")
    assert unhandled.count(place, name) == count


def test_the_message_whose_last_expiry_is_oldest_is_forgotten():
    """So memory is bounded, and a message that goes on expiring is kept."""
    unhandled = UnhandledDeliveries(most=2)
    for name in (b"1", b"2", b"1", b"3"):
        unhandled.add(HERE, name)
    assert [unhandled.count(HERE, name) for name in (b"1", b"2", b"3")] == [2, 0, 1]


def test_threads_count_together():
    unhandled = UnhandledDeliveries(most=4)

    def add():
        for number in range(400):
            unhandled.add(HERE, b"%d" % (number % 4))

    for thread in start_threads(4, add):
        thread.join()
    assert [unhandled.count(HERE, b"%d" % number) for number in range(4)] == [400] * 4
