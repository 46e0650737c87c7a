"""InFlight by value: what is out, and who may answer it."""

from __future__ import annotations

import time
from collections import deque

import pytest

from nsqclient.consuming.in_flight import InFlight
from nsqclient.errors import AlreadyRespondedError
from nsqclient.message import Message


def make(number, deadline=60.0):
    """A message that nobody has answered."""
    return Message(b"x", b"%016d" % number, 1, 1, 0.0, deadline, None)


@pytest.fixture
def messages():
    """Three messages with deadlines 10, 20 and 30."""
    return [make(n, deadline) for n, deadline in enumerate([10.0, 20.0, 30.0])]


@pytest.fixture
def in_flight(messages):
    """The three of them out."""
    in_flight = InFlight()
    in_flight.add(messages)
    return in_flight


def test_messages_past_their_deadline_do_not_count(in_flight, messages):
    """nsqd has taken them back; they are still held until they are forgotten."""
    assert [in_flight.count(now) for now in (0.0, 10.0, 29.0, 30.0)] == [3, 2, 1, 0]
    assert in_flight.unanswered(15.0) == set(messages[1:])
    in_flight.forget(25.0)
    assert (len(in_flight), in_flight.counts.orphaned) == (1, 2)


def test_messages_that_expire_are_reported_at_once_and_then_every_minute(in_flight):
    """Each report says how many there were since the one before."""
    times = [5.0, 5.0, 64.0, 65.0, 65.5, 125.0]
    assert [in_flight.count_expired(now) for now in times] == [1, 0, 0, 3, 0, 2]
    assert in_flight.counts.expired == 6


def test_messages_that_were_lost_with_their_connection_are_not_reported(in_flight):
    """They are counted; what is to be mended is the connection."""
    in_flight.lose()
    assert (in_flight.count_expired(5.0), in_flight.counts.expired) == (0, 1)


def test_one_claim_wins(in_flight, messages):
    """The second answer is refused, whoever gives it."""
    in_flight.claim(messages[0])
    with pytest.raises(AlreadyRespondedError):
        in_flight.claim(messages[0])
    assert in_flight.claim_all(messages) == messages[1:]
    assert in_flight.claim_all(messages) == []


def test_a_message_is_taken_once(in_flight, messages):
    """Whoever takes it sends its answer."""
    assert in_flight.take(messages[:2]) == messages[:2]
    assert in_flight.take(messages) == messages[2:]


def test_a_second_delivery_replaces_the_first(in_flight, messages):
    """The answer of the first would finish the second under its handler: it is not sent."""
    again = make(0)
    in_flight.add([again])
    assert in_flight.holds(again) and not in_flight.holds(messages[0])
    assert in_flight.take_finished(deque([messages[0]])) == ([], 0)
    assert in_flight.counts.late_answers == 1
    assert in_flight.take_finished(deque([again])) == ([again.id], 0)


def test_what_is_finished_when_the_connection_is_gone_is_lost(in_flight, messages):
    """It counts as an orphan, and its answer as lost."""
    in_flight.lose()
    assert in_flight.take_finished(deque(messages[:1])) == ([], 1)
    assert (len(in_flight), in_flight.counts.orphaned, in_flight.is_lost) == (0, 3, True)


def test_the_time_of_messages_ends_with_their_connection(in_flight, messages):
    """nsqd gives them to somebody else at once, so those that are queued are not handled."""
    expired = messages[0].deadline = 1.0
    messages[1].deadline = messages[2].deadline = float("inf")
    in_flight.lose()
    in_flight.extend(messages[1], float("inf"))
    assert messages[0].deadline == expired
    assert all(message.deadline <= time.monotonic() for message in messages)


def test_an_expired_message_gets_no_more_time(in_flight, messages):
    """expire() ends it now; an unknown id is nothing."""
    messages[2].deadline = float("inf")
    in_flight.expire(messages[2].id)
    in_flight.expire(b"unknown")
    assert messages[2].time_left <= 0
