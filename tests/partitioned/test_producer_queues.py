"""Asynchronous publishes to partitions: what shares a command, in which order, and what fails."""

import pytest

from nsqclient import Config
from nsqclient.devserver import PartitionedCluster
from nsqclient.errors import PublishNotSentError, PublishUnknownError
from nsqclient.protocol.partitioned.sharding import murmur3
from tests.partitioned.conftest import sent
from tests.support.partitioned import producers
from tests.support.waiting import wait_until

WAIT = 60.0
CONFIG = Config(publish_timeout=WAIT, partition_try_timeout=WAIT)
KEYS = [f"k{number}" for number in range(12)]


@pytest.fixture
def cluster(leak_guard):
    with PartitionedCluster(2, 1) as running:
        yield running


@pytest.fixture
def produce(cluster):
    with producers(cluster, CONFIG) as make:
        yield make


def wait_until_distributed(producer, free):
    """Wait until what was published before is in the queue of its partition.

    The queue of the topic is first come, first served; ``free`` is a partition that does not hang.
    """
    producer.publish_async("t", b"last", partition=free).result(WAIT)


def test_messages_that_wait_together_share_an_mpub(cluster, produce):
    """A partition has one batch under way, which does not delay the others."""
    cluster.create_topic("t", 2)
    mine = murmur3("k", 2)
    cluster.hang("t", mine)
    producer = produce()
    first = producer.publish_async("t", b"first", key="k")
    wait_until(lambda: sent(cluster, "PUB"))
    futures = [producer.publish_async("t", b"%d" % number, key="k") for number in range(50)]
    wait_until_distributed(producer, 1 - mine)
    cluster.hang("t", mine, False)
    for future in [first, *futures]:
        assert future.result(WAIT) is None
    assert cluster.messages("t", mine) == [b"first", *(b"%d" % number for number in range(50))]
    assert len(sent(cluster, "MPUB")) == 1
    assert producer.stats().published == 52


def test_each_key_stays_in_order_through_refusals_and_lost_connections(cluster, produce):
    """A batch is repeated before the partition's next one is sent."""
    cluster.create_topic("t", 4, ordered=True)
    producer = produce()
    futures = []
    for number in range(300):
        futures += [producer.publish_async("t", f"{key} {number}".encode(), key=key)
                    for key in KEYS]
        if number % 60 == 10:
            for nsqd in cluster.nsqds:
                nsqd.faults.fail_next("MPUB", "E_FAILED_ON_NOT_LEADER")
        if number % 60 == 30:
            cluster.nsqds[number // 60 % 2].faults.drop_connections()
    for future in futures:
        future.result(WAIT)
    for key in KEYS:
        bodies = cluster.messages("t", murmur3(key, 4))
        numbers = [int(body.split()[1]) for body in bodies if body.split()[0] == key.encode()]
        assert list(dict.fromkeys(numbers)) == list(range(300))  # repetitions left out


def test_one_message_that_nsqd_refuses_fails_alone(cluster, produce):
    cluster.create_topic("t", 1)
    producer = produce()
    cluster.hang("t", 0)
    first = producer.publish_async("t", b"first")
    wait_until(lambda: sent(cluster, "PUB"))
    futures = [producer.publish_async("t", b"%d" % number) for number in range(3)]
    nsqd = cluster.nsqds[0]
    nsqd.faults.fail_next("MPUB", "E_BAD_MESSAGE")
    cluster.hang("t", 0, False)
    first.result(WAIT)
    wait_until(lambda: sent(cluster, "MPUB"))
    for future in futures:
        future.result(WAIT)
    assert cluster.messages("t", 0) == [b"first", b"0", b"1", b"2"]


def test_messages_whose_answer_was_lost_are_unknown_when_they_are_refused_alone(cluster, produce):
    """The MPUB may have been stored."""
    cluster.create_topic("t", 1)
    producer = produce()
    cluster.hang("t", 0)
    first = producer.publish_async("t", b"first")
    wait_until(lambda: sent(cluster, "PUB"))
    faults = cluster.nsqds[0].faults
    faults.hold_answers("MPUB")
    futures = [producer.publish_async("t", b"%d" % number) for number in range(2)]
    cluster.hang("t", 0, False)
    first.result(WAIT)
    wait_until(lambda: sent(cluster, "MPUB"))
    faults.fail_next("MPUB", "E_BAD_MESSAGE")
    faults.fail_next("PUB", "E_BAD_MESSAGE", times=2)
    faults.drop_connections()
    faults.release_answers()
    for future in futures:
        with pytest.raises(PublishUnknownError, match="E_BAD_MESSAGE"):
            future.result(WAIT)


def test_a_lost_answer_is_unknown_without_retry_unknown(cluster, produce):
    cluster.create_topic("t", 1)
    cluster.hang("t", 0)
    producer = produce(CONFIG.replace(partition_try_timeout=0.2), retry_unknown=False)
    future = producer.publish_async("t", b"x", timeout=5.0)
    with pytest.raises(PublishUnknownError):
        future.result(WAIT)
    assert producer.stats().retried == 0


def test_the_deadline_ends_what_is_under_way_and_what_is_queued(cluster, produce):
    cluster.create_topic("t", 1)
    cluster.hang("t", 0)
    producer = produce()
    first = producer.publish_async("t", b"x", timeout=2)
    wait_until(lambda: sent(cluster, "PUB"))
    second = producer.publish_async("t", b"y", timeout=0.5)
    with pytest.raises(PublishUnknownError):
        first.result(WAIT)
    with pytest.raises((PublishNotSentError, PublishUnknownError)):
        second.result(WAIT)
    wait_until(lambda: producer.stats().pending == 0)


def test_a_sharding_that_fails_fails_its_message_alone(cluster, produce):
    cluster.create_topic("t", 2)

    def sharding(key, count):
        return {"good": 1}[key]

    producer = produce(sharding=sharding)
    bad = producer.publish_async("t", b"x", key="bad")
    good = producer.publish_async("t", b"y", key="good")
    assert good.result(WAIT) is None
    with pytest.raises(KeyError):
        bad.result(WAIT)
    assert [cluster.messages("t", partition) for partition in range(2)] == [[], [b"y"]]


def test_a_topic_that_does_not_exist_is_named_in_the_error(produce):
    producer = produce()
    futures = [producer.publish_async("nope", b"x", timeout=3),
               producer.publish_async("nope", b"x", key="k", timeout=3)]
    for future in futures:
        with pytest.raises(PublishNotSentError, match="nope"):
            future.result(WAIT)


def test_close_fails_what_is_left(cluster, produce):
    cluster.create_topic("t", 1)
    cluster.hang("t", 0)
    producer = produce()
    futures = [producer.publish_async("t", b"%d" % number, key="k") for number in range(5)]
    wait_until(lambda: sent(cluster, "PUB") or sent(cluster, "MPUB"))
    assert not producer.close(0.2)
    assert all(future.done() and future.exception() is not None for future in futures)


def test_messages_with_headers_share_commands_that_nsqd_takes(cluster, produce):
    cluster.create_topic("t", 2, extended=True)
    cluster.hang("t", 0)
    producer = produce(CONFIG.replace(nsqd_max_body_size=1000, nsqd_max_msg_size=500))
    first = producer.publish_async("t", b"first", partition=0)
    wait_until(lambda: sent(cluster, "PUB"))
    futures = [
        producer.publish_async("t", b"x" * 100, partition=0, headers={"k": "v" * 200})
        for _ in range(9)]
    wait_until_distributed(producer, 1)
    cluster.hang("t", 0, False)
    for future in [first, *futures]:
        future.result(WAIT)
    assert len(cluster.messages("t", 0)) == 10
    assert 3 <= len(sent(cluster, "MPUB_EXT") + sent(cluster, "PUB_EXT")) < 9


def test_a_refused_publish_with_headers_closes_its_connection(cluster, produce):
    """nsqd reads the rest of its body as commands."""
    cluster.create_topic("t", 1, extended=True)
    for nsqd in cluster.nsqds:
        nsqd.faults.fail_next("PUB_EXT", "E_FAILED_ON_NOT_LEADER")
    producer = produce()
    producer.publish_async("t", b"x", headers={"k": "v"}).result(WAIT)
    clients = [c.client for nsqd in cluster.nsqds for c in nsqd.commands if c.name == "PUB_EXT"]
    assert len(clients) == len(set(clients)) == 2
