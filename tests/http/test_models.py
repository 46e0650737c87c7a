"""Responses of nsqd and nsqlookupd are read into values."""

import pytest

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


@pytest.mark.parametrize(("host", "is_good"), [
    ("nsqd-1.internal.", True), ("10.0.0.1", True), ("::1", True), ("NSQD_1", True), ("", True),
    ("[::1]", False), ("nsqd host", False), ("nsqd/1", False), ("127.0.0.1:4150", False),
])
def test_a_broadcast_address_that_is_no_address_is_named(host, is_good):
    problem = Producer.read(_fields(**{**PRODUCER, "broadcast_address": host})).problem
    assert is_good is (not problem) and (is_good or repr(host) in problem)
