"""What a writer reads first, by value."""

import pytest

from nsqclient.spark.shards.names import (
    NoteKey, Segment, ShardKeys, parse_note, parse_number, parse_segment, parse_shard,
)
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
    """And a channel with a mark, or an address of IPv6, is a plain folder."""
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
    """Of the clean ones so many rows; those of the newest segment are not known from a listing."""
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
