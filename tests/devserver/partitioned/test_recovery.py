"""How the embedded cluster fails and recovers: as a real cluster was seen to do."""

import pytest

from nsqclient.devserver import PartitionedCluster
from nsqclient.devserver.partitioned import recovery
from nsqclient.devserver.partitioned.recovery import MoveRefusedError, Recovery
from nsqclient.devserver.partitioned.state import ClusterState
from nsqclient.protocol.partitioned.lookup_table import TopicMeta
from nsqclient.protocol.commands import pub_unchecked
from tests.devserver.partitioned.test_nsqd import OK, client_of, code_of
from tests.support.waiting import wait_until

#: Two hundred times as fast as a real cluster.
FAST = 0.005


class Clock:
    """A state with two nsqds, and the time in seconds of a real cluster."""

    def __init__(self):
        self.state = ClusterState()
        self.now = 0.0
        self.woken = []
        self.recovery = Recovery(self.state, 1.0, lambda: self.woken.append(self.now))
        self.state.create_topic("t", TopicMeta(2, 2), 2, ["c"], 0.0)
        self.topic = self.state.topic("t")

    def crash(self, nsqd):
        self.state.dead.add(nsqd)
        self.recovery.on_crash(nsqd, self.now)

    def advance(self, to):
        self.now = to
        self.state.scheduler.tick(to)

    def listed(self, access):
        return self.state.listed(self.topic, access)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cluster():
    """Two nsqds; each has a copy of both partitions of t. u is on the second nsqd alone."""
    with PartitionedCluster(2, 1) as running:
        running.create_topic("t", 2, replicas=2, channels=["c"])
        running.create_topic("u", 2, channels=["c"])
        yield running


def test_election_takes_half_a_minute(clock):
    clock.crash(0)
    assert clock.listed("r") == clock.listed("w") == {1: 1}
    clock.advance(33)
    assert clock.listed("r") == {1: 1}
    clock.advance(35)
    assert clock.listed("r") == {0: 1, 1: 1} and clock.listed("w") == {1: 1}
    assert clock.topic.partitions[0].leader == 0  # so nsqd 1 answers NOT_LEADER
    clock.advance(38)
    assert clock.listed("w") == {0: 1, 1: 1} and clock.topic.partitions[0].leader == 1


def test_a_crashed_replica_is_waited_for(clock):
    led = clock.topic.partitions[1]
    assert not clock.state.is_hung(led)
    clock.crash(0)
    assert clock.state.is_hung(led)
    clock.advance(45)
    assert clock.state.is_hung(led)
    clock.advance(46)
    assert not clock.state.is_hung(led) and clock.woken == [46]
    assert clock.recovery.hung_until(clock.now) == clock.now + recovery.HUNG_PUBLISH


def test_a_node_that_is_back_serves_a_minute_later(clock):
    """Until then it is listed nowhere; its copies count again afterwards."""
    clock.crash(0)
    clock.advance(50)
    clock.recovery.on_restart(0, clock.now)
    clock.advance(121)
    assert clock.state.dead == {0}
    clock.advance(122)
    assert clock.state.dead == set()
    assert sorted(clock.topic.partitions[1].in_sync) == [0, 1]


def test_a_partition_without_another_copy_waits_for_its_node(clock):
    clock.state.create_topic("single", TopicMeta(1, 1), 2, ["c"], 0.0)
    single = clock.state.topic("single")
    clock.crash(0)
    clock.advance(60)
    assert clock.state.listed(single, "r") == {}
    clock.recovery.on_restart(0, clock.now)
    clock.advance(60 + 72)
    assert clock.state.listed(single, "w") == {0: 0}


def test_a_node_that_was_back_in_time_stays_the_leader(clock):
    clock.crash(0)
    clock.state.dead.discard(0)
    clock.advance(100)
    assert clock.topic.partitions[0].leader == 0 and clock.listed("w") == {0: 0, 1: 1}


def test_a_second_move_soon_after_is_refused(clock):
    """Also while the cluster recovers from a crash."""
    clock.recovery.check_move(0.0)
    clock.recovery.on_moved(0.0)
    with pytest.raises(MoveRefusedError, match="unstable"):
        clock.recovery.check_move(29.0)
    clock.recovery.check_move(30.0)
    clock.now = 40.0
    clock.crash(0)
    with pytest.raises(MoveRefusedError):
        clock.recovery.check_move(80.0)
    clock.recovery.check_move(90.0)


def test_leaders_of_a_topic_that_is_new_under_load_serve_later(clock):
    clock.state.create_topic("new", TopicMeta(1, 1), 2, ["c"], 0.0)
    new = clock.state.topic("new")
    clock.recovery.on_created_under_load(new, 0.0)
    clock.advance(119)
    assert clock.state.listed(new, "r") == {0: 0} and clock.state.listed(new, "w") == {}
    assert not new.partitions[0].is_served
    clock.advance(120)
    assert clock.state.listed(new, "w") == {0: 0} and new.partitions[0].is_served


def test_without_a_scale_nothing_happens_by_itself(cluster):
    cluster.crash(0)
    cluster.take_over(0)
    cluster.restart(0)
    for _ in range(3):
        cluster.move_leader("t", 0)
    with client_of(cluster, 1) as client:
        assert client.ask(pub_unchecked("t 1", b"x")) == OK


def test_a_publish_that_hangs_delays_what_is_behind_it(cluster):
    cluster.hang("t", 1)
    with client_of(cluster, 1) as hung, client_of(cluster, 1) as other:
        hung.send(pub_unchecked("t 1", b"hangs") + pub_unchecked("u 1", b"behind"))
        assert other.ask(pub_unchecked("u 1", b"other")) == OK
        wait_until(lambda: any(c.name == "PUB" for c in cluster.nsqds[1].commands))
        assert cluster.messages("u", 1) == [b"other"] and cluster.messages("t", 1) == []
        cluster.hang("t", 1, False)
        assert hung.read_frame() == OK and hung.read_frame() == OK
    assert cluster.messages("t", 1) == [b"hangs"]
    assert cluster.messages("u", 1) == [b"other", b"behind"]


def test_a_publish_that_hangs_too_long_is_refused():
    """NOT_WRITABLE comes before the replica is dropped; after that publishes are stored."""
    with PartitionedCluster(2, 1, recovery_scale=FAST) as cluster:
        cluster.create_topic("t", 2, replicas=2, channels=["c"])
        with client_of(cluster, 1) as client:
            cluster.crash(0)
            first = client.ask(pub_unchecked("t 1", b"x"))
            assert first == OK or code_of(first) == "E_FAILED_ON_NOT_WRITABLE"
            wait_until(lambda: client.ask(pub_unchecked("t 1", b"y")) == OK)
