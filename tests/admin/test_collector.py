"""The collector refreshes its numbers while pages are open, and pauses otherwise."""

import threading
import time
from collections.abc import Iterator

import pytest

from nsqclient.admin import AdminSettings, collector
from nsqclient.admin.collector import Collector, PageCache
from nsqclient.cluster.ask_all import Failure, UpstreamError
from nsqclient.cluster.cluster import Node, Nodes
from tests.support.waiting import wait_until

NODE = Node("n:1", "n:1", "n:2", "n", "host", 2, 1, "1.3.0")


class FakeCluster:
    """A cluster of one nsqd that counts its requests."""

    def __init__(self) -> None:
        self.settings = AdminSettings(nsqd_http_addresses=("n:1",), refresh_interval=0.01,
                                      request_timeout=1.0, connect_timeout=1.0)
        self.rounds = 0
        self.is_down = False
        self.at = time.monotonic  # when an answer came

    def recent_nodes(self, progressive: bool = False) -> Nodes:
        if self.is_down:
            raise UpstreamError("nsqd", [Failure("nsqd", "n:1", "refused")])
        return Nodes((NODE,), ())

    def each(self, nodes, call, progressive):
        """A topic with as many messages as rounds."""
        self.rounds += 1
        topics = [{"topic_name": "t", "message_count": self.rounds, "channels": []}]
        return {node: ({"topics": topics}, self.at()) for node in nodes}, []


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def running(leak_guard: None, cluster: FakeCluster) -> Iterator[Collector]:
    found = Collector(cluster, cluster.settings)
    yield found
    found.close()


def test_rounds_pause_when_no_page_is_open(running, cluster, monkeypatch):
    monkeypatch.setattr(collector, "_KEEP_ALIVE", 0.0)
    before = running.overview(0.0).serial
    rounds = cluster.rounds
    assert not threading.Event().wait(0.3) and cluster.rounds <= rounds + 1
    assert running.overview(0.0).serial > before


def test_nodes_are_kept_while_nsqlookupds_fail(running, cluster):
    running.overview()
    cluster.is_down = True
    found = wait_until(lambda: running.overview() if running.overview().failures else None)
    assert found.failures[0].reason == "refused" and "t" in found.rows


def test_an_expensive_round_is_followed_by_a_longer_pause(running, cluster, monkeypatch):
    """The interval grows with processor time that came twice."""
    clock = iter(range(1000))
    monkeypatch.setattr(collector.time, "process_time", lambda: next(clock) * 0.1)
    intervals = []
    for serial in range(1, 4):
        wait_until(lambda: running.overview().serial >= serial)
        intervals.append(running.overview().interval)
        running.refresh_soon()
    assert intervals[0] == 0.01 and intervals[-1] == pytest.approx(0.1 * 33.0)


def test_an_expensive_round_is_followed_by_the_next_one_soon_if_an_answer_is_on_its_way(
    running, cluster, monkeypatch
):
    """A page without any numbers gets them with the next round, which is soon."""
    clock = iter(range(1000))
    monkeypatch.setattr(collector.time, "process_time", lambda: next(clock) * 0.1)
    waiting = Failure("nsqd", "n:1", "waiting for its answer", is_waiting=True)
    monkeypatch.setattr(cluster, "each", lambda *_, **__: ({}, [waiting]))
    assert running.overview().interval == 0.01


def test_a_change_starts_a_round_at_once(running, cluster, monkeypatch):
    running._settings = AdminSettings(nsqd_http_addresses=("n:1",), refresh_interval=500.0)
    serial = running.overview().serial
    running.refresh_soon()
    wait_until(lambda: running.overview().serial > serial)


def test_rates_use_the_times_of_the_answers(running, cluster):
    """One message a round, and answers 2 s apart: 0.5 a second, whenever the rounds ended."""
    clock = iter(range(100, 10_000, 2))
    cluster.at = lambda: float(next(clock))
    wait_until(lambda: running.overview().serial >= 3)
    assert running.overview().rows["t"].rate == 0.5


def test_rounds_go_on_after_an_exception(running, cluster, monkeypatch, caplog):
    running.overview()
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "each", lambda *_, **__: 1 / 0)
        wait_until(lambda: running.overview().rows and "ZeroDivisionError" in caplog.text)
    assert "collecting statistics failed; the collector continues" in caplog.text
    serial = running.overview().serial
    wait_until(lambda: running.overview().serial > serial)


# -- answers that pages share


def test_an_answer_is_kept_until_the_data_changes():
    cache = PageCache()
    cache.put("/a", 1, b"one")
    assert cache.get("/a", 1) == b"one" and cache.get("/a", 2) is None
    cache.put("/b", 2, b"two")
    assert cache.get("/a", 1) is None and cache.get("/a", 2) is None


def test_the_size_of_all_answers_is_limited(monkeypatch):
    """Beyond the limit an answer is not kept; paths and empty answers count too."""
    monkeypatch.setattr(collector, "_MOST_BYTES", 1000)
    cache = PageCache()
    for number in range(9):
        cache.put(f"/{number}", 1, b"")
    assert [number for number in range(9) if cache.get(f"/{number}", 1) == b""] == [0, 1, 2, 3]
    cache.put("/9", 2, b"x" * 500)
    cache.put("/long" * 100, 2, b"")
    assert cache.get("/9", 2) and cache.get("/long" * 100, 2) is None
