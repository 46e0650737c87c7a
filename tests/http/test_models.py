"""Responses of nsqd and nsqlookupd are read into values."""

from nsqclient.http.models import Node, Producer, Stats
from nsqclient.protocol.peer_json import JsonReader

PRODUCER = {"broadcast_address": "h", "tcp_port": 4150, "http_port": 4151, "hostname": "n"}


def _fields(**data):
    return JsonReader(data, "it")


def test_topics_and_channels_are_found_by_name():
    stats = Stats.read(_fields(topics=[
        {"topic_name": "a", "channels": [{"channel_name": "c", "depth": 4}]}
    ]))
    assert stats.topic("a").channel("c").depth == 4
    assert stats.topic("a").channel("d") is None and stats.topic("b") is None
    assert Stats.read(_fields(topics=None)).topics == ()


def partition(number, depth, in_flight, *, leads):
    """A partition of topic ``a`` as a partitioned nsqd reports it."""
    return {"topic_name": "a", "topic_partition": str(number), "is_leader": leads, "depth": 9999,
            "backend_depth": 9999, "message_count": 10, "channels": [{
                "channel_name": "c", "depth": depth, "in_flight_count": in_flight,
                "client_num": 1, "message_count": 10}]}


def test_a_topic_with_partitions_is_the_sum_of_those_that_the_nsqd_leads():
    stats = Stats.read(_fields(topics=[
        partition(0, 7, 2, leads=True), partition(1, 100, 0, leads=False),
        partition(2, 3, 0, leads=True), partition(2, 3, 0, leads=True)]))
    topic = stats.topic("a")
    assert (topic.depth, topic.message_count, stats.names) == (0, 20, ["a"])
    channel = topic.channel("c")
    assert (channel.depth, channel.in_flight_count, channel.client_count) == (8, 2, 2)
    copies = Stats.read(_fields(topics=[partition(1, 100, 0, leads=False)])).topic("a")
    assert (copies.message_count, copies.channels) == (0, ())


def test_addresses_of_a_producer_have_brackets_for_ipv6():
    assert Producer.read(_fields(**PRODUCER)).tcp_address == "h:4150"
    other = Producer.read(_fields(broadcast_address="::1", http_port=4151))
    assert other.http_address == "[::1]:4151"


def test_tombstoned_topics_of_a_node_are_listed():
    node = Node.read(_fields(topics=["a", "b"], tombstones=[False, True], **PRODUCER))
    assert (node.topics, node.tombstoned) == (("a", "b"), ("b",))


def test_a_negative_depth_is_0():
    """nsqd 1.3.0 reports one after it was killed and has delivered messages twice."""
    stats = Stats.read(_fields(topics=[
        {"topic_name": "a", "depth": -3, "channels": [{"channel_name": "c", "depth": -994}]}
    ]))
    assert (stats.topic("a").depth, stats.topic("a").channel("c").depth) == (0, 0)
