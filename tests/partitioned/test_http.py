"""The HTTP clients of a partitioned cluster against a server that answers what the test says."""

import json
from urllib.parse import parse_qsl

import pytest

from nsqclient.errors import NSQHTTPResponseError
from nsqclient.http import NsqdHTTP
from nsqclient.partitioned.http import PartitionedNsqdHTTP, PartitionedNsqlookupdHTTP
from tests.support.servers.http_recorder import recording


@pytest.fixture
def server(leak_guard):
    with recording() as recorder:
        yield recorder


@pytest.fixture
def lookupd(server):
    with PartitionedNsqlookupdHTTP(server.address) as client:
        yield client


def test_a_topic_has_up_to_1024_partitions(server, lookupd):
    """A wrong number would misdirect keys, or fill the memory with partitions."""
    answer = b'{"partitions": {}, "meta": {"partition_num": %d}}'
    for count in (0, 1024):  # 0: nsqlookupd does not know it
        server.body = answer % count
        assert lookupd.lookup("t").meta.partition_num == count
    for count in (-1, 1025):
        server.body = answer % count
        with pytest.raises(NSQHTTPResponseError, match=f"partition_num is {count}: 0 to 1024"):
            lookupd.lookup("t")


def test_invalid_partitions_and_lookupds_do_not_hide_the_others(server, lookupd, caplog):
    caplog.set_level("DEBUG")  # the limit of lines is 10
    good = {"broadcast_address": "h", "tcp_port": 1}
    server.body = json.dumps({
        "partitions": {"0": good, "9" * 5000: good, "1024": good, "x": good, "1": 7}, "meta": {},
    }).encode()
    assert [*lookupd.lookup("t").partitions] == [0]
    hosts = ["h", "a\r\nb", "u:p@h", "h/x?", "x" * 300, ""]
    nodes = [{"NodeIP": host, "HttpPort": "1"} for host in hosts]
    nodes += [{"NodeIP": "h", "HttpPort": port} for port in ("0", "65536", "9" * 5000, "-1", "")]
    server.body = json.dumps({"lookupdnodes": nodes}).encode()
    assert lookupd.list_lookupds() == (("h:1", False),)
    assert caplog.text.count("unusable") == 4 + 10 and "\r" not in caplog.text


def test_a_stock_answer_is_read(server, lookupd):
    server.body = b'{"channels": ["c"], "producers": [{"broadcast_address": "h", "tcp_port": 1}]}'
    found = lookupd.lookup("t")
    assert found.partitions is None and [each.tcp_address for each in found.producers] == ["h:1"]


def test_requests_name_their_partition(server):
    """The stock client takes it as an argument, the partitioned one has methods."""
    with NsqdHTTP(server.address) as nsqd:
        nsqd.pause_channel("t", "c", {"partition": "3"})
    server.body = b'{"topics": []}'
    with PartitionedNsqdHTTP(server.address) as nsqd:
        nsqd.start_channel("t", 4, "c", "special:-1")
    asked = [dict(parse_qsl(request.path.partition("?")[2])) for request in server.requests]
    del asked[2]  # statistics
    assert asked == [{"partition": f"{number}", "topic": "t", "channel": "c"}
                     for number in (3, 4, 4)]
    assert server.requests[3].body == b"special:-1"
