"""UnhandledDeliveries by value: what is remembered of messages that expired in the queue."""

from __future__ import annotations

import threading

import pytest

from nsqclient.consuming.unhandled_deliveries import UnhandledDeliveries
from nsqclient.partitions.routes import Place

HERE, THERE = Place("a:4150"), Place("b:4150")


def test_each_delivery_that_expired_counts():
    """A message that never did has none."""
    unhandled = UnhandledDeliveries()
    for _ in range(3):
        unhandled.add(HERE, b"1")
    assert [unhandled.count(HERE, name) for name in (b"1", b"2")] == [3, 0]


@pytest.mark.parametrize("other", [THERE, Place("a:4150", 0)])
def test_the_same_id_from_elsewhere_is_another_message(other):
    """Ids are unique within a topic of an nsqd, or within a partition."""
    unhandled = UnhandledDeliveries()
    unhandled.add(HERE, b"1")
    assert unhandled.count(other, b"1") == 0


def test_the_message_whose_last_expiry_is_oldest_is_forgotten():
    """So memory is bounded, and a message that goes on expiring is kept."""
    unhandled = UnhandledDeliveries(most=2)
    for name in (b"1", b"2", b"1", b"3"):
        unhandled.add(HERE, name)
    assert [unhandled.count(HERE, name) for name in (b"1", b"2", b"3")] == [2, 0, 1]
    assert len(unhandled) == 2


def test_threads_count_together():
    """Every worker drops what expired."""
    unhandled = UnhandledDeliveries(most=4)

    def add():
        for number in range(400):
            unhandled.add(HERE, b"%d" % (number % 4))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [unhandled.count(HERE, b"%d" % number) for number in range(4)] == [400] * 4
