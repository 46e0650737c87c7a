"""Options of a consumer of a partitioned topic: partitions, positions, tags, filters."""

import json
import logging
from datetime import datetime, timezone

import pytest

from nsqclient import Config, PartitionError
from nsqclient.partitioned import Consumer, HeaderFilter, StartPosition
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.devserver.partitioned.lookupd import LookupdMode
from nsqclient.devserver.protocol.partitioned import read_start
from nsqclient.errors import ConfigError
from tests.partitioned.conftest import QUICK, Collector, sent
from tests.support.waiting import wait_until


def publish(cluster, partition, bodies, **headers):
    """Publish bodies to a partition of topic t; return where they were stored."""
    header = json.dumps(headers).encode() if headers else b""
    return [cluster.publish("t", partition, body, header=header) for body in bodies]


# -- partitions


def test_only_the_chosen_partitions_are_consumed(cluster, consume):
    cluster.create_topic("t", 4, channels=["c"])
    got, rest = Collector(), Collector()
    consumer = consume(got, connected=2, partitions=[0, 3])
    others = consume(rest, connected=2, partitions=(p for p in (1, 2)))
    for partition in range(4):
        publish(cluster, partition, [b"%d" % partition])
    cluster.wait_until_empty("t", "c")
    assert (sorted(got.bodies()), sorted(rest.bodies())) == ([b"0", b"3"], [b"1", b"2"])
    assert consumer.healthy().reason == "connected to 1 nsqd, 2 partitions"
    assert not consumer.errors and not others.errors


@pytest.mark.parametrize("options", [
    {"partitions": [1, 2]}, {"start_at": {2: StartPosition.end()}},
])
def test_a_partition_that_the_topic_lacks_is_an_error(cluster, consume, options):
    cluster.create_topic("t", 2, channels=["c"])
    consumer = consume(Collector(), **options)
    wait_until(lambda: consumer.errors)
    error, = consumer.errors
    assert isinstance(error, PartitionError)
    assert "topic t has no partition 2: it has 0 to 1" in consumer.healthy().reason
    assert not any(nsqd.commands for nsqd in cluster.nsqds)


# -- positions


def test_offsets_are_asked_for(cluster, consume):
    """The next message is at the sum of offset and size."""
    cluster.create_topic("t", 1, channels=["c"])
    got = Collector()
    consume(got, with_offsets=True)
    stored = publish(cluster, 0, [b"a", b"bb"])
    wait_until(lambda: len(got.messages) == 2)
    assert [(m.offset, m.size) for m in got.messages] == [(p.offset, p.size) for p in stored]
    sub, = sent(cluster, "SUB_ADVANCED")
    assert sub.partition == 0


def test_replay_of_each_partition_from_its_own_position(cluster, consume):
    """SUB_ADVANCED alone would read any partition of the nsqd."""
    cluster.create_topic("t", 6, channels=["c"])
    stored = {p: publish(cluster, p, [b"%d-%d" % (p, n) for n in range(3)]) for p in range(6)}
    cluster_consumer = Collector()
    start = {p: StartPosition.offset(stored[p][1].offset) for p in range(5)}
    consume(cluster_consumer, start_at={**start, 5: StartPosition.end()}, connected=6)
    publish(cluster, 5, [b"5-3"])
    wait_until(lambda: len(cluster_consumer.messages) == 11)
    assert {p: cluster_consumer.bodies(p) for p in range(6)} == {
        **{p: [b"%d-1" % p, b"%d-2" % p] for p in range(5)}, 5: [b"5-3"]}


@pytest.mark.parametrize(("start", "expected"), [
    (StartPosition.offset(0), [b"a", b"b", b"c"]), (StartPosition.count(2), [b"c"]),
    (StartPosition.end(), []),
])
def test_replay_of_an_ordered_topic(cluster, consume, start, expected):
    cluster.create_topic("t", 1, ordered=True, channels=["c"])
    publish(cluster, 0, [b"a", b"b", b"c"])
    got = Collector()
    consume(got, ordered=True, start_at=start, connected=1)
    publish(cluster, 0, [b"new"])
    wait_until(lambda: b"new" in got.bodies())
    assert got.bodies() == [*expected, b"new"]


def test_replay_of_a_partition_without_messages(cluster, consume):
    cluster.create_topic("t", 2, channels=["other"])
    publish(cluster, 1, [b"a"])
    got = Collector()
    consumer = consume(got, start_at=StartPosition.offset(0), connected=2)
    publish(cluster, 0, [b"b"])
    wait_until(lambda: sorted(got.bodies()) == [b"a", b"b"])
    assert consumer.errors == []


def test_a_position_is_applied_once(cluster, consume, caplog):
    caplog.set_level(logging.INFO, "nsqclient.consumer")
    cluster.create_topic("t", 1, replicas=2, channels=["c"])
    publish(cluster, 0, [b"a"])
    got = Collector()
    consume(got, start_at=StartPosition.offset(0), connected=1)
    wait_until(lambda: got.bodies() == [b"a"])
    cluster.wait_until_empty("t", "c")
    cluster.move_leader("t", 0)
    publish(cluster, 0, [b"b"])
    wait_until(lambda: len(got.messages) > 1)
    cluster.wait_until_empty("t", "c")
    assert got.bodies() == [b"a", b"b"]
    assert caplog.text.count("/0: the channel starts at virtual_queue:0") == 1


def test_a_channel_with_consumers_is_left_where_it_is(cluster, consume, caplog):
    """A second consumer of a replay must not reset the first one."""
    cluster.create_topic("t", 1, channels=["c"])
    publish(cluster, 0, [b"old"])
    first, second = Collector(), Collector()
    consume(first, start_at=StartPosition.offset(0), connected=1)
    wait_until(lambda: first.bodies() == [b"old"])
    cluster.wait_until_empty("t", "c")
    consume(second, start_at=StartPosition.offset(0), connected=1)
    publish(cluster, 0, [b"new"])
    cluster.wait_until_empty("t", "c")
    assert sorted(first.bodies() + second.bodies()) == [b"new", b"old"]
    assert "start position virtual_queue:0 is not applied: the channel has 1 consumer" in (
        caplog.text)


def test_a_position_that_nsqd_refuses_is_reported_and_retried(cluster, consume):
    cluster.create_topic("t", 1, channels=["other"], registered_channels=True)
    consumer = consume(Collector(), start_at=StartPosition.offset(0))
    wait_until(lambda: len(consumer.errors) > 1)
    assert "partition 0 could not be set to virtual_queue:0" in str(consumer.errors[0])
    assert "not registered" in str(consumer.errors[0])
    assert not any(nsqd.commands for nsqd in cluster.nsqds)


def test_a_position_is_set_at_the_leader(cluster, consume):
    """Even if an nsqlookupd names a former leader."""
    cluster.create_topic("t", 1, replicas=2, channels=["c"])
    publish(cluster, 0, [b"a"])
    cluster.nsqlookupds[1].freeze()
    cluster.lead_lookupd(1)
    cluster.move_leader("t", 0)
    got = Collector()
    consumer = consume(got, start_at=StartPosition.offset(0))
    wait_until(lambda: got.bodies() == [b"a"])
    assert all("NOT_LEADER" in str(error) for error in consumer.errors)


# -- tags and filters


def test_each_tag_gets_its_messages(cluster, consume):
    """Other consumers get messages without a tag, or with an unknown tag."""
    cluster.create_topic("t", 1, extended=True, channels=["c"])
    tagged, plain = Collector(), Collector()
    consume(tagged, desired_tag="canary", connected=1)
    consume(plain, connected=1)
    publish(cluster, 0, [b"canary"], **{"##client_dispatch_tag": "canary"})
    publish(cluster, 0, [b"other"], **{"##client_dispatch_tag": "other"})
    publish(cluster, 0, [b"none"])
    cluster.wait_until_empty("t", "c")
    assert (tagged.bodies(), plain.bodies()) == ([b"canary"], [b"other", b"none"])


def test_a_filter_delivers_what_matches(cluster, consume):
    """nsqd finishes the others, so the channel is empty afterwards."""
    cluster.create_topic("t", 1, extended=True, channels=["c"])
    got = Collector()
    consume(got, header_filter=HeaderFilter.equal("shop", "eu", inverse=True), connected=1)
    for shop in ("eu", "eu2", "us"):
        publish(cluster, 0, [shop.encode()], shop=shop)
    publish(cluster, 0, [b"none"])
    cluster.wait_until_empty("t", "c")
    assert got.bodies() == [b"eu2", b"us", b"none"]


FILTER = HeaderFilter.equal("k", "v")


@pytest.mark.parametrize("options", [{"desired_tag": "x"}, {"header_filter": FILTER}])
@pytest.mark.parametrize("mode", [None, LookupdMode.NO_COORDINATOR])
def test_headers_are_required_by_tags_and_filters(cluster, consume, options, mode):
    """On a plain topic nsqd would ignore both, and deliver every message."""
    cluster.create_topic("t", 1, channels=["c"])
    for lookupd in cluster.nsqlookupds if mode else ():
        lookupd.set_mode(mode)  # no metadata: nsqd's own error decides
    consumer = consume(Collector(), **options)
    wait_until(lambda: f"{next(iter(options))} needs messages with headers" in (
        consumer.healthy().reason))
    publish(cluster, 0, [b"x"])
    wait_until(lambda: consumer.errors)
    assert [type(error) for error in consumer.errors] == [PartitionError]
    assert consumer.stats().total.received == 0


@pytest.mark.parametrize(("options", "name"), [
    ({"partitions": [0]}, "partitions"), ({"ordered": True}, "ordered=True"),
])
def test_a_stock_cluster_is_refused(options, name):
    """A stock nsqd would ignore these arguments."""
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        nsqd.create_topic("t")
        with Consumer("t", "c", Collector(), config=QUICK,
                      lookupd_http_addresses=[lookupd.http_address], **options) as consumer:
            reason = wait_until(lambda: "stock nsqd" in consumer.healthy().reason
                                and consumer.healthy().reason)
            assert reason.startswith(f"{name} needs partitions")
            assert nsqd.commands == []


# -- values


@pytest.mark.parametrize(("start", "text"), [
    (StartPosition.offset(0), "virtual_queue:0"),
    (StartPosition.offset(2**63 - 1), "virtual_queue:9223372036854775807"),
    (StartPosition.timestamp(1795000000), "timestamp:1795000000"),
    (StartPosition.timestamp(1795000000.9), "timestamp:1795000000"),
    (StartPosition.timestamp(datetime(2026, 1, 1, tzinfo=timezone.utc)), "timestamp:1767225600"),
    (StartPosition.count(0), "msgcount:1"),
    (StartPosition.count(7), "msgcount:8"),
    (StartPosition.end(), "special:-1"),
])
def test_each_position_has_its_words_on_the_wire(start, text):
    assert str(start) == text
    assert read_start(text) == start


@pytest.mark.parametrize(("make", "hint"), [
    (lambda: StartPosition.offset(-1), "from 0, not -1"),
    (lambda: StartPosition.offset(2**63), "from 0"),
    (lambda: StartPosition.offset(True), "whole number"),
    (lambda: StartPosition.count("7"), "whole number"),
    (lambda: StartPosition.timestamp(1795000000000), "seconds since the epoch, not milliseconds"),
    (lambda: StartPosition.timestamp(float("nan")), "seconds since the epoch"),
    (lambda: StartPosition.timestamp("yesterday"), "or a datetime"),
    (lambda: StartPosition.timestamp(-1), "seconds since the epoch"),
    (lambda: StartPosition.timestamp(datetime(2026, 1, 1)), "time zone"),
    (lambda: StartPosition("special", 5), "from 0"),
    (lambda: StartPosition("beginning", 0), r"offset\(\)"),
])
def test_what_is_no_position_is_refused(make, hint):
    """nsqd would refuse it later, after the connection."""
    with pytest.raises(ConfigError, match=hint):
        make()


@pytest.mark.parametrize("text", [
    "", "virtual_queue", "virtual_queue:", "virtual_queue:x", "virtual_queue:-2", "special:0",
    "offset:1", "msgcount:" + "9" * 5000, "timestamp:1:2", "msgcount:-1",
])
def test_other_words_are_refused(text):
    with pytest.raises(ConfigError, match="start position"):
        read_start(text)


@pytest.mark.parametrize(("options", "hint"), [
    ({"partitions": []}, "partitions is empty"),
    ({"partitions": 3}, "list of whole numbers"),
    ({"partitions": "03"}, "list of whole numbers"),
    ({"partitions": [1024]}, "from 0 to 1023, not 1024"),
    ({"partitions": [True]}, "not True"),
    ({"start_at": 5}, "must be a StartPosition"),
    ({"start_at": {0: 5}}, "must be a StartPosition.*not 5"),
    ({"start_at": {"0": StartPosition.end()}}, "partitions of start_at .*not '0'"),
    ({"partitions": [0], "start_at": {1: StartPosition.end()}}, "which is not in partitions"),
    ({"with_offsets": 1}, "True or False"),
    ({"desired_tag": "x" * 101}, "101 bytes; nsqd accepts at most 100"),
    ({"desired_tag": None}, "must be a str"),
    ({"desired_tag": "a\ud800"}, "cannot be sent as UTF-8: surrogates not allowed"),
    ({"header_filter": {"k": "v"}}, "made with HeaderFilter"),
    ({"with_offsets": True, "config": Config(sample_rate=5)}, "sample_rate"),
    ({"start_at": StartPosition.end(), "config": Config(sample_rate=5)}, "sample_rate"),
    # By the address of an nsqd alone a consumer would not find the leaders.
    *(({name: value, "nsqd_tcp_addresses": ["n:1"], "lookupd_http_addresses": []},
       f"{name}(=True)? needs lookupd_http_addresses instead of nsqd_tcp_addresses")
      for name, value in {
          "partitions": [0], "start_at": StartPosition.end(), "with_offsets": True,
          "desired_tag": "x", "header_filter": FILTER}.items()),
])
def test_bad_values_are_refused_by_the_constructor(options, hint):
    with pytest.raises(ConfigError, match=hint):
        Consumer("t", "c", print, **{"lookupd_http_addresses": ["l:1"], **options})
