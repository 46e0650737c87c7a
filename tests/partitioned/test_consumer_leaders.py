"""ConnectionManager by value, on a partitioned cluster: how soon a new leader is found."""

import pytest

from nsqclient.partitioned import connections
from nsqclient.partitioned.options import PartitionOptions
from nsqclient.partitioned.discovery import RoutesResult
from nsqclient.errors import ConnectionLostError, ServerError
from nsqclient.protocol.partitioned.lookup_table import TopicMeta, TopicRoutes
from tests.consumer.test_connections import FakeSubscription, Slots, World, names


class PartitionWorld(World):
    """PartitionedConnections and the answers of nsqlookupds."""

    def make(self, context, sources):
        self.partitions = []
        self.monkeypatch.setattr(connections, "lookup_routes", self.find_routes)
        return connections.PartitionedConnections(context, sources, self, PartitionOptions())

    def find_routes(self, lookupd, topic, access, config):
        assert access == "r"
        answer = self.answer(lookupd)
        if isinstance(answer, RoutesResult):
            return answer
        return RoutesResult(TopicRoutes(plain=tuple(answer)))

    def make_partition_subscription(self, target):
        return FakeSubscription(target.place, self)

    def on_partitions(self, count):
        self.partitions.append(count)


def answer(leaders, partitions=2):
    """The answer of an nsqlookupd about a topic."""
    return RoutesResult(
        TopicRoutes(partitions=leaders, meta=TopicMeta(partitions), is_partitioned=True))


@pytest.fixture
def world(monkeypatch):
    """A consumer of two partitions, connected to nsqds a and b."""
    world = PartitionWorld(monkeypatch, lookupds=["l"])
    world.answers["l"] = answer({0: "a:1", 1: "b:1"})
    world.start()
    world.timer.advance(10)
    world.asked.clear()
    return world


def crash(world, nsqd, leaders):
    """End the connections to an nsqd, and change the nsqlookupd's answer."""
    world.answers["l"] = answer(leaders)
    for sub in world.connections.subscriptions():
        if sub.address == nsqd:
            world.lost(sub, ConnectionLostError(nsqd, "killed"))


def leaders_of(world):
    return {sub.place.partition: sub.address for sub in world.connections.subscriptions()}


def times(world):
    return [at for at, _ in world.asked]


def gaps(moments):
    return [later - earlier for earlier, later in zip(moments, moments[1:])]


def test_lookups_come_every_few_seconds_while_a_partition_has_no_leader(world):
    """The end of an election is noticed within 4 s, however long it takes."""
    crash(world, "a:1", {1: "b:1"})
    world.timer.advance(120)
    assert max(gaps(times(world))) <= 4.0 and len(set(gaps(times(world)[5:]))) > 5
    began = world.timer.now
    world.answers["l"] = answer({0: "b:1", 1: "b:1"})
    world.timer.advance(4.1)
    assert leaders_of(world) == {0: "b:1", 1: "b:1"}
    assert world.dialed[-1] == (pytest.approx(began, abs=4.0), "b:1")


def test_lookups_come_at_the_poll_interval_when_all_partitions_are_connected(world):
    world.timer.advance(300)
    assert min(gaps(times(world))) >= 60.0


def test_a_partition_that_lookups_drop_is_asked_for_soon(world):
    sub, = [one for one in world.connections.subscriptions() if one.place.partition == 0]
    world.answers["l"] = answer({1: "b:1"})
    world.timer.advance(120)
    assert sub.is_closed
    dropped = times(world)[0]
    assert leaders_of(world) == {1: "b:1"}
    assert max(gaps(times(world))) <= 4.0 and len(world.asked) > (130 - dropped) / 4 - 5


def test_a_leader_that_still_refuses_is_dialed_every_few_seconds(world):
    """nsqlookupd may name a new leader half a minute before it accepts subscriptions."""
    world.failures["b:1"] = ServerError("E_FAILED_ON_NOT_LEADER", "")
    crash(world, "a:1", {0: "b:1", 1: "b:1"})
    world.timer.advance(120)
    dials = [when for when, nsqd in world.dialed if nsqd == "b:1" and when > 10]
    assert max(gaps(dials)) <= 4.1
    del world.failures["b:1"]
    world.timer.advance(4.1)
    assert leaders_of(world) == {0: "b:1", 1: "b:1"}


def test_the_number_of_partitions_is_reported_when_it_changes(world):
    assert world.partitions == [2]
    world.answers["l"] = answer({0: "a:1", 1: "b:1"}, partitions=6)
    world.timer.advance(300)
    assert world.partitions == [2, 6]


def test_partitions_that_the_filter_leaves_out_are_not_waited_for(monkeypatch):
    world = PartitionWorld(monkeypatch, lookupds=["l"], discovery_filter=lambda names: ["a:1"])
    world.answers["l"] = answer({0: "a:1", 1: "b:1"})
    world.start()
    world.timer.advance(10)
    assert leaders_of(world) == {0: "a:1"} and world.partitions == [1]
    assert world.connections.unread_partitions() == []


def test_after_a_refusal_the_leader_of_another_lookupd_is_dialed_at_once(monkeypatch):
    """An nsqlookupd that no longer answers may have named a former leader."""
    world = PartitionWorld(monkeypatch, lookupds=["l", "m"])
    world.answers["l"] = world.answers["m"] = answer({0: "a:1"}, partitions=1)
    world.start()
    world.timer.advance(10)
    world.failures["a:1"] = ServerError("E_FAILED_ON_NOT_LEADER", "")
    began = world.timer.now
    world.answers["m"] = answer({0: "b:1"}, partitions=1)
    sub, = world.connections.subscriptions()
    world.lost(sub, ConnectionLostError("a:1", "moved"))
    assert leaders_of(world) == {0: "b:1"} and world.timer.now == began


def test_partitions_that_nobody_reads_are_logged_at_growing_intervals(monkeypatch, caplog):
    """A last line says that all are read again."""
    caplog.set_level("INFO", "nsqclient.consumer")
    world = PartitionWorld(monkeypatch, lookupds=["l"])
    world.answers["l"] = answer({0: "a:1", 2: "c:1"}, partitions=4)
    world.start()
    world.timer.advance(4)
    assert "no reader" not in caplog.text
    world.timer.advance(296)
    assert world.connections.unread_partitions() == [1, 3]
    assert 4 <= caplog.text.count("no reader for partitions 1, 3 for") <= 7
    world.answers["l"] = answer({0: "a:1", 1: "a:1", 2: "c:1", 3: "c:1"}, partitions=4)
    world.timer.advance(60)
    assert world.connections.unread_partitions() == []
    assert caplog.text.count("every partition has a reader again") == 1


def test_listed_nsqlookupds_share_the_part_of_the_nsqlookupd_that_listed_them(monkeypatch):
    world = PartitionWorld(monkeypatch, lookupds=["l:1", "l:2"])
    slots = world.connections.dials._make_thread = Slots()
    listed = [(f"more{number}:1", False) for number in range(3)]
    world.answers = {
        "l:1": RoutesResult(TopicRoutes(plain=tuple(names(5)), is_partitioned=True), tuple(listed)),
        **{name: names(5, name[:5]) for name, _ in listed}, "l:2": ["a:1", "b:1", "c:1"],
    }
    world.start()
    slots.run()
    dialed = [address for _, address in world.dialed]
    assert [dialed.index(address) for address in ("a:1", "b:1", "c:1")] == [1, 3, 5]
    assert len(dialed) == 5 + 15 + 3
