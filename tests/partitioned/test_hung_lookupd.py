"""An nsqlookupd that accepts and never answers, given or only listed, delays nobody."""

import pytest

from nsqclient import Config
from nsqclient.partitioned import Producer, publisher as partition_publisher
from nsqclient.devserver.partitioned.lookupd import LookupdMode
from tests.partitioned.conftest import Collector
from tests.support.waiting import wait_until

#: Seconds that a request to the hanging nsqlookupd takes.
HANG = 120.0
CONFIG = Config(lookupd_poll_timeout=HANG, publish_timeout=HANG)


@pytest.fixture(params=["given", "listed"])
def lookupds(request, cluster):
    """The addresses of two nsqlookupds, of which the second does not answer."""
    cluster.nsqlookupds[1].set_mode(LookupdMode.HANG)
    return cluster.lookupd_http_addresses[:1 if request.param == "listed" else 2]


@pytest.fixture
def producer(lookupds):
    with Producer(lookupd_http_addresses=lookupds, config=CONFIG) as producer:
        yield producer


def test_consumption_continues_after_a_crash(cluster, lookupds, consume):
    """The last answer of the leading nsqlookupd, which now hangs, is soon ignored."""
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


@pytest.mark.parametrize("is_async", [False, True])
def test_an_attempt_follows_where_no_nsqlookupd_answers(cluster, producer, monkeypatch, is_async):
    """The wait for newer leaders ends before the publish times out."""
    monkeypatch.setattr(partition_publisher, "LOOKUP_WAIT", HANG)
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
