"""How the embedded cluster fails and recovers: as a real cluster was seen to do, step by step."""

import pytest

from nsqclient.devserver import PartitionedCluster
from nsqclient.partitioned.discovery import lookup_routes
from nsqclient.config import Config
from nsqclient.protocol.commands import pub
from tests.devserver.partitioned.test_nsqd import OK, client_of, code_of
from tests.support.waiting import wait_until


@pytest.fixture
def cluster():
    """Two nsqds; each has a copy of both partitions of t. u is on the second nsqd alone."""
    with PartitionedCluster(2, 1) as running:
        running.create_topic("t", 2, replicas=2, channels=["c"])
        running.create_topic("u", 2, channels=["c"])
        yield running


def listed(cluster, access):
    """Partition -> nsqd, as the first nsqlookupd lists them."""
    routes = lookup_routes(cluster.lookupd_http_addresses[0], "t", access, Config()).routes
    addresses = [nsqd.tcp_address for nsqd in cluster.nsqds]
    return {number: addresses.index(nsqd) for number, nsqd in routes.partitions.items()}


def test_a_new_leader_is_listed_for_readers_first(cluster):
    cluster.crash(0)
    assert listed(cluster, "r") == listed(cluster, "w") == {1: 1}
    cluster.take_over(0, writable=False)
    assert (listed(cluster, "r"), listed(cluster, "w")) == ({0: 1, 1: 1}, {1: 1})
    with client_of(cluster, 1) as client:
        assert code_of(client.ask(pub("t 0", b"x"))) == "E_FAILED_ON_NOT_WRITABLE"
    cluster.take_over(0)
    assert listed(cluster, "w") == {0: 1, 1: 1}
    cluster.restart(0)
    with client_of(cluster, 1) as client:
        assert client.ask(pub("t 0", b"x")) == OK


def test_a_takeover_leaves_the_partitions_of_other_nsqds_alone(cluster):
    """A move that was begun goes on, and a second takeover does not end a move."""
    cluster.begin_move("t", 1)
    cluster.crash(0)
    cluster.take_over(0, writable=False)
    cluster.take_over(0)
    assert (listed(cluster, "r"), listed(cluster, "w")) == ({0: 1, 1: 1}, {0: 1})
    with client_of(cluster, 1) as client:
        assert code_of(client.ask(pub("t 1", b"x"))) == "E_FAILED_ON_NOT_WRITABLE"
    cluster.begin_move("t", 0)
    cluster.take_over(0)
    assert listed(cluster, "w") == {}


def test_a_move_completes_a_takeover(cluster):
    cluster.crash(0)
    cluster.take_over(0, writable=False)
    cluster.finish_move("t", 0, 1)
    cluster.begin_move("t", 0)
    cluster.take_over(0)
    assert listed(cluster, "w") == {1: 1}


def test_a_publish_that_hangs_delays_what_is_behind_it(cluster):
    cluster.hang("t", 1)
    with client_of(cluster, 1) as hung, client_of(cluster, 1) as other:
        hung.send(pub("t 1", b"hangs") + pub("u 1", b"behind"))
        assert other.ask(pub("u 1", b"other")) == OK
        wait_until(lambda: any(c.name == "PUB" for c in cluster.nsqds[1].commands))
        assert cluster.messages("u", 1) == [b"other"] and cluster.messages("t", 1) == []
        cluster.hang("t", 1, False)
        assert hung.read_frame() == OK and hung.read_frame() == OK
    assert cluster.messages("t", 1) == [b"hangs"]
    assert cluster.messages("u", 1) == [b"other", b"behind"]
