"""Which segments make a batch, and which may be deleted."""

from __future__ import annotations

import pytest

from nsqclient.spark.spool.segment_index import Entry, SegmentIndex


def index_of(*entries):
    """An index of some segments."""
    index = SegmentIndex()
    for entry in entries:
        index.add(entry)
    return index


@pytest.fixture
def ten():
    """Ten equal segments."""
    return index_of(*(Entry(number, 100, 1000) for number in range(1, 11)))


@pytest.mark.parametrize("rows, size, end", [
    (None, None, 10), (300, None, 5), (350, None, 5), (1, None, 3), (None, 2500, 4),
    (500, 1500, 3), (99999, 99999, 10),
])
def test_a_batch_ends_at_its_limits_and_has_one_segment_at_least(ten, rows, size, end):
    """Whole segments only; a limit under one segment must not stop the query."""
    assert ten.end_of_batch(2, rows, size) == end


def test_a_batch_of_nothing_ends_where_it_starts(ten):
    """Spark compares offsets by their text."""
    assert ten.end_of_batch(10, 5, None) == 10
    assert index_of().end_of_batch(3, 5, None) == 3


def test_numbers_may_be_missing():
    """A lost segment, or a checkpoint that was ahead of its spool."""
    index = index_of(Entry(2, 1, 10), Entry(5, 1, 10), Entry(9, 1, 10))
    assert [entry.number for entry in index.between(2, 8)] == [5]
    assert index.end_of_batch(3, 2, None) == 9 and index.after(4) == (2, 20)


def test_totals_stay_true_when_old_segments_are_removed(ten):
    """Rows and bytes after a number; a batch after what was removed."""
    assert ten.after(0) == (1000, 10_000) and ten.after(7) == (300, 3000)
    assert ten.take_oldest(4) == [1, 2, 3, 4] and ten.take_oldest(4) == []
    ten.add(Entry(11, 5, 50))
    assert len(ten) == 7 and ten.after(0) == (605, 6050) == ten.after(4)
    assert ten.end_of_batch(4, 250, None) == 6 == ten.end_of_batch(0, None, 2999)
    assert ten.take_oldest(99) == [5, 6, 7, 8, 9, 10, 11]
    assert ten.after(0) == (0, 0) and ten.end_of_batch(0, None, None) == 0


def test_so_many_at_most_are_taken_at_once(ten):
    """The oldest ones; the others are next."""
    assert ten.take_oldest(5, 2) == [1, 2] and ten.take_oldest(5, 99) == [3, 4, 5]


def test_committed_segments_are_released(ten):
    """The others are not, and none twice."""
    assert ten.to_release(0, 4, lambda number: False) == 4
    assert ten.to_release(4, 4, lambda number: False) == 4
    assert ten.to_release(4, 2, lambda number: False) == 4
    assert index_of().to_release(7, 9, lambda number: False) == 7


def test_segments_with_unproven_fins_are_held_up_to_a_limit(ten):
    """Beyond it the ids go to a list; what is held is bounded, in rows and in bytes."""
    assert ten.to_release(0, 6, lambda number: number > 2, most_rows=400) == 2
    assert ten.to_release(0, 6, lambda number: number > 2, most_rows=300) == 3
    assert ten.to_release(0, 6, lambda number: number > 2, most_bytes=2000) == 4


def test_a_commit_looks_at_no_more_segments_than_it_releases():
    """Tens of thousands may be held until their FINs are proven, or kept after that."""
    index = index_of(*(Entry(number, 1, 10) for number in range(1, 20_001)))
    asked = []

    def is_held(number):
        asked.append(number)
        return number > 15_003

    assert index.to_release(15_000, 20_000, is_held) == 15_003
    assert asked == [15_001, 15_002, 15_003, 15_004]


@pytest.mark.parametrize("end, size, last", [
    (10, 10_000, 0), (10, 9999, 1), (10, 3000, 7), (10, 2999, 8), (6, 3000, 3), (10, 0, 10),
    (0, 0, 0), (99, 3000, 7), (10, 99_999, 0),
])
def test_what_is_beyond_so_many_bytes_is_the_oldest(ten, end, size, last):
    """Of the segments up to a number, the newest with so many bytes are within."""
    assert ten.last_beyond(end, size) == last


def test_bytes_are_counted_from_what_is_there(ten):
    """Not from what was taken before."""
    ten.take_oldest(4)
    assert ten.last_beyond(10, 6000) == 0 and ten.last_beyond(10, 5999) == 5
    assert index_of().last_beyond(10, 0) == 0
