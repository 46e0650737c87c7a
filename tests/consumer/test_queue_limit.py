"""The bound on what waits: when the flow is held, what is queued, what ends a connection."""

from __future__ import annotations

import random
from collections import deque

import pytest

from nsqclient.consumer.backpressure import UNDER_WAY, UNDER_WAY_EACH, QueueLimit
from nsqclient.message import MESSAGE_OVERHEAD

LIMIT = 1000


def held(now: float = 0.0, size: int = 1001, limit: int = LIMIT) -> QueueLimit:
    """A limit with half a second to settle, whose hold began at ``now``."""
    bound = QueueLimit(limit, 0.5)
    bound.measured(2, size, now)
    assert bound.is_held
    return bound


def test_the_queue_is_measured_when_what_arrived_could_be_over_the_limit():
    """Not before: what has left meanwhile is not counted."""
    bound = QueueLimit(LIMIT, 0.5)
    assert not bound.add(600)
    assert not bound.add(400)
    assert bound.add(1)


def test_a_queue_near_its_limit_is_not_measured_for_every_message():
    """Measuring a long queue takes time; a sixteenth of the limit lies between two measurements."""
    bound = QueueLimit(1600, 0.5)
    bound.measured(1000, 1600, 0.0)
    assert not bound.is_held
    assert [bound.add(10) for _ in range(10)] == [False] * 9 + [True]


def test_more_than_the_limit_begins_a_hold_and_half_of_it_ends_it():
    bound = QueueLimit(LIMIT, 0.5)
    seen = []
    for size in (1000, 1001, 900, 501, 500, 501, 1000, 1001):
        bound.measured(3, size, 0.0)
        seen.append(bound.is_held)
    assert seen == [False, True, True, True, False, False, False, True]


@pytest.mark.parametrize("size", [1, LIMIT, 10**9])
def test_one_message_always_fits(size):
    """Whatever its size: else it could never be received."""
    bound = QueueLimit(LIMIT, 0.5)
    bound.measured(1, size, 0.0)
    assert not bound.is_held
    bound.measured(2, LIMIT + size, 0.0)
    assert bound.is_held
    bound.measured(1, size, 0.0)
    assert not bound.is_held


def test_what_was_sent_before_rdy_0_is_queued():
    """32 MiB of it, or 16 MiB for each connection where there are many."""
    bound = held()
    bound.add(UNDER_WAY - 1)
    assert bound.accepts("a", 1)
    bound = held()
    bound.add(10 * UNDER_WAY_EACH - 1)
    assert bound.accepts("a", 10)


def test_beyond_that_one_message_of_each_connection_is_queued():
    """One may be in the middle of its way on each; what follows it goes back to nsqd."""
    bound = held()
    bound.add(UNDER_WAY)
    assert [bound.accepts(name, 2) for name in "aabb"] == [True, False, True, False]


def test_everything_is_queued_while_nothing_is_held():
    """A queue that is long for a moment is measured first."""
    bound = QueueLimit(LIMIT, 0.5)
    bound.add(10**9)
    assert bound.accepts("a", 1) and bound.accepts("a", 1)


def test_what_arrives_before_rdy_0_has_settled_is_no_flood():
    """However much it is: nsqd may not have read RDY 0 yet."""
    bound = held(now=10.0)
    assert not bound.is_flood("a", 10**6, 10**9, 1, now=10.49)


def test_after_the_settle_time_twice_the_highest_rdy_may_still_arrive():
    """A slow network delays so many; one more was sent in spite of RDY 0."""
    bound = held()
    assert not any(bound.is_flood("a", 1, 1, 3, now=0.5 + n) for n in range(6))
    assert not bound.is_flood("b", 1, 1, 3, now=9.0)  # connections are judged one by one
    assert bound.is_flood("a", 1, 1, 3, now=9.0)


def test_a_connection_that_never_had_rdy_may_send_nothing():
    assert held().is_flood("a", 1, 1, 0, now=0.5)


def test_after_the_settle_time_no_more_bytes_arrive_than_sockets_hold():
    """A single message of any size is none too much."""
    bound = held()
    assert not bound.is_flood("a", 1, 10 * UNDER_WAY, 1000, now=1.0)
    assert bound.is_flood("a", 1, 1, 1000, now=1.0)


def test_a_new_hold_begins_to_count_again():
    bound = held()
    assert not bound.is_flood("a", 2, 2, 1, now=1.0)
    bound.add(UNDER_WAY)
    assert bound.accepts("a", 1) and not bound.accepts("a", 1)
    bound.measured(0, 0, 2.0)
    bound.measured(2, LIMIT + 1, 3.0)
    assert not bound.is_flood("a", 2, 2, 1, now=4.0)
    bound.add(UNDER_WAY)
    assert bound.accepts("a", 1)


@pytest.mark.parametrize("seed", range(20))
def test_what_waits_has_a_bound_whatever_is_sent(seed):
    """Any sizes, any rate of handling, no regard to RDY: the bound of the manual holds."""
    rng = random.Random(seed)
    limit = rng.choice([1, 10_000, 10**7, 256 * 2**20])
    bound, largest, connections = QueueLimit(limit, 0.5), 0, rng.randint(1, 12)
    queue: deque[int] = deque()
    waiting = 0
    sizes = rng.choice([[1], [100_000], [30 * 2**20], [1, 10_000, 10 * 2**20]])
    pace = rng.choice([0.0, 0.3, 0.6, 0.9])  # of the handlers
    over = limit + limit / 16
    most = over + max(UNDER_WAY, connections * UNDER_WAY_EACH)
    for _ in range(6000):
        if rng.random() < 0.7:
            size = MESSAGE_OVERHEAD + rng.choice(sizes)
            largest = max(largest, size)
            if bound.accepts(rng.randrange(connections), connections):
                queue.append(size)
                waiting += size
                if bound.add(size):
                    bound.measured(len(queue), waiting, 0.0)
        if queue and rng.random() < pace:
            waiting -= queue.popleft()
        if bound.is_held and rng.random() < 0.1:
            bound.measured(len(queue), waiting, 0.0)
        assert waiting <= most + (connections + 1) * largest
        assert bound.is_held or waiting <= over + largest
