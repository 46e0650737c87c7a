"""The collector asks the servers when a page needs newer numbers; pages share answers."""

import threading
import time
from collections.abc import Iterator

import pytest

from nsqclient.admin import collector
from nsqclient.admin.collector import Collector, PageCache
from nsqclient.admin.lost_nodes import LostNodes
from nsqclient.cluster.ask_all import Failure, UpstreamError
from nsqclient.cluster.cluster import Node, Nodes

NODE = Node("n:1", "n:1", "n:2", "n", "host", 2, 1, "1.3.0")


class FakeCluster:
    """A cluster of one nsqd that counts its requests."""

    def __init__(self) -> None:
        self.rounds = 0
        self.is_down = False
        self.at = time.monotonic  # when an answer came
        self.begun = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def recent_nodes(self, progressive: bool = False) -> Nodes:
        if self.is_down:
            raise UpstreamError("nsqd", [Failure("nsqd", "n:1", "refused")])
        return Nodes((NODE,), ())

    def each(self, nodes, call, progressive):
        """A topic with as many messages as rounds."""
        self.begun.release()
        assert self.may_answer.wait(60)
        self.rounds += 1
        topics = [{"topic_name": "t", "message_count": self.rounds, "channels": []}]
        return {node: ({"topics": topics}, self.at()) for node in nodes}, []


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    found = FakeCluster()
    yield found
    found.may_answer.set()


def collector_of(cluster, interval=0.0):
    return Collector(cluster, LostNodes(), interval)


def test_numbers_are_kept_for_one_interval(cluster):
    """Without a page no server is asked."""
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
    assert seen.failures[0].reason == "refused" and "t" in seen.rows


def test_a_page_does_not_wait_for_the_round_of_another_page(cluster, leak_guard):
    """It shows the numbers of before; but after a change it waits."""
    found = collector_of(cluster)
    first = found.overview()
    assert cluster.begun.acquire(timeout=60)
    cluster.may_answer.clear()
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(found.overview().serial))]
    threads[0].start()
    assert cluster.begun.acquire(timeout=60)
    assert found.overview() is first
    found.refresh()
    threads.append(threading.Thread(target=lambda: seen.append(found.overview().serial)))
    threads[1].start()
    cluster.may_answer.set()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [2, 3]


def test_rates_use_the_times_of_the_answers(cluster):
    """One message a round, and answers 2 s apart: 0.5 a second, whenever the rounds ended."""
    clock = iter(range(100, 10_000, 2))
    cluster.at = lambda: float(next(clock))
    found = collector_of(cluster)
    assert [found.overview().rows["t"].rate for _ in range(3)] == [None, 0.5, 0.5]


# -- answers that pages share


def test_an_answer_is_kept_for_some_seconds():
    cache = PageCache(500.0)
    cache.put("/a", b"one")
    assert cache.get("/a") == b"one" and cache.get("/b") is None
    cache.clear()
    assert cache.get("/a") is None
    short = PageCache(0.0)
    short.put("/a", b"one")
    assert short.get("/a") is None


def test_the_size_of_all_answers_is_limited(monkeypatch):
    """The oldest go; paths and empty answers count too."""
    monkeypatch.setattr(collector, "_MOST_BYTES", 1000)
    cache = PageCache(500.0)
    for number in range(9):
        cache.put(f"/{number}", b"")
    assert [number for number in range(9) if cache.get(f"/{number}") == b""] == [5, 6, 7, 8]
    cache.put("/long" * 200, b"")
    assert [number for number in range(9) if cache.get(f"/{number}") == b""] == []
