"""How a batch is shared over shards, by value."""

import random
import time

import pytest

from nsqclient.errors import ConfigError
from nsqclient.spark.errors import LogMismatchError
from nsqclient.spark.shards.admission import ShardSegments, make_offset, plan_batch, read_offset
from nsqclient.spark.shards.names import Segment


def shard(number, rows, size=1000, before=0):
    """Segments after a number, with these rows. The rows of the last one are estimated."""
    found = ShardSegments(number)
    for n, one in enumerate(rows, number + 1):
        found.add(Segment(n, before, size))
        before += one
    return found


def test_an_offset_names_shards_in_order():
    """Spark compares offsets as text."""
    offset = make_offset("t", "c", {"b:1": 2, "a:1": 1})
    assert list(offset["shards"]) == ["a:1", "b:1"]
    assert read_offset("t", "c", offset) == {"a:1": 1, "b:1": 2}


@pytest.mark.parametrize("offset, words", [
    ({"seq": 5}, "version None"), ({"v": 3, "shards": {}}, "version 3"),
    ({"v": 2, "log": "other/c", "shards": {}}, "log t/c: the checkpoint belongs to other/c"),
    ({"v": 2, "log": "t/other", "shards": {}}, "belongs to t/other: use a new checkpoint folder"),
])
def test_another_checkpoint_is_refused_on_one_line(offset, words):
    with pytest.raises((ConfigError, LogMismatchError), match=words) as failed:
        read_offset("t", "c", offset)
    assert "\n" not in str(failed.value)


def test_rows_are_known_by_the_next_segment():
    """The rows of the newest segment are estimated from the segment before."""
    one = shard(4, [10, 30], size=900)
    assert one.total(4, 6) == (20, 1800)
    one.add(Segment(7, 40, 450))
    assert one.between(4, 7) == [Segment(5, 0, 900), Segment(6, 10, 900), Segment(7, 40, 450)]
    assert one.total(4, 7) == (55, 2250) and one.total(5, 7) == (45, 1350)
    assert one.total(7, 7) == (0, 0)


def test_the_only_segment_has_no_more_rows_than_its_bytes_allow():
    assert shard(0, [1], size=3600).total(0, 1) == (100, 3600)
    assert shard(0, [0, 1], size=3600).total(0, 2) == (100, 7200)  # nothing is known of a row


def test_what_is_committed_is_forgotten():
    one = shard(0, [10, 10, 10, 10])
    one.forget(2)
    assert one.first == 3 and one.last == 4 and one.total(2, 4) == (20, 2000)
    assert one.between(2, 3) == [Segment(3, 20, 1000)]
    one.forget(9)
    assert one.last == 4 and one.total(0, 9) == (0, 0)
    one.add(Segment(5, 40, 7))
    assert one.between(4, 5)[0].size == 7


def test_everything_is_taken_that_fits():
    shards = {"a": shard(0, [10] * 3), "b": shard(7, [10] * 2)}
    assert plan_batch(shards, {"a": 0, "b": 7}, 1000, None) == {"a": 3, "b": 9}
    assert plan_batch(shards, {"a": 0, "b": 7}, None, None) == {"a": 3, "b": 9}
    assert plan_batch({}, {}, 5, 5) == {}


def test_a_batch_is_shared_by_backlog():
    """A shard with nine times the backlog gets nine tenths, give or take a segment."""
    shards = {"a": shard(0, [10] * 900), "b": shard(0, [10] * 100)}
    for limits in ((1000, None), (None, 100_000)):
        end = plan_batch(shards, {"a": 0, "b": 0}, *limits)
        assert end["a"] + end["b"] == 100 and end["b"] in (10, 11)


def test_a_small_backlog_is_not_starved_by_a_large_one():
    """Its share is less than a segment, but each shard first gets one segment."""
    shards = {"a": shard(0, [10] * 1000), "b": shard(0, [10])}
    assert plan_batch(shards, {"a": 0, "b": 0}, 100, None)["b"] == 1


def test_at_least_one_segment_is_taken():
    """Even if it exceeds the limit. The next batch begins with another shard."""
    shards = {"a": shard(0, [10] * 2), "b": shard(0, [10] * 3)}
    assert plan_batch(shards, {"a": 0, "b": 0}, 1, None) == {"a": 1, "b": 0}
    assert plan_batch(shards, {"a": 1, "b": 0}, 1, None) == {"a": 1, "b": 1}
    assert plan_batch(shards, {"a": 2, "b": 3}, 1, None) == {"a": 2, "b": 3}


def test_a_batch_is_within_its_limits_and_has_an_end():
    chance = random.Random(5)
    for _ in range(50):
        shards = {name: shard(0, [chance.randint(1, 20) for _ in range(chance.randint(0, 30))],
                              chance.randint(1, 2000)) for name in "abcd"}
        lasts = {name: one.last for name, one in shards.items()}
        rows, size = chance.randint(1, 200), chance.choice([None, 3000])
        place, batches = dict.fromkeys("abcd", 0), 0
        while place != lasts:
            end = plan_batch(shards, place, rows, size)
            sums = [shards[name].total(place[name], end[name]) for name in "abcd"]
            taken = sum(end[name] - place[name] for name in "abcd")
            assert taken >= 1 and all(end[name] >= place[name] for name in "abcd")
            assert taken == 1 or sum(one[0] for one in sums) <= rows
            assert taken == 1 or size is None or sum(one[1] for one in sums) <= size
            place, batches = end, batches + 1
        assert batches < 200


def test_a_drain_ends_where_it_is_to():
    shards = {"a": shard(0, [10] * 5), "b": shard(0, [10] * 5)}
    assert plan_batch(shards, {"a": 0, "b": 0}, None, None, {"a": 3}) == {"a": 3, "b": 0}
    assert plan_batch(shards, {"a": 4, "b": 0}, 10, None, {"a": 3}) == {"a": 4, "b": 0}


def test_planning_does_not_look_at_every_segment():
    """100 shards with 10,000 segments each, in processor time."""
    shards = {f"n{n}:1": shard(0, [10] * 10_000) for n in range(100)}
    began = time.process_time()
    end = plan_batch(shards, dict.fromkeys(shards, 0), 200_000, None)
    assert time.process_time() - began < 0.2
    assert sum(end.values()) == 20_000


def test_segments_that_are_gone_are_left_out_and_the_others_stay():
    one = shard(0, [10])
    one.add(Segment(4, 40, 1000))
    assert [found.number for found in one.between(0, 4)] == [1, 4] and one.last == 4
    one.forget(2)
    assert [found.number for found in one.between(2, 4)] == [4]
