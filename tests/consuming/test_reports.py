"""What a consumer tells about itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nsqclient.consuming.in_flight import Counts
from nsqclient.consuming.reports import Health, Ledger, StopReport


@pytest.mark.parametrize("report, good", [
    (StopReport(1, 2, 0), True),
    (StopReport(1, 2, 1), False),
    (StopReport(1, 2, 0, complete=False), False),
    (StopReport(1, 2, 0, threads=("nsq-chores-1",)), True),
])
def test_a_stop_report_is_true_when_nothing_was_abandoned(report, good):
    """And when it is complete; a lookup that hangs costs no message."""
    assert bool(report) is good


def test_health_is_true_or_false():
    """With a reason for either."""
    assert Health(True, "connected") and not Health(False, "stopped")


def connection(**counts):
    """A subscription, as far as the ledger looks."""
    return SimpleNamespace(counts=Counts(**counts))


def test_the_ledger_adds_closed_and_live_connections():
    """Every count is summed."""
    ledger = Ledger()
    ledger.add(connection(finished=1, orphaned=2))
    total = ledger.total([connection(finished=10), connection(finished=100, expired=5)])
    assert (total.finished, total.orphaned, total.expired) == (111, 2, 5)


def test_a_connection_that_just_ended_counts_once():
    """For a moment it is both closed and among the live ones."""
    ledger = Ledger()
    ending = connection(finished=7)
    ledger.add(ending)
    assert ledger.total([ending]).finished == 7


def test_many_closed_connections_take_little_room():
    """A year of reconnects keeps its sums, not its parts."""
    ledger = Ledger()
    for _ in range(1000):
        ledger.add(connection(received=3))
    assert ledger.total([]).received == 3000
    assert len(ledger._closed) <= 17


def test_late_answers_of_a_closed_connection_count():
    """Handlers may answer after the loss of their connection."""
    ledger = Ledger()
    closed = connection()
    ledger.add(closed)
    closed.counts.lost_answers += 1
    assert ledger.total([]).lost_answers == 1
