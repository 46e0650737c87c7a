"""Rates and their course, from counters; and the overview that is made of them."""

from __future__ import annotations

from nsqclient.admin.cluster import Node
from nsqclient.admin.history import POINTS, Histories, Sample
from nsqclient.admin.overview import Overview, Row, build_rows, samples


def rounds(*counts, step=2.0):
    """The histories after rounds in which nsqd "n" had these counts of "k"."""
    histories = Histories()
    for index, count in enumerate(counts):
        histories.add_round({"k": Sample({"n": count}, count)}, {"n": index * step})
    return histories


def test_the_first_round_has_no_rate():
    """One look at a counter says nothing about its rate."""
    assert rounds(100).rate("k") is None


def test_a_rate_is_what_came_per_second():
    """Between two rounds 20 messages came in 2 s."""
    assert rounds(100, 120).rate("k") == 10.0


def test_a_restart_counts_from_zero():
    """A counter that fell was restarted: what it shows came since."""
    assert rounds(100, 6).rate("k") == 3.0


def test_rates_of_nsqds_are_summed():
    """Each nsqd's rate is over its own time."""
    histories = Histories()
    for at, a, b in ((0.0, 0, 0), (2.0, 10, 40)):
        histories.add_round({"k": Sample({"a": a, "b": b}, 0)}, {"a": at, "b": at * 2})
    assert histories.rate("k") == 5.0 + 10.0


def test_an_nsqd_that_was_silent_shows_its_average():
    """After a round without an answer the rate covers the whole time."""
    histories = Histories()
    for at, counts in ((0.0, {"a": 0, "b": 0}), (2.0, {"b": 2}), (4.0, {"a": 40, "b": 4})):
        histories.add_round({"k": Sample(counts, 0)}, {node: at for node in counts})
    assert histories.rate("k") == 10.0 + 1.0


def test_a_round_that_waits_for_another_nsqd_changes_no_rate():
    """What counts is when each answered, not when the round ended."""
    histories = Histories()
    for end, at, count in ((7.0, 0.1, 0), (7.1, 7.05, 417), (14.1, 7.2, 426)):
        assert at <= end
        histories.add_round({"k": Sample({"n": count}, 0)}, {"n": at})
    assert histories.rate("k") == 60.0


def test_a_topic_that_was_out_of_sight_is_not_new():
    """Its nsqd was silent for a round, and the topic elsewhere meanwhile: no jump from 0."""
    histories = Histories()
    rounds = ({"a": 60_000}, {}, {"b": 5}, {"b": 5, "a": 60_060})
    for number, counts in enumerate(rounds):
        samples = {"k": Sample(counts, 0)} if counts else {}
        histories.add_round(samples, {node: 2.0 * number for node in counts or {"b": 0}})
    assert histories.rate("k") == 60 / 6.0


def test_the_course_is_bounded_and_forgotten_with_its_topic():
    """A history holds so many points, and none of a topic that is gone."""
    histories = rounds(*range(POINTS + 5))
    assert len(histories.rates("k")) == len(histories.depths("k")) == POINTS
    histories.add_round({}, {"n": 1000.0})
    assert histories.rates("k") == [] and histories.rate("k") is None


NODE = Node("n", "n", "n", "n", "n", 1, 2, "1.3.0")
STATS = {NODE: {"topics": [{
    "topic_name": "t", "depth": 1, "message_count": 9, "channels": [
        {"channel_name": "c", "depth": 2, "in_flight_count": 3, "deferred_count": 4,
         "client_count": 5, "message_count": 9, "paused": True}],
}]}}


def test_a_row_sums_a_topic_with_its_channels():
    """The depth of a topic in the list is all that waits, in it and in its channels."""
    rows = build_rows(STATS, ["t", "lonely"], Histories())
    assert rows["t"] == Row("t", 3, 3, 4, None, 5, 1, 1, 1, 9)
    assert rows["lonely"] == Row("lonely", 0, 0, 0, None, 0, 0, 0, 0, 0)


def test_samples_are_of_topics_and_channels():
    """Topics and channels have histories of their own."""
    found = samples(STATS)
    assert found["topic", "t", ""] == Sample({"n": 9}, 3)
    assert found["channel", "t", "c"] == Sample({"n": 9}, 2)


def test_only_what_changed_since_a_round_is_sent():
    """A page that has seen a round gets the rows that changed, or all when one vanished."""
    rows = build_rows(STATS, ["lonely"], Histories())
    overview = Overview(5, 0.0, 2.0, rows, {"t": 5, "lonely": 2}, 3, (), frozenset(), {}, ())
    assert overview.since(4) == [rows["t"]]
    assert overview.since(5) == []
    assert overview.since(2) is None, "a row vanished in round 3"
    assert overview.since(0) is None and overview.since(6) is None
