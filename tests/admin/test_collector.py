"""The collector asks the servers when a page needs newer numbers, or after a change."""

import time

import pytest

from nsqclient.admin import collector
from nsqclient.admin.collector import Collector, LostNodes
from nsqclient.cluster.ask_all import ServerFailure, UpstreamError
from nsqclient.cluster.cluster import Node, Nodes

NODE = Node("n:1", "n:1", "n:2", "n", "host", 2, 1, "1.3.0")


class FakeCluster:
    def __init__(self) -> None:
        self.rounds = 0
        self.is_down = False
        self.at = time.monotonic  # when an answer came

    def recent_nodes(self, progressive: bool = False) -> Nodes:
        if self.is_down:
            raise UpstreamError("nsqd", [ServerFailure("nsqd", "n:1", "refused")])
        return Nodes((NODE,), ())

    def each(self, nodes, call, progressive):
        self.rounds += 1
        topics = [{"topic_name": "t", "message_count": self.rounds, "channels": []}]
        return {node: ({"topics": topics}, self.at()) for node in nodes}, []


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def collector_of(cluster, interval=0.0):
    return Collector(cluster, LostNodes(), interval)


def test_numbers_are_kept_for_one_interval(cluster):
    found = collector_of(cluster, 500.0)
    assert cluster.rounds == 0
    assert found.overview() is found.overview() and cluster.rounds == 1
    found = collector_of(cluster)
    assert found.overview().serial + 1 == found.overview().serial


def test_a_change_makes_the_numbers_old(cluster):
    found = collector_of(cluster, 500.0)
    serial = found.overview().serial
    found.refresh()
    assert found.overview().serial == serial + 1 == found.overview().serial


def test_nodes_are_kept_while_nsqlookupds_fail(cluster):
    found = collector_of(cluster)
    found.overview()
    cluster.is_down = True
    seen = found.overview()
    assert seen.failures[0].reason == "refused" and [row.name for row in seen.rows] == ["t"]


def test_rates_use_the_times_of_the_answers(cluster):
    """One message a round, and answers 2 s apart: 0.5 a second, whenever the rounds ended."""
    clock = iter(range(100, 10_000, 2))
    cluster.at = lambda: float(next(clock))
    found = collector_of(cluster)
    assert [found.overview().rows[0].rate for _ in range(3)] == [None, 0.5, 0.5]


def test_a_failure_has_the_time_of_its_first_round(cluster, monkeypatch):
    """Nothing is known about a long time in which no page was open."""
    clock = [1000.0]
    monkeypatch.setattr(collector.time, "time", lambda: clock[0])
    found = collector_of(cluster)
    cluster.is_down = True
    for now in (1000.0, 1010.0):
        clock[0] = now
        assert found.overview().failures[0].since == 1000.0
    monkeypatch.setattr(collector, "_LONGEST_GAP", 0.0)
    assert found.overview().failures[0].since == 1010.0
