"""The collector works while somebody looks, and rests otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from nsqclient.admin import AdminSettings, collector
from nsqclient.admin.asking import Failure
from nsqclient.admin.cluster import Answer, Node, Nodes, UpstreamError
from nsqclient.admin.collector import Collector
from tests.support.waiting import wait_until

NODE = Node("n:1", "n:1", "n:2", "n", "host", 2, 1, "1.3.0")


class FakeCluster:
    """A cluster of one nsqd that counts how often it was asked."""

    def __init__(self) -> None:
        self.settings = AdminSettings(nsqd_http_addresses=("n:1",), refresh_interval=0.01,
                                      request_timeout=1.0, connect_timeout=1.0)
        self.rounds = 0
        self.is_down = False
        self.at = time.monotonic  # when an answer came

    def recent_nodes(self, progressive: bool = False) -> Nodes:
        """The nsqd, or nobody knows."""
        if self.is_down:
            raise UpstreamError("nsqd", [Failure("nsqd", "n:1", "refused")])
        return Nodes((NODE,), ())

    def counters(self, nodes):
        """A topic with as many messages as rounds."""
        self.rounds += 1
        topics = [{"topic_name": "t", "message_count": self.rounds, "channels": []}]
        return {node: Answer({"topics": topics}, self.at()) for node in nodes}, []


@pytest.fixture
def cluster() -> FakeCluster:
    """A fake."""
    return FakeCluster()


@pytest.fixture
def running(leak_guard: None, cluster: FakeCluster) -> Iterator[Collector]:
    """A collector on it."""
    found = Collector(cluster)
    yield found
    found.close()


def test_the_first_question_waits_for_a_round(running, cluster):
    """Who opens a page gets numbers, not an empty table."""
    assert running.overview().rows["t"].messages >= 1


def test_it_rests_when_nobody_looks(running, cluster, monkeypatch):
    """After the last question it asks nothing more; the next one finds fresh numbers."""
    monkeypatch.setattr(collector, "_INTEREST", 0.0)
    before = running.overview(0.0).serial
    rounds = cluster.rounds
    assert not threading.Event().wait(0.3) and cluster.rounds <= rounds + 1
    assert running.overview(0.0).serial > before


def test_it_goes_on_while_somebody_looks(running):
    """Rounds follow each other without a question for each."""
    first = running.overview().serial
    wait_until(lambda: running.overview().serial >= first + 3)


def test_whom_it_knew_it_still_knows(running, cluster):
    """When nobody can say where the nsqds are, those of before are asked; the failure is told."""
    running.overview()
    cluster.is_down = True
    found = wait_until(lambda: running.overview() if running.overview().failures else None)
    assert found.failures[0].reason == "refused" and "t" in found.rows


def test_a_costly_round_is_followed_by_a_longer_rest(running, cluster, monkeypatch):
    """The time between rounds grows with the processor time that one takes."""
    clock = iter(range(1000))
    monkeypatch.setattr(collector.time, "process_time", lambda: next(clock) * 0.1)
    assert running.overview().interval == pytest.approx(0.1 * 33.0)


def test_a_change_is_seen_soon(running, cluster, monkeypatch):
    """After an action the next round does not wait for its time."""
    cluster.settings = AdminSettings(nsqd_http_addresses=("n:1",), refresh_interval=500.0)
    serial = running.overview().serial
    running.ask_soon()
    wait_until(lambda: running.overview().serial > serial)


def test_rates_are_between_the_times_of_answers(running, cluster):
    """One message a round, and answers that came 2 s apart, whenever the rounds ended."""
    clock = iter(range(100, 10_000, 2))
    cluster.at = lambda: float(next(clock))
    wait_until(lambda: running.overview().serial >= 3)
    assert running.overview().rows["t"].rate == 0.5
