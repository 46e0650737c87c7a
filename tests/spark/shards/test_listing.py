"""How a writer, a query and a replay read a listing, and how long segments are kept, by value."""

import pytest

from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.listing import (
    ShardListing, find_end, find_start, missing_numbers, ranges,
)

from nsqclient.spark.shards.names import (
    NoteKey, Segment, ShardKeys, parse_note, parse_number, parse_segment, parse_shard,
)
from nsqclient.spark.shards.log_reader import Retention
from nsqclient.spark.shards.shard_log import End, RecoveryPlan, plan_recovery

#: Segments 1 to 5 of ten rows each.
FIVE = [Segment(number, 10 * (number - 1)) for number in range(1, 6)]


def test_the_next_key_follows_from_the_segment_before():
    """Two writers that know the same segments want the same key."""
    keys = ShardKeys("t", "c", "node:4150")
    end = End(812, 203000)
    assert keys.segment(813, end.rows) == (
        "t/c/node:4150/segments/000000000/000000000813-000000000203000.arrow")
    assert end.next(50) == End(813, 203050)


def test_keys_are_read_as_they_were_written():
    """Channels with special characters, and IPv6 addresses, are plain folders."""
    keys = ShardKeys("t", "c#x", "[::1]:4150")
    assert keys.folder == "t/c%23x/[::1]:4150"
    assert parse_segment(keys.segment(1000, 7)) == Segment(1000, 7)
    assert parse_note(keys.note(NoteKey(5, 2))) == (5, 2)
    assert parse_number(keys.commit(5)) == parse_number(keys.floor(5)) == 5
    assert parse_shard(keys.shard) == "[::1]:4150"
    for key in ("t/c/x/segments/000000000/.tmp-1", "t/c/x/notes/5", "t/c/x/commits/x"):
        assert parse_segment(key) is parse_note(key) is parse_number(key) is None


@pytest.mark.parametrize("number", [0, 812, 998, 999, 1000, 123456])
def test_a_listing_of_new_segments_begins_between_two(number):
    keys = ShardKeys("t", "c", "n:1")
    mark = keys.after_segment(number)
    assert keys.segment(number, 10 ** 14) < mark < keys.segment(number + 1, 0)


@pytest.mark.parametrize("segments, clean_to, plan", [
    ([], 0, RecoveryPlan([], [])),
    (FIVE, 0, RecoveryPlan(FIVE, [])),
    (FIVE, 3, RecoveryPlan(FIVE[3:], [FIVE[2], FIVE[1]])),
    (FIVE, 5, RecoveryPlan([], [FIVE[4], FIVE[3], FIVE[2]])),
    (FIVE[3:], 3, RecoveryPlan(FIVE[3:], [])),
    (FIVE[3:], 4, RecoveryPlan(FIVE[4:], [FIVE[3]])),
])
def test_a_new_writer_reads_all_behind_the_note_and_some_before(segments, clean_to, plan):
    """It reads a limited number of proven rows. The rows of the newest segment are unknown."""
    assert plan_recovery(segments, clean_to, most_rows=20) == plan


@pytest.mark.parametrize("segments, clean_to", [
    ([], 3),  # deleted since the note was read
    (FIVE[:2] + FIVE[3:], 0),  # deleted between two pages of a listing
    (FIVE[3:], 2),  # a newer note is there by now
    (FIVE[3:], 0),
    (FIVE, 6),
    ([Segment(1, 10), Segment(2, 5)], 0),
])
def test_listings_of_different_moments_are_not_believed(segments, clean_to):
    assert plan_recovery(segments, clean_to, most_rows=20) is None


# -- the start of a query, and the range of a replay

A = "a:4150"
#: Segments 4 to 9, which were stored at the times 40.0 to 90.0; Spark has committed up to 7.
LOG = ShardListing(A, [Segment(n, 0, 1, n * 10.0) for n in range(4, 10)], 7)
EMPTY = ShardListing(A, [], 9)


def options(offset=None, time=None):
    """Options with the start and the end of a range."""
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
    """A time means the first segment stored at this time or later; an end excludes it."""
    chosen = options(offset, time)
    assert find_start(LOG, chosen, "earliest") == (start, "")
    assert find_end(LOG, chosen) == (end, "")
    if time is not None or offset in ("earliest", "latest", 9):
        assert find_start(EMPTY, chosen, "earliest") == (9, "")


@pytest.mark.parametrize("offset, start, words", [
    (2, 3, "has segments from 4 on; reading should begin after 2, so 3 is not there"),
    (0, 3, "has segments from 4 on; reading should begin after 0, so 1..3 are not"),
    (10, 9, "ends at number 9; reading should begin after 10"),
])
def test_a_number_out_of_range_is_a_loss(offset, start, words):
    found = find_start(LOG, options(offset), "earliest")
    assert found.number == start and words in found.lost
    if offset == 10:
        assert find_end(LOG, options(10)) == (9, "ends at number 9; reading was to end with 10")


def test_missing_numbers_are_shown_as_ranges():
    assert ranges(missing_numbers([3, 7], 2, 8)) == "4..6, 8"
    assert ranges([]) == ""


def test_a_segment_expires_some_time_after_its_commit():
    """Not after its creation, because Spark may read it much later."""
    retention = Retention(10.0)
    retention.committed(3, 100.0)
    retention.committed(7, 105.0)
    assert [retention.expired(now) for now in (109.9, 110.0, 114.0, 115.0, 200.0)] == [
        0, 3, 3, 7, 7]


def test_without_a_time_a_segment_expires_with_its_commit():
    retention = Retention(0.0)
    retention.committed(3, 100.0)
    assert retention.expired(100.0) == 3


def test_the_memory_is_bounded_whatever_the_time():
    """Commits soon after each other expire together."""
    retention = Retention(1000.0)
    for number in range(1, 100_001):
        retention.committed(number, number / 100)
    assert len(retention._commits) <= 1100
    assert 49_700 <= retention.expired(1500.0) <= 50_000
