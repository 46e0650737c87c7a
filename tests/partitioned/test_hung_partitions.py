"""A partition that leaves publishes unanswered delays no other one, not even on the same nsqd."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqclient import Config
from nsqclient.devserver import PartitionedCluster
from tests.support.partitioned import producers
from tests.support.waiting import wait_until

#: Seconds that a publish to the hanging partition takes.
HANG = 120.0
CONFIG = Config(publish_timeout=HANG, partition_try_timeout=HANG)


@pytest.fixture
def cluster(leak_guard):
    with PartitionedCluster(1, 1) as running:
        yield running


@pytest.fixture
def in_thread(cluster):
    """Call a function in its own thread: ``in_thread(call, ...)`` returns a Future."""
    with ThreadPoolExecutor(40) as pool:
        yield pool.submit


@pytest.fixture
def produce(cluster, in_thread):  # closed before the threads are waited for
    with producers(cluster, CONFIG) as make:
        yield make


def commands(cluster, topic):
    """The number of publishes to a topic that the nsqd has read."""
    return len([c for c in cluster.nsqds[0].commands if getattr(c.event, "topic", "") == topic])


@pytest.mark.parametrize(("retry_unknown", "key"), [(True, "k"), (False, None)])
def test_other_topics_are_published_to_while_a_partition_hangs(
    cluster, produce, in_thread, retry_unknown, key
):
    """They use other connections."""
    cluster.create_topic("hung", 1)
    cluster.create_topic("t", 2)
    cluster.hang("hung", 0)
    producer = produce(retry_unknown=retry_unknown)
    stuck = in_thread(producer.publish, "hung", b"x", key=key)
    wait_until(lambda: commands(cluster, "hung"))
    for number in range(20):
        producer.publish("t", b"%d" % number, key=key)
    assert not stuck.done()
    assert sum(len(cluster.messages("t", partition)) for partition in range(2)) == 20
    cluster.hang("hung", 0, False)
    stuck.result(HANG)
    assert cluster.messages("hung", 0) == [b"x"]


@pytest.mark.parametrize("is_async", [False, True])
def test_publishes_without_a_key_go_to_the_partitions_that_answer(
    cluster, produce, in_thread, is_async
):
    cluster.create_topic("t", 3)
    producer = produce()

    def publish(topic, body):
        if is_async:
            return producer.publish_async(topic, body)
        return in_thread(producer.publish, topic, body)

    producer.publish("t", b"first")
    cluster.hang("t", 1)
    futures = []
    for number in range(3):  # they are used in turn
        futures.append(publish("t", b"%d" % number))
        wait_until(lambda: commands(cluster, "t") == number + 2)
    # Until then the others have a publish under way, too.
    wait_until(lambda: [future.done() for future in futures].count(False) == 1)
    for number in range(30):
        publish("t", b"later").result(HANG)
    assert [future.done() for future in futures].count(False) == 1
    cluster.hang("t", 1, False)
    for future in futures:
        future.result(HANG)
    assert b"later" not in cluster.messages("t", 1)


def test_connections_to_a_nsqd_are_limited(cluster, produce, in_thread):
    """Partitions that hang repeatedly leave connections for the others."""
    cluster.create_topic("hung", 6)
    cluster.create_topic("t", 2)
    for partition in range(6):
        cluster.hang("hung", partition)
    producer = produce(CONFIG.replace(partition_try_timeout=0.2, max_connections=4))
    stuck = [in_thread(producer.publish, "hung", b"x", key=f"k{number}") for number in range(24)]
    wait_until(lambda: producer.stats().retried > 12)
    for number in range(20):
        producer.publish("t", b"x", key=f"k{number}")
        assert sum(producer.stats().connections.values()) <= 4
    assert not any(future.done() for future in stuck)
    for partition in range(6):
        cluster.hang("hung", partition, False)
    for future in stuck:
        future.result(HANG)
