"""An nsqlookupd that accepts and never answers, given or only listed, delays nobody."""

from __future__ import annotations

import pytest

from nsqclient import Config, Producer
from nsqclient.devserver.partitioned.lookupd import LookupdMode
from nsqclient.partitioned import retry_policy
from nsqclient.partitioned import producer_metadata as metadata
from tests.partitioned.conftest import Collector
from tests.support.waiting import wait_until

#: What waits for the nsqlookupd that hangs takes so long.
HANG = 120.0
CONFIG = Config(lookupd_poll_timeout=HANG, publish_timeout=HANG)


@pytest.fixture(params=["given", "listed"])
def lookupds(request, cluster):
    """The addresses of nsqlookupds; the second one does not answer."""
    cluster.nsqlookupds[1].set_mode(LookupdMode.HANG)
    return cluster.lookupd_http_addresses[:1 if request.param == "listed" else 2]


@pytest.fixture
def producer(lookupds):
    with Producer(lookupd_http_addresses=lookupds, config=CONFIG) as producer:
        yield producer


def test_a_new_topic_is_published_to(cluster, producer):
    """The first answer names the leaders."""
    for topic in ("t", "u", "v"):
        cluster.create_topic(topic, 1)
        future = producer.publish_async(topic, b"x", key="k")
        future.result(HANG / 4)
        assert cluster.messages(topic, 0) == [b"x"]


@pytest.mark.parametrize("leads", [False, True])
def test_publishes_continue_after_a_planned_move(cluster, producer, leads):
    """After the refusal the others are asked, also where the leading nsqlookupd hangs."""
    cluster.lead_lookupd(1 if leads else 0)
    cluster.create_topic("t", 1)
    producer.publish("t", b"before", key="k")
    cluster.begin_move("t", 0)
    future = producer.publish_async("t", b"during", key="k")
    wait_until(lambda: producer.stats().retried > 1)
    cluster.finish_move("t", 0)
    future.result(HANG / 4)
    assert cluster.messages("t", 0) == [b"before", b"during"]


@pytest.mark.parametrize("hangs_later", [False, True])
def test_consumption_continues_after_a_planned_move(cluster, lookupds, consume, hangs_later):
    """The former answer of the nsqlookupd that hangs does not count for long."""
    cluster.create_topic("t", 2, channels=["c"])
    if hangs_later:
        cluster.nsqlookupds[1].set_mode(LookupdMode.NORMAL)
        cluster.lead_lookupd(1)
    got = Collector()
    consumer = consume(got, lookupds, config=CONFIG, connected=2)
    cluster.nsqlookupds[1].set_mode(LookupdMode.HANG)
    to = cluster.move_leader("t", 0)
    cluster.publish("t", 0, b"x")
    wait_until(lambda: got.bodies() == [b"x"], HANG / 4)
    assert {conn.partition: conn.address for conn in consumer.stats().connections}[0] == (
        cluster.nsqds[to].tcp_address)


def test_consumption_continues_after_a_crash(cluster, lookupds, consume):
    """The leading nsqlookupd named the nsqd that crashed, and hangs since."""
    cluster.nsqlookupds[1].set_mode(LookupdMode.NORMAL)
    cluster.lead_lookupd(1)
    cluster.create_topic("t", 1, replicas=2, channels=["c"])
    got = Collector()
    consume(got, lookupds, config=CONFIG, connected=1)
    cluster.nsqlookupds[1].set_mode(LookupdMode.HANG)
    cluster.crash(0)
    cluster.take_over(0)
    cluster.publish("t", 0, b"x")
    wait_until(lambda: got.bodies() == [b"x"], HANG / 4)


def test_the_first_response_is_enough_where_it_lists_all_partitions(
    cluster, producer, monkeypatch
):
    """A publish then waits for no other nsqlookupd, not even for a moment."""
    monkeypatch.setattr(metadata, "_OTHERS_WAIT", HANG)
    cluster.create_topic("t", 2)
    producer.publish("t", b"x", timeout=HANG / 4)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_attempt_follows_where_no_nsqlookupd_answers(cluster, producer, monkeypatch, is_async):
    """The wait for fresh leaders ends before the time of the publish."""
    monkeypatch.setattr(retry_policy, "LOOKUP_WAIT", HANG)
    cluster.create_topic("t", 1)
    producer.publish("t", b"before", key="k")
    for lookupd in cluster.nsqlookupds:
        lookupd.set_mode(LookupdMode.HANG)
    cluster.nsqds[0].faults.fail_next("PUB", "E_FAILED_ON_NOT_LEADER")
    if is_async:
        producer.publish_async("t", b"x", timeout=4.0, key="k").result(HANG)
    else:
        producer.publish("t", b"x", timeout=4.0, key="k")
    assert cluster.messages("t", 0) == [b"before", b"x"]
