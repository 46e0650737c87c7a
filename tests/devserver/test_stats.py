"""nsqd's /stats by value: order of keys, and the text's columns as captured."""

import pytest

from nsqclient.devserver import stats

CONSUMER = {
    "hostname": "host1.example", "version": "V2", "remote_address": "127.0.0.1:56930",
    "state": 3, "ready_count": 10, "in_flight_count": 2, "message_count": 6,
    "finish_count": 3, "requeue_count": 1, "connect_ts": 1000, "user_agent": "nsqclient/0.1",
}
PRODUCER = CONSUMER | {
    "hostname": "host2.example", "remote_address": "127.0.0.1:56944",
    "pub_counts": [{"topic": "events", "count": 6}, {"topic": "other", "count": 1}],
}
CHANNEL = {
    "channel_name": "archive", "depth": 0, "backend_depth": 0, "in_flight_count": 2,
    "deferred_count": 1, "message_count": 6, "requeue_count": 1, "timeout_count": 0,
    "clients": [CONSUMER], "paused": True,
    "e2e_processing_latency": {"count": 1, "percentiles": [{"quantile": 1, "value": 1500}] * 2},
}
NO_LATENCY = {"count": 0, "percentiles": None}
TOPICS = [
    {"topic_name": "events", "channels": [CHANNEL], "depth": 0, "backend_depth": 0,
     "message_count": 6, "paused": False, "e2e_processing_latency": NO_LATENCY},
    {"topic_name": "other", "channels": [], "depth": 1, "backend_depth": 0,
     "message_count": 1, "paused": True, "e2e_processing_latency": NO_LATENCY},
]


def build(topics=None, producers=None, include_memory=False):
    """The answer for these."""
    numbers = {"topics": topics, "producers": producers}
    return stats.build(numbers, "OK", 1000.5, include_memory)


def text(answer):
    """The text at second 1065, from the line after the uptime on."""
    lines = stats.to_text(answer, 1000.5, 1065.5).split("\n")
    assert lines[0].startswith("nsqd v1.3.0 (built w/python3.")
    assert lines[1:4] == ["start_time 1970-01-01T00:16:40Z", "uptime 1m5s", ""]
    return "\n".join(lines[4:])


def test_keys_are_in_nsqds_order():
    """Memory precedes the producers, and only when asked for."""
    assert list(build(include_memory=True)) == [
        "version", "health", "start_time", "topics", "memory", "producers"
    ]
    assert "memory" not in build()


@pytest.mark.parametrize("producers", [None, []])
def test_no_producers_are_null(producers):
    """null where no client has published."""
    assert build(producers=producers)["producers"] is None


@pytest.mark.parametrize("topics", [None, []])
def test_text_without_topics_and_producers_is_none(topics):
    """Without topics and producers the text has None."""
    assert text(build(topics)) == "Health: OK\n\nTopics: None\n\nProducers: None\n"


def test_text_has_a_line_per_topic_channel_and_client():
    """Each has its columns; paused ones are marked."""
    assert text(build(TOPICS, [PRODUCER])) == (
        "Health: OK\n\nTopics:\n"
        "   [events         ] depth: 0     be-depth: 0     msgs: 6        e2e%: \n"
        "   *P [archive                  ] depth: 0     be-depth: 0     inflt: 2    def: 1   "
        " re-q: 1     timeout: 0     msgs: 6        e2e%: 1.5us, 1.5us\n"
        "        [V2 host1.example:56930 nsqclient/0.1] state: 3 inflt: 2    rdy: 10  "
        " fin: 3        re-q: 1        msgs: 6        connected: 1m5s\n"
        "\n"
        "*P [other          ] depth: 1     be-depth: 0     msgs: 1        e2e%: \n"
        "\nProducers:\n"
        "   [V2 host2.example:56944 nsqclient/0.1] msgs: 7        topics: events=6,other=1"
        " connected: 1m5s\n"
    )


def test_text_leaves_out_clients_that_are_not_included():
    """Channels whose clients were left out have no lines for them."""
    without = [TOPICS[0] | {"channels": [CHANNEL | {"clients": None}]}]
    assert "V2" not in text(build(without))


def test_memory_has_nsqds_keys(monkeypatch):
    """Without /proc the peak replaces the bytes in use."""
    answer = build(include_memory=True)
    assert answer["memory"]["heap_in_use_bytes"] > 0
    assert "\nMemory:\n   heap_objects             \t" in text(answer)

    def no_proc(*_args):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_proc)
    assert stats.memory()["heap_in_use_bytes"] > 0
