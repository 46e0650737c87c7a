"""Where a query without a checkpoint begins, and what a replay reads."""

from __future__ import annotations

import pytest

from nsqclient.spark.shards.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    after_seq,
    at_time,
    find_end,
    find_start,
    missing_numbers,
    ranges,
)

#: Segments 4 to 9, which were stored at the times 40.0 to 90.0; Spark has committed up to 7.
NUMBERS = list(range(4, 10))


def start(bound, numbers=NUMBERS, last=9):
    """Where reading begins, and what is said of loss."""
    return find_start(bound, numbers, last, 7, lambda number: number * 10.0)


@pytest.mark.parametrize("bound, seq", [
    (COMMITTED, 7), (EARLIEST, 3), (LATEST, 9),
    (after_seq(3), 3), (after_seq(5), 5), (after_seq(9), 9),
    (at_time(0.0), 3), (at_time(50.0), 4), (at_time(50.1), 5), (at_time(90.0), 8),
    (at_time(90.1), 9),
])
def test_reading_begins_after_a_number(bound, seq):
    """A time means the first segment that was stored then or later."""
    assert start(bound) == (seq, "")


@pytest.mark.parametrize("bound, seq", [
    (EARLIEST, 9), (LATEST, 9), (after_seq(9), 9), (at_time(0.0), 9)])
def test_in_an_empty_log_it_begins_at_the_end(bound, seq):
    """Numbers go on where they were."""
    assert start(bound, numbers=[]) == (seq, "")


@pytest.mark.parametrize("bound, seq, words", [
    (after_seq(2), 3, "has segments from 4 on; reading was to begin after 2, so 3 is not there"),
    (after_seq(0), 3, "has segments from 4 on; reading was to begin after 0, so 1..3 are not"),
    (after_seq(10), 9, "ends at number 9; reading was to begin after 10"),
])
def test_a_number_out_of_range_is_a_loss(bound, seq, words):
    """The nearest is what there is, if that is accepted."""
    found = start(bound)
    assert found.seq == seq and words in found.lost


@pytest.mark.parametrize("bound, seq", [
    (LATEST, 9), (after_seq(9), 9), (after_seq(5), 5), (after_seq(0), 0),
    (at_time(0.0), 3), (at_time(50.0), 4), (at_time(50.1), 5), (at_time(99.0), 9),
])
def test_reading_ends_with_a_number(bound, seq):
    """A time means the last segment that was stored before."""
    assert find_end(bound, NUMBERS, 9, lambda number: number * 10.0) == (seq, "")


def test_an_end_out_of_range_is_a_loss():
    """An empty log ends where its numbers do."""
    found = find_end(after_seq(10), NUMBERS, 9, lambda number: 0.0)
    assert found == (9, "ends at number 9; reading was to end with 10")
    assert find_end(at_time(5.0), [], 9, lambda number: 0.0) == (9, "")


def test_missing_numbers_are_shown_as_ranges():
    """A gap of a thousand is short."""
    assert ranges(missing_numbers([3, 7], 2, 8)) == "4..6, 8"
    assert ranges([]) == ""
