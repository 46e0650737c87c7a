"""Producers on partitioned NSQ: which partition, what is tried again, and what a trace says."""

import logging
import time

import pytest

import nsqclient
from nsqclient import Config
from nsqclient.devserver import Nsqd, Nsqlookupd, PartitionedCluster
from nsqclient.devserver.partitioned.lookupd import LookupdMode
from nsqclient.errors import (
    InvalidMessageError, PartitionError, PublishNotSentError,
)
from nsqclient.partitioned import Outgoing, Producer, publisher as producer_module
from nsqclient.partitioned.options import TraceSwitch
from nsqclient.protocol.partitioned.extensions import StoredPosition, make_internal_id
from nsqclient.protocol.partitioned.sharding import java, murmur3
from tests.partitioned.conftest import sent
from tests.support.partitioned import producers
from tests.support.waiting import wait_until

#: Seconds; longer than anything here takes, also on a busy machine.
WAIT = 60.0
QUICK = Config(lookupd_poll_interval=30.0, lookupd_poll_timeout=2.0)


@pytest.fixture
def two_tries(monkeypatch):
    """Make attempts end before the publish times out."""
    monkeypatch.setattr(
        producer_module, "retry_delay", lambda count, *rest: 0.001 if count < 2 else None)


@pytest.fixture
def produce(cluster):
    """Make producers that are closed after the test: ``produce(sharding="java")``."""
    with producers(cluster, QUICK) as make:
        yield make


def bodies(cluster, partitions, topic="t"):
    return [cluster.messages(topic, partition) for partition in range(partitions)]


def connected(producer, cluster):
    """Return the producer once it is connected to every nsqd."""
    producer.ping(WAIT)
    wait_until(lambda: len(producer.stats().connected) == len(cluster.nsqds))
    return producer


def test_messages_without_a_key_use_all_partitions_in_turn(cluster, produce):
    cluster.create_topic("t", 4)
    cluster.create_topic("u", 2)
    producer = connected(produce(), cluster)
    for number in range(8):
        assert producer.publish("t", b"%d" % number) is None
        producer.publish("u", b"x")
    assert [len(part) for part in bodies(cluster, 4) + bodies(cluster, 2, "u")] == [2] * 4 + [4] * 2
    assert {event.partition for event in sent(cluster, "PUB")} == {0, 1, 2, 3}
    assert producer.stats().published == 16


def test_a_producer_without_nsqlookupd_warns_once_of_each_partitioned_nsqd(cluster, caplog):
    cluster.create_topic("t", 2)
    nsqd = cluster.nsqds[0]
    with caplog.at_level(logging.WARNING), Producer([nsqd.tcp_address]) as producer:
        producer.publish("t", b"1")
        nsqd.faults.drop_connections()
        producer.publish("t", b"2")
    assert caplog.text.count("is a partitioned nsqd: without nsqlookupd") == 1


@pytest.mark.parametrize(("sharding", "function"), [
    ("murmur3", murmur3), ("java", java), (lambda key, count: len(key) % count, None),
])
def test_a_key_selects_the_partition(cluster, produce, sharding, function):
    cluster.create_topic("t", 5, ordered=True)
    producer = produce(sharding=sharding)
    for number in range(3):
        producer.publish("t", b"%d" % number, key="order-1")
    expected = function("order-1", 5) if function else 7 % 5
    assert cluster.messages("t", expected) == [b"0", b"1", b"2"]


def test_a_traced_publish_returns_where_it_was_stored(cluster, produce):
    cluster.create_topic("t", 1)
    producer = produce()
    producer.publish("t", b"first")
    stored = producer.publish("t", b"hello world", trace_id=2**64 - 1)
    assert stored == StoredPosition(make_internal_id(0, 3), 2**64 - 1, 35, 41)
    assert (stored.partition, stored.nsqd) == (0, cluster.nsqds[0].tcp_address)
    assert "partition=0, nsqd='127.0.0.1:" in repr(stored)
    assert producer.publish("t", b"not traced, on the same connection") is None


def test_headers_are_delivered_and_can_be_traced(cluster, produce, consume):
    cluster.create_topic("t", 1, extended=True, channels=["c"])
    producer = produce()
    got = []
    consume(got.append, max_in_flight=8)
    assert producer.publish("t", b"a", headers={"k": "v"}) is None
    stored = producer.publish("t", b"b", headers={"n": [1, 2]}, trace_id=77)
    assert stored.trace_id == 77
    assert producer.publish("t", b"c", trace_id=78).trace_id == 78
    wait_until(lambda: len(got) == 3)
    by_body = {message.body: message for message in got}
    assert by_body[b"a"].headers == {"k": "v"}
    assert by_body[b"c"].headers == {} and by_body[b"c"].trace_id == 78
    message = by_body[b"b"]
    assert message.headers == {"##trace_id": "77", "n": [1, 2]}
    assert (message.internal_id, message.trace_id) == (stored.internal_id, 77)
    # Without order there is no place.
    assert (message.partition, message.offset, message.size) == (0, None, None)
    assert f"<Message {stored.internal_id} of partition 0" in repr(message)


def test_publish_many_stores_each_part_in_one_partition(cluster, produce):
    cluster.create_topic("t", 3)
    producer = produce()
    assert producer.publish_many("t", [b"1", b"2", b"3"]) == 3
    assert sorted(map(len, bodies(cluster, 3))) == [0, 0, 3]
    producer.publish_many("t", [b"4", b"5"], key="hello")
    assert cluster.messages("t", murmur3("hello", 3))[-2:] == [b"4", b"5"]


def test_asynchronous_publishes_before_the_first_connection_are_stored(cluster, produce):
    cluster.create_topic("t", 4)
    producer = produce()
    producer.set_tracing(True)
    futures = [producer.publish_async("t", b"%d" % n) for n in range(50)]
    assert producer.flush(10.0) and producer.stats().pending == 0
    assert len({future.result().trace_id for future in futures}) == 50
    stored = [body for partition in range(4) for body in cluster.messages("t", partition)]
    assert sorted(stored) == sorted(b"%d" % n for n in range(50))


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"defer": 1.0}])
def test_an_asynchronous_publish_never_waits_for_an_nsqd(options):
    with Nsqlookupd() as lookupd, Producer(
        lookupd_http_addresses=[lookupd.http_address], config=QUICK
    ) as producer:
        waiting = producer.publish_async("t", b"x", timeout=10 * WAIT, **options)
        began = time.monotonic()
        future = producer.publish_async("t", b"x", timeout=0.5, **options)
        with pytest.raises(PublishNotSentError):
            future.result(WAIT)
        assert 0.5 <= time.monotonic() - began and not waiting.done()
        wait_until(lambda: producer.stats().pending == 1)
        producer.close(0.0)
        assert producer.stats().pending == 0


@pytest.mark.parametrize(("call", "hint"), [
    (lambda p: p.publish("o", b"x"), "key="),
    (lambda p: p.publish_many("o", [b"x"]), "key="),
    (lambda p: p.publish("t", b"x", defer=1.0), "DPUB"),
    (lambda p: p.publish_async("t", b"x", defer=1.0).result(30), "DPUB"),
    (lambda p: p.ping(10) or p.publish_async("t", b"x", defer=1.0), "DPUB"),
    (lambda p: p.publish_async("t", b"x", defer=1.0, key="k").result(30), "DPUB"),
    (lambda p: p.publish("t", b"x", headers={"k": 1}), "no headers"),
    (lambda p: p.publish_many("t", [Outgoing(b"x", headers={"n": 1})]), "no headers"),
])
def test_publishes_that_the_topic_does_not_take_are_not_sent(cluster, produce, call, hint):
    cluster.create_topic("t", 1)
    cluster.create_topic("o", 1, ordered=True)
    with pytest.raises(PartitionError, match=hint):
        call(produce())
    assert not [c for nsqd in cluster.nsqds for c in nsqd.commands if "PUB" in c.name]


@pytest.mark.parametrize("options", [
    {"trace_id": -1}, {"trace_id": 1.5}, {"headers": {"##x": 1}}, {"headers": {"k": object()}},
    {"key": 1.5}, {"key": ["a"]},
])
def test_invalid_options_of_a_publish_are_not_sent(cluster, produce, options):
    cluster.create_topic("t", 2, extended=True)
    with pytest.raises(InvalidMessageError):
        produce().publish("t", b"x", **options)
    with pytest.raises(InvalidMessageError):
        produce().publish_async("t", b"x", **options)


@pytest.mark.parametrize(("code", "is_reset"), [
    ("E_FAILED_ON_NOT_LEADER", False), ("E_UNHEARD_OF", False), ("E_TOPIC_NOT_EXIST", True),
])
def test_temporary_errors_are_retried(cluster, produce, code, is_reset):
    """Once. A reset can lose an error that nsqd sends before it reads the body."""
    cluster.create_topic("t", 1)
    cluster.nsqds[0].faults.reset_after_error = is_reset
    cluster.nsqds[0].faults.fail_next("PUB", code)
    producer = produce()
    producer.publish("t", b"x", key="k")
    assert cluster.messages("t", 0) == [b"x"]
    assert producer.stats().retried == 1 or is_reset
    if code == "E_FAILED_ON_NOT_LEADER":
        assert len({c.client for c in cluster.nsqds[0].commands}) == 1  # nsqd keeps it, so do we


def test_a_retry_without_a_key_uses_another_partition(cluster, produce):
    cluster.create_topic("t", 2)
    producer = produce()
    producer.publish("t", b"warm up")
    cluster.crash(0)
    for _ in range(4):
        producer.publish("t", b"x")
    assert cluster.messages("t", 1).count(b"x") == 4


def test_partitions_of_an_nsqd_that_came_back_are_used_again(cluster, produce, monkeypatch):
    monkeypatch.setattr(producer_module, "UNANSWERED_AFTER", 0.0)
    cluster.create_topic("t", 3)
    producer = connected(produce(), cluster)
    for _ in range(3):
        producer.publish("t", b"before")
    dials = len(sent(cluster, "IDENTIFY"))
    cluster.nsqds[0].faults.drop_connections()
    wait_until(lambda: len(sent(cluster, "IDENTIFY")) > dials)

    def is_used():
        producer.publish("t", b"after")
        return b"after" in cluster.messages("t", 0)

    wait_until(is_used)


def test_publishes_continue_after_a_leader_crashed(cluster, produce):
    """The key's messages wait for another leader."""
    cluster.create_topic("t", 1, replicas=2, ordered=True)
    producer = produce()
    producer.publish("t", b"before", key="k")
    cluster.crash(0)
    future = producer.publish_async("t", b"during", key="k")
    wait_until(lambda: producer.stats().retried > 1)
    cluster.take_over(0, writable=False)
    cluster.take_over(0)
    future.result(30)
    assert cluster.messages("t", 0) == [b"before", b"during"]


def test_a_key_never_uses_another_partition(cluster, produce, two_tries):
    cluster.create_topic("t", 4, ordered=True)
    partition = murmur3("k", 4)
    cluster.hide("t", partition)
    producer = produce()
    reason = f"partition {partition} of t, where key 'k' belongs"
    with pytest.raises(PublishNotSentError, match=reason):
        producer.publish("t", b"x", key="k")
    assert bodies(cluster, 4) == [[], [], [], []] and producer.stats().retried == 1
    cluster.hide("t", partition, hidden=False)
    producer.publish("t", b"x", key="k")
    assert cluster.messages("t", partition) == [b"x"]


def test_publishes_reach_the_leader_when_lookups_disagree(cluster, produce):
    """nsqd's error outweighs the stale answer of the leading nsqlookupd."""
    cluster.create_topic("t", 1, replicas=2)
    cluster.nsqlookupds[0].freeze()
    cluster.move_leader("t", 0)
    produce().publish("t", b"x")
    assert cluster.messages("t", 0) == [b"x"]


@pytest.mark.parametrize("options", [{}, {"key": "k"}])
def test_a_topic_without_a_channel_is_named_in_the_error(produce, two_tries, options):
    """A real cluster hides such a topic from writers."""
    with PartitionedCluster(1, 1, needs_channel=True) as cluster:
        cluster.create_topic("t", 1)
        producer = produce(lookupd_http_addresses=cluster.lookupd_http_addresses)
        with pytest.raises(PublishNotSentError, match="Topic has no channel.*subscribe a consumer"):
            producer.publish("t", b"x", **options)
        producer.close(5.0)


def test_a_key_without_metadata_is_an_error(cluster, produce, caplog):
    """An nsqlookupd without a coordinator sends only leaders."""
    for lookupd in cluster.nsqlookupds:
        lookupd.set_mode(LookupdMode.NO_COORDINATOR)
    cluster.create_topic("t", 2)
    producer = produce()
    producer.publish("t", b"x")
    with pytest.raises(PartitionError, match="how many partitions"):
        producer.publish("t", b"x", key="k")
    line = "no nsqlookupd has the metadata of topic t"
    wait_until(lambda: line in caplog.text)  # when all of them have answered
    assert caplog.text.count(line) == 1


def test_tracing_can_be_enabled_per_topic():
    """A topic's setting holds until all are set again."""
    switch = TraceSwitch()
    assert not switch.is_on("t")
    switch.set(True)
    switch.set(False, "t")
    assert switch.is_on("other") and not switch.is_on("t")
    switch.set(True)
    assert switch.is_on("t")
    switch.set(False)
    switch.set(True, "t")
    assert switch.is_on("t") and not switch.is_on("other")


def test_traced_publishes_are_logged(cluster, produce, caplog):
    caplog.set_level(logging.INFO, "nsqclient.trace")
    for topic in ("t", "u"):
        cluster.create_topic(topic, 1)
    producer = produce()
    producer.publish("t", b"silent")
    producer.set_tracing(True, "t")
    stored = producer.publish("t", b"traced")
    producer.publish("u", b"silent")
    given = producer.publish("t", b"traced", trace_id=7)
    producer.set_tracing(False, "t")
    assert producer.publish("t", b"silent") is None
    first, second = [record.getMessage() for record in caplog.records
                     if record.name == "nsqclient.trace"]
    nsqd = cluster.nsqds[0].tcp_address
    assert stored.trace_id > 0 and given.trace_id == 7
    assert first == (
        f"published topic=t partition=0 nsqd={nsqd} internal_id={stored.internal_id}"
        f" trace_id={stored.trace_id} offset={stored.offset} size={stored.size}"
    )
    assert "trace_id=7 " in second


class TestChosenPartitions:
    """``partition=`` instead of a key, and publish_many with different options."""

    @pytest.mark.parametrize("publish", [
        lambda p, **options: p.publish("t", b"x", **options),
        lambda p, **options: p.publish_async("t", b"x", **options).result(30),
        lambda p, **options: p.publish_many("t", [b"x"], **options),
        lambda p, **options: p.publish_json("t", 1, **options),
    ])
    def test_a_partition_may_be_chosen(self, cluster, produce, publish):
        """Also of an ordered topic, instead of a key."""
        cluster.create_topic("t", 3, ordered=True)
        publish(produce(), partition=2)
        assert [len(part) for part in bodies(cluster, 3)] == [0, 0, 1]

    @pytest.mark.parametrize(("options", "error", "text"), [
        ({"partition": 3}, PartitionError, "0 to 2"),
        ({"partition": -1}, InvalidMessageError, "0 to 1023"),
        ({"partition": True}, InvalidMessageError, "whole number"),
        ({"partition": 1, "key": "k"}, InvalidMessageError, "not both"),
    ])
    def test_a_partition_that_cannot_be_is_refused(self, cluster, produce, options, error, text):
        cluster.create_topic("t", 3)
        with pytest.raises(error, match=text):
            produce().publish("t", b"x", **options)
        with pytest.raises(error, match=text):
            produce().publish_async("t", b"x", **options).result(30)
        assert bodies(cluster, 3) == [[], [], []]

    def test_publish_many_takes_a_key_for_each_message(self, cluster, produce):
        cluster.create_topic("t", 3, ordered=True)
        keys = [f"k{number}" for number in range(5)]
        messages = [Outgoing(f"{key} {number}".encode(), key) for number in range(20)
                    for key in keys]
        assert produce().publish_many("t", messages) == 100
        for partition in range(3):
            assert cluster.messages("t", partition) == [
                one.body for one in messages if murmur3(one.key, 3) == partition]
        assert len(sent(cluster, "MPUB")) + len(sent(cluster, "PUB")) <= 6

    def test_publish_many_takes_headers(self, cluster, produce, consume):
        cluster.create_topic("t", 1, extended=True, channels=["c"])
        got = []
        consume(got.append, max_in_flight=8)
        producer = produce()
        producer.publish("t", b"0")
        assert producer.publish_many(
            "t", [Outgoing(b"1", headers={"n": 1}), b"2", Outgoing(b"3", headers={"n": 3})]) == 3
        wait_until(lambda: len(got) == 4)
        assert {message.body: message.headers.get("n") for message in got} == {
            b"0": None, b"1": 1, b"2": None, b"3": 3}
        assert sent(cluster, "MPUB_EXT") or sent(cluster, "PUB_EXT")

    def test_publish_many_says_how_many_are_stored(self, cluster, produce):
        """One partition has no leader; messages of the others are stored."""
        cluster.create_topic("t", 2)
        cluster.hide("t", murmur3("k0", 2))
        other = next(f"k{n}" for n in range(9) if murmur3(f"k{n}", 2) != murmur3("k0", 2))
        with pytest.raises(PublishNotSentError) as caught:
            produce().publish_many("t", [Outgoing(b"x", "k0"), Outgoing(b"y", other)], timeout=3.0)
        assert caught.value.stored == 1

    def test_a_stock_cluster_takes_bodies_alone(self):
        with Nsqd() as nsqd, Producer([nsqd.tcp_address]) as producer:
            assert producer.publish_many("t", [Outgoing(b"x"), b"y"]) == 2
            with pytest.raises(PartitionError, match="partition="):
                producer.publish_many("t", [Outgoing(b"x", partition=1)])


@pytest.mark.parametrize(("size", "headers"), [(999, None), (984, {"k": "12345"}), (1000, None),
                                               (985, {"k": "12345"})])
def test_headers_and_their_mark_count_for_the_limit_of_nsqd(cluster, size, headers):
    """nsqd would answer E_PUB_FAILED to every attempt."""
    cluster.create_topic("t", 1, extended=True, channels=["c"])
    config = Config(nsqd_max_msg_size=1000)
    options = {"headers": headers} if headers else {}
    with Producer(lookupd_http_addresses=cluster.lookupd_http_addresses, config=config) as producer:
        if size in (999, 984):
            producer.publish("t", b"x" * size, **options)
            return
        with pytest.raises(InvalidMessageError, match="1001 bytes.* limit of 1000"):
            producer.publish("t", b"x" * size, **options)
        with pytest.raises(InvalidMessageError, match="limit of 1000"):
            producer.publish_async("t", b"x" * size, **options).result(30)


def test_a_stock_producer_says_what_to_use(cluster):
    with nsqclient.Producer(lookupd_http_addresses=cluster.lookupd_http_addresses) as producer:
        with pytest.raises(PublishNotSentError, match="use nsqclient.partitioned"):
            producer.publish("events", b"x")
