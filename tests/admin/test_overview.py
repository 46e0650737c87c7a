"""Rates and their history, from counters; and the overview."""

import pytest

from nsqclient.admin.overview import (
    POINTS, Counts, History, RateHistory, Row, Sample, build_rows, samples,
)
from nsqclient.cluster.cluster import Node


def sample(came, depth):
    return Sample({node: Counts(count, count - depth) for node, count in came.items()}, depth)


def rounds(*counts, step=2.0):
    history = RateHistory()
    for index, count in enumerate(counts):
        history.add_round({"k": sample({"n": count}, count)}, {"n": index * step})
    return history


@pytest.mark.parametrize("counts, rate", [([100], None), ([100, 120], 10.0), ([100, 6], 3.0)])
def test_a_rate_is_the_number_of_messages_per_second(counts, rate):
    assert rounds(*counts).of("k").rate == rate


def test_what_leaves_is_counted_too():
    history = RateHistory()
    for at, (came, left) in enumerate(((100, 40), (120, 70), (0, -50), (10, -20))):
        history.add_round({"k": Sample({"n": Counts(came, left)})}, {"n": at * 2.0})
    assert history.of("k").out_rates == [None, 15.0, 0.0, 15.0]


@pytest.mark.parametrize("depths, seconds", [
    ([], None), ([100], None), ([100, 100], None), ([100, 120], None), ([50, 0], None),
    ([100, 80], 8), ([100, None, 80], 16), ([9999, *range(1000, 850, -10)], 172),
])
def test_the_time_until_a_channel_is_empty_follows_its_depth(depths, seconds):
    times = [100.0 + 2 * at for at in range(len(depths))]
    assert History(times=times, depths=depths).seconds_to_empty == seconds


@pytest.mark.parametrize("rounds, rate", [
    # The rates of nsqds are summed, each over the time between its own answers.
    ([({"a": 0, "b": 0}, {"a": 0.0, "b": 0.0}), ({"a": 10, "b": 40}, {"a": 2.0, "b": 4.0})], 15.0),
    # An nsqd that was silent has its average.
    ([({"a": 0, "b": 0}, 0.0), ({"b": 2}, 2.0), ({"a": 40, "b": 4}, 4.0)], 10.0 + 1.0),
    # A round that waits for another nsqd changes nothing.
    ([({"n": 0}, 0.1), ({"n": 417}, 7.05), ({"n": 426}, 7.2)], 60.0),
    # A topic that returns is not counted from zero.
    ([({"a": 60_000}, 0.0), ({}, {"b": 2.0}), ({"b": 5}, 4.0), ({"b": 5, "a": 60_060}, 6.0)],
     60 / 6.0),
])
def test_rates_of_nsqds_are_summed(rounds, rate):
    history = RateHistory()
    for counts, times in rounds:
        times = times if isinstance(times, dict) else dict.fromkeys(counts, times)
        history.add_round({"k": sample(counts, 0)} if counts else {}, times)
    assert history.of("k").rate == rate


def test_nsqds_that_come_and_go_leave_nothing_behind():
    history = RateHistory()
    for number in range(20):
        history.add_round({"k": sample({f"n{number}": 1}, 0)}, {f"n{number}": number * 200.0})
    assert sorted(history._answers) == ["n16", "n17", "n18", "n19"]


def test_the_history_is_bounded_and_dropped_with_its_topic():
    history = rounds(*range(POINTS + 5))
    assert len(history.of("k").rates) == len(history.of("k").depths) == POINTS
    for at in range(POINTS):
        history.add_round({}, {"n": 1000.0 + at})
    assert history.of("k").rates == [] and history.of("k").rate is None


def test_a_silent_nsqd_leaves_a_gap():
    history = RateHistory()
    for at in range(4):
        answered = at not in (1, 2)
        history.add_round({"k": sample({"n": at}, at)} if answered else {},
                          {"n": at * 1.0} if answered else {"other": at * 1.0}, 100.0 + at)
    assert history.of("k").depths == [0, None, None, 3]
    assert history.of("k").rates == [None, None, None, 1.0]
    assert history.of("k").times == [100.0, 101.0, 102.0, 103.0]


NODE = Node("n", "n", "n", "n", "n", 1, 2, "1.3.0")
STATS = {NODE: {"topics": [{
    "topic_name": "t", "depth": 1, "message_count": 9, "channels": [
        {"channel_name": "c", "depth": 2, "in_flight_count": 3, "deferred_count": 4,
         "client_count": 5, "message_count": 9, "paused": True}],
}]}}


def test_a_row_sums_a_topic_with_its_channels():
    lonely, t = build_rows(samples(STATS), ["t", "lonely"], RateHistory())
    assert t == Row("t", 3, 3, 4, None, 5, 1, 1, 1, 9, None, None, 0, [])
    assert lonely == Row("lonely", 0, 0, 0, None, 0, 0, 0, 0, 0, None, None, 0, [])


@pytest.mark.parametrize("channels, unserved", [
    ([], 1), ([{"channel_name": "a", "depth": 2, "client_count": 1}], 0),
    ([{"channel_name": "a", "depth": 2, "client_count": 1}, {"channel_name": "b", "depth": 4}], 4),
])
def test_a_row_has_the_messages_that_no_consumer_takes(channels, unserved):
    stats = {NODE: {"topics": [{"topic_name": "t", "depth": 1, "channels": channels}]}}
    assert build_rows(samples(stats), [], RateHistory())[0].unserved == unserved
