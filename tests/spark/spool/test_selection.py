"""The decisions of the spool: names, recovery, tasks."""

from __future__ import annotations

import pytest

from nsqclient.spark.spool.names import SegmentName, parse_epoch, parse_segment
from nsqclient.spark.spool.selection import (
    classify_segments,
    missing_numbers,
    next_number,
    ranges,
    spread,
)


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
    found = classify_segments([mine, late, before], {1: 1, 2: 5})
    assert found.valid == [before, mine]
    assert found.strays == [late]


def test_numbers_go_on_after_the_last_used_one():
    """Segments, epochs that wrote nothing, the marker, and Spark's own checkpoint count."""
    assert next_number([], {}, 0) == 1
    assert next_number([SegmentName(4, 1, 10)], {1: 1}, 2) == 5
    assert next_number([SegmentName(4, 1, 10)], {1: 1, 2: 9}, 2) == 9
    assert next_number([], {}, 7) == 8
    assert next_number([], {}, 7, at_least=20) == 21


def test_a_stray_takes_no_number():
    """It is appended again under a new one."""
    assert next_number([SegmentName(9, 1, 10)], {1: 1, 2: 5}, 0) == 5


def test_missing_numbers_are_shown_as_ranges():
    """An error says which segments are gone."""
    assert ranges(missing_numbers([11, 16, 18], 10, 20)) == "12..15, 17, 19..20"
    assert missing_numbers([1, 2, 3], 0, 3) == []


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 10, 50])
def test_segments_are_spread_evenly_and_in_order(parts):
    """Every segment is in one run, and no run is empty."""
    runs = spread(((number, 1000) for number in range(10)), parts)
    assert [number for run in runs for number in run] == list(range(10))
    assert len(runs) <= parts
    assert all(runs) and max(map(len, runs)) <= -(-10 // parts) + 1


def test_a_large_segment_does_not_starve_the_other_tasks():
    """It is a task of its own."""
    assert spread([(1, 1000), (2, 10), (3, 10)], 2) == [[1], [2, 3]]
    assert spread([(1, 10), (2, 10), (3, 1000)], 2) == [[1, 2], [3]]


def test_no_task_has_more_than_its_bytes():
    """Many small segments and some large ones, seen as one task of 161 MB; one may be larger."""
    sizes = [240] * 30 + [1000] * 16 + [5000] + [10] * 5
    runs = spread(enumerate(sizes), 2, 1500)
    assert [number for run in runs for number in run] == list(range(len(sizes)))
    assert sorted(sum(sizes[number] for number in run) for run in runs)[-2:] == [1440, 5000]


def test_nothing_is_spread_over_nothing():
    """An empty batch has no task."""
    assert spread([], 4) == []
