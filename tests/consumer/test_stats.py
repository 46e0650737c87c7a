"""The statistics and the health of a consumer."""

import pytest

from nsqclient.consumer.stats import ClosedConnectionTotals, ConnectionCounters, StopReport


@pytest.mark.parametrize("report, good", [
    (StopReport(1, 2, 0), True),
    (StopReport(1, 2, 1), False),
    (StopReport(1, 2, 0, complete=False), False),
    (StopReport(1, 2, 0, threads=("nsq-background-1",)), True),
])
def test_a_stop_report_is_true_when_nothing_was_abandoned(report, good):
    assert bool(report) is good


def test_the_totals_add_closed_and_live_connections():
    totals = ClosedConnectionTotals()
    totals.add(ConnectionCounters(finished=1, orphaned=2))
    for _ in range(1000):
        totals.add(ConnectionCounters(received=3))
    assert len(totals._closed) <= 17
    total = totals.total([
        ConnectionCounters(finished=10), ConnectionCounters(finished=100, expired=5),
    ])
    assert (total.finished, total.orphaned, total.expired) == (111, 2, 5)
    assert total.received == 3000


def test_a_connection_that_just_ended_counts_once():
    """For a moment it is both closed and among the live ones; late answers to it count still."""
    totals = ClosedConnectionTotals()
    ending = ConnectionCounters(finished=7)
    totals.add(ending)
    assert totals.total([ending]).finished == 7
    ending.lost_answers += 1
    assert totals.total([]).lost_answers == 1
