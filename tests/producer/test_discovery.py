"""Looking for the nsqds of a cluster."""

import threading
import time

import pytest

from nsqclient.config import Config
from nsqclient.errors import DiscoveryError
from nsqclient.producer import discovery as module
from nsqclient.producer.discovery import NodeDiscovery
from nsqclient.producer.timer import PoolTimer
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until

WAIT = 10.0
SOON = Config(lookupd_poll_interval=0.05, lookupd_poll_jitter=0.0)


class Known:
    """Stands in for NodePool: records its calls."""

    def __init__(self):
        self.addresses = set()
        self.discovery_error = None
        self.timer = PoolTimer(lambda now: now + 1.0)

    def set_addresses(self, named):
        self.addresses = {address for addresses in named.values() for address in addresses}


class Cluster:
    """Answers for nsqlookupds, without any."""

    def __init__(self, monkeypatch):
        self.answers = {}
        self.asked = []
        monkeypatch.setattr(module, "lookup_nodes", self._nodes)

    def _nodes(self, lookupd, config):
        self.asked.append(lookupd)
        answer = self.answers[lookupd]
        if isinstance(answer, threading.Event):
            answer.wait(WAIT)
            return []
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def cluster(monkeypatch):
    return Cluster(monkeypatch)


@pytest.fixture
def discover():
    """Factory of Discoverers that are stopped after the test."""
    made = []

    def make(*lookupds, nsqds=(), config=SOON):
        nodes = Known()
        made.append((NodeDiscovery(list(lookupds), list(nsqds), config, nodes), nodes))
        nodes.timer.start()
        return made[-1]

    yield make
    for discoverer, nodes in made:
        assert discoverer.stop(Deadline(WAIT)) == []
        assert nodes.timer.stop(Deadline(WAIT))


def test_without_nsqlookupd_nothing_is_asked(discover, cluster):
    discoverer, _ = discover()
    assert discoverer.stop(Deadline(WAIT)) == [] and cluster.asked == []


def test_where_no_thread_can_be_started_it_is_tried_again(discover, cluster, no_thread, caplog):
    cluster.answers = {"a": ["x:1"], "b": ["y:1"]}
    with no_thread("nsq-background-2"):
        _, nodes = discover("a", "b")
        wait_until(lambda: "a thread to ask" in caplog.text)
    wait_until(lambda: nodes.addresses == {"x:1", "y:1"})


def test_answers_are_merged(discover, cluster):
    cluster.answers = {"a": ["x:1", "y:1"], "b": ["y:1", "z:1"]}
    discoverer, nodes = discover("a", "b", nsqds=["own:1"])
    wait_until(lambda: nodes.addresses == {"x:1", "y:1", "z:1", "own:1"})


def test_it_asks_again_and_again(discover, cluster):
    """A later answer replaces the earlier one; an empty one does not: it may have restarted."""
    cluster.answers = {"a": ["x:1"]}
    discoverer, nodes = discover("a")
    wait_until(lambda: nodes.addresses == {"x:1"})
    cluster.answers = {"a": []}
    seen = len(cluster.asked)
    wait_until(lambda: len(cluster.asked) > seen + 1)
    assert nodes.addresses == {"x:1"}
    cluster.answers = {"a": ["y:1"]}
    wait_until(lambda: nodes.addresses == {"y:1"})


def test_an_nsqlookupd_that_fails_is_asked_again_soon(discover, cluster):
    error = DiscoveryError("a", "refused")
    cluster.answers = {"a": error}
    discoverer, nodes = discover("a", config=Config(lookupd_poll_interval=60))
    wait_until(lambda: len(cluster.asked) > 1)
    assert nodes.discovery_error is error
    cluster.answers = {"a": ["x:1"]}
    wait_until(lambda: nodes.addresses == {"x:1"})


def test_an_nsqlookupd_that_hangs_delays_no_other_and_is_asked_once(discover, cluster):
    release = threading.Event()
    cluster.answers = {"hangs": release, "a": ["x:1"]}
    discoverer, nodes = discover("hangs", "a")
    wait_until(lambda: cluster.asked.count("a") > 3)
    assert nodes.addresses == {"x:1"} and cluster.asked.count("hangs") == 1
    began = time.monotonic()
    assert len(discoverer.stop(Deadline(WAIT))) == 1
    assert time.monotonic() - began < 4
    release.set()
