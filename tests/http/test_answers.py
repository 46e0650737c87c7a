"""Reading JSON: what is missing has a default, what is wrong is named."""

from __future__ import annotations

import pytest

from nsqclient.http.answers import (
    ChannelStats,
    ClientStats,
    Latency,
    Node,
    NsqdInfo,
    Percentile,
    Producer,
    Stats,
)
from nsqclient.http.fields import Fields, Malformed

PRODUCER = {"broadcast_address": "h", "tcp_port": 4150, "http_port": 4151, "hostname": "n"}


def _fields(**data):
    return Fields(data, "it")


@pytest.mark.parametrize("data", [None, [], "x", 1, True])
def test_an_object_is_needed(data):
    """Anything but an object is malformed."""
    with pytest.raises(Malformed, match="it is no JSON object"):
        Fields(data, "it")


@pytest.mark.parametrize("read, bad", [
    (Fields.text, 1), (Fields.number, "1"), (Fields.number, True), (Fields.number, 1.5),
    (Fields.flag, 1), (Fields.fraction, "1"), (Fields.fraction, False), (Fields.seconds, []),
    (Fields.texts, "x"), (Fields.texts, [1]), (Fields.flags, [0]), (Fields.objects, {}),
    (Fields.objects, [1]), (Fields.object, []), (Fields.items, {}),
])
def test_a_wrong_type_is_named(read, bad):
    """The error says which field of which object it is."""
    with pytest.raises(Malformed, match=r"it\.x"):
        read(_fields(x=bad), "x")


@pytest.mark.parametrize("fields", [_fields(), _fields(x=None)])
def test_what_is_missing_or_null_is_empty(fields):
    """Older servers have fewer fields, and Go writes an empty list as null."""
    assert fields.text("x") == "" and fields.number("x") == 0 and fields.flag("x") is False
    assert fields.fraction("x") == fields.seconds("x") == 0.0
    assert fields.texts("x") == fields.flags("x") == () and fields.objects("x") == []
    assert fields.object("x").text("y") == "" and not fields.has("x")


def test_durations_are_seconds():
    """nsqd sends nanoseconds."""
    info = NsqdInfo.read(_fields(max_heartbeat_interval=60_000_000_000))
    assert info.max_heartbeat_interval == 60
    latency = Latency.read(_fields(
        count=3, percentiles=[{"quantile": 0.99, "value": 246_189_467}]
    ))
    assert latency == Latency(3, (Percentile(0.99, 0.246189467),))


def test_an_old_nsqd_lists_clients_without_counting():
    """client_count is the length of the list where it is missing, and 0 means 0."""
    assert ChannelStats.read(_fields(clients=[{}, {}])).client_count == 2
    assert ChannelStats.read(_fields(clients=None, client_count=7)).client_count == 7
    assert ChannelStats.read(_fields(clients=[{}], client_count=0)).client_count == 0


def test_topics_and_channels_are_found_by_name():
    """An unknown one is None."""
    stats = Stats.read(_fields(topics=[
        {"topic_name": "a", "channels": [{"channel_name": "c", "depth": 4}]}
    ]))
    assert stats.topic("a").channel("c").depth == 4
    assert stats.topic("a").channel("d") is None and stats.topic("b") is None
    assert Stats.read(_fields(topics=None)).topics == ()


def test_what_a_producer_published():
    """pub_counts are pairs of topic and number."""
    client = ClientStats.read(_fields(pub_counts=[{"topic": "a", "count": 6}]))
    assert client.pub_counts == (("a", 6),)


def test_addresses_of_a_producer():
    """The two addresses come with brackets where they need them, also from before 0.3."""
    assert Producer.read(Fields(PRODUCER, "it")).tcp_address == "h:4150"
    old = Producer.read(_fields(address="::1", http_port=4151))
    assert old.http_address == "[::1]:4151"


def test_a_node_and_its_tombstones():
    """Which topics lookups hide is a list of marks beside the topics."""
    node = Node.read(_fields(topics=["a", "b"], tombstones=[False, True], **PRODUCER))
    assert (node.topics, node.tombstoned) == (("a", "b"), ("b",))
