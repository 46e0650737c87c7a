"""Looking for the nsqds of a cluster."""

from __future__ import annotations

import threading
import time

import pytest

from nsqclient.config import Config
from nsqclient.errors import DiscoveryError
from nsqclient.producer import discovery as module
from nsqclient.producer.discovery import NodeDiscovery
from nsqclient.runtime.deadline import Deadline
from tests.support.faults.interrupts import Interruption
from tests.support.waiting import wait_until

WAIT = 10.0
SOON = Config(lookupd_poll_interval=0.05, lookupd_poll_jitter=0.0)


class Known:
    """Stands in for NodePool: records its calls."""

    def __init__(self):
        self.addresses = set()
        self.discovery_error = None

    def set_addresses(self, named):
        """As NodePool.set_addresses."""
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
    """Nsqlookupds whose answers a test chooses."""
    return Cluster(monkeypatch)


@pytest.fixture
def discover():
    """Factory of Discoverers that are stopped after the test."""
    made = []

    def make(*lookupds, nsqds=(), config=SOON):
        nodes = Known()
        made.append(NodeDiscovery(list(lookupds), list(nsqds), config, nodes))
        return made[-1], nodes

    yield make
    for discoverer in made:
        assert discoverer.stop(Deadline(WAIT)) == []


def test_without_nsqlookupd_nothing_is_asked(discover, cluster):
    """No thread, no question."""
    discoverer, _ = discover()
    discoverer.start()
    assert discoverer.stop(Deadline(WAIT)) == [] and cluster.asked == []


@pytest.mark.parametrize("role", ["nsq-timer", "nsq-background-2"])
def test_a_thread_that_cannot_start_is_an_error_at_once(discover, cluster, no_thread, role):
    """The next publish tries again."""
    cluster.answers = {"a": ["x:1"], "b": ["y:1"]}
    discoverer, nodes = discover("a", "b")
    with no_thread(role), pytest.raises(RuntimeError, match="new thread"):
        discoverer.start()
    discoverer.start()
    wait_until(lambda: nodes.addresses == {"x:1", "y:1"})


def test_answers_are_merged(discover, cluster):
    """All nsqds that any nsqlookupd knows, and those that were given."""
    cluster.answers = {"a": ["x:1", "y:1"], "b": ["y:1", "z:1"]}
    discoverer, nodes = discover("a", "b", nsqds=["own:1"])
    discoverer.start()
    discoverer.start()
    wait_until(lambda: nodes.addresses == {"x:1", "y:1", "z:1", "own:1"})


def test_it_asks_again_and_again(discover, cluster):
    """A later answer replaces the earlier one; an empty one does not: it may have restarted."""
    cluster.answers = {"a": ["x:1"]}
    discoverer, nodes = discover("a")
    discoverer.start()
    wait_until(lambda: nodes.addresses == {"x:1"})
    cluster.answers = {"a": []}
    seen = len(cluster.asked)
    wait_until(lambda: len(cluster.asked) > seen + 1)
    assert nodes.addresses == {"x:1"}
    cluster.answers = {"a": ["y:1"]}
    wait_until(lambda: nodes.addresses == {"y:1"})


@pytest.mark.parametrize("error", [DiscoveryError("a", "refused"), RuntimeError("a bug")])
def test_an_nsqlookupd_that_fails_is_asked_again(discover, cluster, error):
    """An error is no end, and soon followed by another try while nobody is known."""
    cluster.answers = {"a": error}
    discoverer, nodes = discover("a")
    discoverer.start()
    wait_until(lambda: len(cluster.asked) > 1)
    assert nodes.discovery_error is error or "a bug" in str(nodes.discovery_error)
    cluster.answers = {"a": ["x:1"]}
    wait_until(lambda: nodes.addresses == {"x:1"})


def test_before_the_first_answer_it_asks_soon(discover, cluster):
    """With nobody known the poll interval is not waited for."""
    cluster.answers = {"a": DiscoveryError("a", "refused")}
    discoverer, _ = discover("a", config=Config(lookupd_poll_interval=60))
    discoverer.start()
    wait_until(lambda: len(cluster.asked) > 1)


def test_an_nsqlookupd_that_hangs_delays_no_other_and_is_asked_once(discover, cluster):
    """A silent nsqlookupd is not asked again; the others are, and stop() does not wait."""
    release = threading.Event()
    cluster.answers = {"hangs": release, "a": ["x:1"]}
    discoverer, nodes = discover("hangs", "a")
    discoverer.start()
    wait_until(lambda: cluster.asked.count("a") > 3)
    assert nodes.addresses == {"x:1"} and cluster.asked.count("hangs") == 1
    began = time.monotonic()
    assert len(discoverer.stop(Deadline(WAIT))) == 1
    assert time.monotonic() - began < 4
    release.set()


def test_a_first_publish_that_is_interrupted_anywhere_is_made_good_by_the_next(discover, cluster):
    """Wherever Ctrl-C comes in ``start()``: the next one asks, and no thread is left over."""
    cluster.answers = {"a": ["x:1"], "b": ["y:1"]}
    number = 0
    while True:
        discoverer, nodes = discover("a", "b", config=Config(lookupd_poll_interval=60))
        interruption = Interruption(number)
        try:
            with interruption:
                discoverer.start()
        except KeyboardInterrupt:
            pass
        discoverer.start()
        wait_until(lambda nodes=nodes: nodes.addresses == {"x:1", "y:1"})
        assert discoverer.stop(Deadline(WAIT)) == [], interruption.place
        if not interruption.has_come:
            break
        number += 1
    assert number > 10
