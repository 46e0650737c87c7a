"""The decisions of the spool: names, recovery, retention."""

from __future__ import annotations

import pytest

from nsqclient.spark.spool.names import SegmentName, parse_epoch, parse_segment
from nsqclient.spark.spool.recovery import missing_numbers, next_number, ranges, sort_out
from nsqclient.spark.spool.retention import Entry, end_of_batch, spread, to_delete

TEN = [Entry(number, 100, 1000) for number in range(1, 11)]


def test_a_segment_is_known_by_its_name():
    """Number, epoch and rows stand in it."""
    name = SegmentName(42, 3, 2500)
    assert str(name) == "000000000042-000003-2500.arrow"
    assert parse_segment(str(name)) == name


@pytest.mark.parametrize("name", [
    "lock", ".tmp-1-2", "42-3-1.arrow", "000000000042-000003-2500.arrow.bak", "epoch-000001",
])
def test_other_files_are_no_segments(name):
    """Whatever else lies in the folder is left alone."""
    assert parse_segment(name) is None


def test_an_epoch_is_known_by_its_name():
    """And nothing else is one."""
    assert parse_epoch("epoch-000012") == 12
    assert parse_epoch("epoch-1") is None and parse_epoch("committed") is None


def test_a_segment_of_a_fenced_writer_is_a_stray():
    """A later epoch began at its number or before: readers know other rows under it."""
    before, late = SegmentName(4, 1, 10), SegmentName(5, 1, 10)
    mine = SegmentName(5, 2, 7)
    found = sort_out([mine, late, before], {1: 1, 2: 5})
    assert found.valid == [before, mine]
    assert found.strays == [late]


def test_numbers_go_on_where_anybody_stopped():
    """Segments, epochs that wrote nothing, the marker, and Spark's own checkpoint count."""
    assert next_number([], {}, 0) == 1
    assert next_number([SegmentName(4, 1, 10)], {1: 1}, 2) == 5
    assert next_number([SegmentName(4, 1, 10)], {1: 1, 2: 9}, 2) == 9
    assert next_number([], {}, 7) == 8
    assert next_number([], {}, 7, at_least=20) == 21


def test_a_stray_takes_no_number():
    """It is appended again under a new one."""
    assert next_number([SegmentName(9, 1, 10)], {1: 1, 2: 5}, 0) == 5


def test_missing_numbers_read_well():
    """An error says which segments are gone."""
    assert ranges(missing_numbers([11, 16, 18], 10, 20)) == "12..15, 17, 19..20"
    assert missing_numbers([1, 2, 3], 0, 3) == []


@pytest.mark.parametrize("rows, size, end", [
    (None, None, 10), (300, None, 5), (350, None, 5), (1, None, 3), (None, 2500, 4),
    (500, 1500, 3), (99999, 99999, 10),
])
def test_a_batch_ends_at_its_limits_and_has_one_segment_at_least(rows, size, end):
    """Whole segments only; a limit under one segment must not stop the query."""
    assert end_of_batch(TEN, 2, rows, size) == end


def test_a_batch_of_nothing_ends_where_it_starts():
    """Spark compares offsets by their text."""
    assert end_of_batch(TEN, 10, 5, None) == 10
    assert end_of_batch([], 3, 5, None) == 3


def test_committed_segments_go():
    """And the others stay."""
    assert to_delete(TEN, 4, lambda number: False) == [1, 2, 3, 4]


def test_segments_with_unproven_fins_stay_up_to_a_limit():
    """Beyond it the ids go to a list; the spool is bounded."""
    assert to_delete(TEN, 6, lambda number: number > 2, most_rows=400) == [1, 2]
    assert to_delete(TEN, 6, lambda number: number > 2, most_rows=300) == [1, 2, 3]


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 10, 50])
def test_segments_are_spread_evenly_and_in_order(parts):
    """Every segment is in one run, and no run is empty."""
    runs = spread(TEN, parts)
    assert [entry for run in runs for entry in run] == TEN
    assert len(runs) <= parts
    assert all(runs) and max(map(len, runs)) <= -(-10 // parts) + 1


def test_a_large_segment_does_not_starve_the_other_tasks():
    """It is a task of its own."""
    runs = spread([Entry(1, 1000, 1), Entry(2, 10, 1), Entry(3, 10, 1)], 2)
    assert [[entry.number for entry in run] for run in runs] == [[1], [2, 3]]


def test_nothing_is_spread_over_nothing():
    """An empty batch has no task."""
    assert spread([], 4) == []
