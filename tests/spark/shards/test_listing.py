"""Where a query without a checkpoint begins, and what a replay reads, by value."""

import pytest

from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.listing import (
    ShardListing, find_end, find_start, missing_numbers, ranges,
)
from nsqclient.spark.shards.names import Segment

A = "a:4150"
#: Segments 4 to 9, which were stored at the times 40.0 to 90.0; Spark has committed up to 7.
LOG = ShardListing(A, [Segment(n, 0, 1, n * 10.0) for n in range(4, 10)], 7)
EMPTY = ShardListing(A, [], 9)


def options(offset=None, time=None):
    """Options of which the range begins, and ends, there."""
    offset = {A: offset} if isinstance(offset, int) else offset
    return ReadOptions(starting_offsets=offset, starting_timestamp=time,
                       ending_offsets=offset, ending_timestamp=time)


@pytest.mark.parametrize("offset, time, start, end", [
    (None, None, 3, 9), ("committed", None, 7, 9), ("earliest", None, 3, 9),
    ("latest", None, 9, 9), (3, None, 3, 3), (5, None, 5, 5), (9, None, 9, 9),
    ({"b:1": 5}, None, 3, 0),
    (None, 0.0, 3, 3), (None, 50.0, 4, 4), (None, 50.1, 5, 5), (None, 90.0, 8, 8),
    (None, 90.1, 9, 9),
])
def test_a_range_is_between_two_numbers(offset, time, start, end):
    """A time means the first segment that was stored then or later, which an end leaves out."""
    chosen = options(offset, time)
    assert find_start(LOG, chosen, "earliest") == (start, "")
    assert find_end(LOG, chosen) == (end, "")
    if time is not None or offset in ("earliest", "latest", 9):
        assert find_start(EMPTY, chosen, "earliest") == (9, "")


@pytest.mark.parametrize("offset, start, words", [
    (2, 3, "has segments from 4 on; reading was to begin after 2, so 3 is not there"),
    (0, 3, "has segments from 4 on; reading was to begin after 0, so 1..3 are not"),
    (10, 9, "ends at number 9; reading was to begin after 10"),
])
def test_a_number_out_of_range_is_a_loss(offset, start, words):
    found = find_start(LOG, options(offset), "earliest")
    assert found.number == start and words in found.lost
    if offset == 10:
        assert find_end(LOG, options(10)) == (9, "ends at number 9; reading was to end with 10")


def test_missing_numbers_are_shown_as_ranges():
    assert ranges(missing_numbers([3, 7], 2, 8)) == "4..6, 8"
    assert ranges([]) == ""
