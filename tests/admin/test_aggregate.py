"""Sums over nsqds, from their ``/stats``."""

import pytest

from nsqclient.admin.aggregate import Source, merge_topic, number, objects

NOW = 1000.5


def channel(name="c", **values):
    return {"channel_name": name, "depth": 3, "backend_depth": 1, "in_flight_count": 2, **values}


def topic(**values):
    return {"topic_name": "t", "depth": 5, "backend_depth": 2, "message_count": 10,
            "channels": [channel()], "paused": False, **values}


def merged(*topics):
    return merge_topic("t", [Source(f"n{i}", "host", each) for i, each in enumerate(topics)], NOW)


def test_numbers_are_summed_and_parts_are_kept():
    found = merged(topic(), topic(depth=7))
    assert (found["depth"], found["memory_depth"], found["backend_depth"]) == (12, 8, 4)
    assert [node["depth"] for node in found["nodes"]] == [5, 7]


def test_a_channel_of_one_node_is_not_the_sum():
    found = merged(topic(), topic())
    assert found["channels"][0]["depth"] == 6
    assert [node["channels"][0]["depth"] for node in found["nodes"]] == [3, 3]
    assert [part["node"] for part in found["channels"][0]["nodes"]] == ["n0", "n1"]


def test_clients_name_their_nsqd_and_how_long_they_are_connected():
    client = {"client_id": "w", "hostname": "h", "connect_ts": 990, "tls": True}
    found = merged(topic(channels=[channel(clients=[client])]))
    shown = found["channels"][0]["clients"][0]
    assert (shown["node"], shown["connected"], shown["tls"]) == ("n0", 10_000_000_000, True)


def test_latencies_are_weighted_by_how_many_messages_they_saw():
    def latency(count, value):
        return {"count": count, "percentiles": [{"quantile": 0.99, "value": value}]}

    found = merged(topic(e2e_processing_latency=latency(1, 100)),
                   topic(e2e_processing_latency=latency(3, 200)))["e2e_processing_latency"]
    assert found["count"] == 4
    assert found["percentiles"] == [
        {"quantile": 0.99, "max": 200, "min": 100, "count": 4, "average": 175.0}]


def test_missing_and_invalid_numbers_count_as_zero():
    assert number({"depth": "many", "x": True}, "depth") == 0
    assert number({"x": True}, "x") == 0
    assert objects({"channels": None}, "channels") == []
    assert merged({"topic_name": "t"})["depth"] == 0


@pytest.mark.parametrize("percentiles", [
    [{"quantile": None, "value": None}], [{}], [None, {"quantile": "0.9", "value": True}],
])
def test_percentiles_without_numbers_are_zeros(percentiles):
    broken = topic(e2e_processing_latency={"count": None, "percentiles": percentiles})
    good = topic(e2e_processing_latency={"count": 2, "percentiles": [
        {"quantile": 0.99, "value": 100}]})
    found = merged(broken, good)["e2e_processing_latency"]
    assert [(each["quantile"], each["average"]) for each in found["percentiles"]] == [
        (0.99, 100.0), (0, 0)]
