"""What a consumer reports about itself."""

from __future__ import annotations

import pytest

from nsqclient.consumer.stats import (
    ClosedConnectionTotals,
    ConnectionCounters,
    Health,
    StopReport,
)


@pytest.mark.parametrize("report, good", [
    (StopReport(1, 2, 0), True),
    (StopReport(1, 2, 1), False),
    (StopReport(1, 2, 0, complete=False), False),
    (StopReport(1, 2, 0, threads=("nsq-background-1",)), True),
])
def test_a_stop_report_is_true_when_nothing_was_abandoned(report, good):
    """And when it is complete; a lookup that hangs costs no message."""
    assert bool(report) is good


def test_health_is_true_or_false():
    """With a reason for either."""
    assert Health(True, "connected") and not Health(False, "stopped")


def test_the_totals_add_closed_and_live_connections():
    """Every count is summed."""
    totals = ClosedConnectionTotals()
    totals.add(ConnectionCounters(finished=1, orphaned=2))
    total = totals.total([
        ConnectionCounters(finished=10), ConnectionCounters(finished=100, expired=5),
    ])
    assert (total.finished, total.orphaned, total.expired) == (111, 2, 5)


def test_a_connection_that_just_ended_counts_once():
    """For a moment it is both closed and among the live ones."""
    totals = ClosedConnectionTotals()
    ending = ConnectionCounters(finished=7)
    totals.add(ending)
    assert totals.total([ending]).finished == 7


def test_many_closed_connections_take_little_memory():
    """A year of reconnects keeps its sums, not its parts."""
    totals = ClosedConnectionTotals()
    for _ in range(1000):
        totals.add(ConnectionCounters(received=3))
    assert totals.total([]).received == 3000
    assert len(totals._closed) <= 17


def test_late_answers_of_a_closed_connection_count():
    """Handlers may answer after the loss of their connection."""
    totals = ClosedConnectionTotals()
    closed = ConnectionCounters()
    totals.add(closed)
    closed.lost_answers += 1
    assert totals.total([]).lost_answers == 1
