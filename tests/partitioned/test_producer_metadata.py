"""MetadataCache by value: its waits while nsqlookupds hang, and repeated requests."""

import threading
from collections import deque

import pytest

from nsqclient import Config
from nsqclient.errors import DiscoveryError
from nsqclient.protocol.partitioned.lookup_table import TopicMeta, TopicRoutes
from nsqclient.partitioned import metadata
from nsqclient.partitioned.discovery import RoutesResult
from nsqclient.partitioned.metadata import MetadataCache
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until

WAIT = 30.0


def answer(nsqd, *lookupds):
    """The answer of an nsqlookupd: a partition, its leader, other nsqlookupds."""
    routes = TopicRoutes(partitions={0: nsqd}, meta=TopicMeta(1), is_partitioned=True)
    return RoutesResult(routes, tuple((lookupd, lookupd == "a:1") for lookupd in lookupds))


class Cluster:
    """Nsqlookupds whose answers, failures and silences a test sets."""

    def __init__(self):
        self.answers = {}
        self.hanging = set()
        self.release = threading.Event()
        self.asked = deque()

    def lookup(self, lookupd, topic, access, config):
        self.asked.append((lookupd, topic))
        if lookupd in self.hanging:
            self.release.wait(WAIT)
        found = self.answers.get(lookupd, DiscoveryError(lookupd, "refused"))
        if isinstance(found, Exception):
            raise found
        return found

    def count(self, lookupd):
        return [asked for asked, _ in self.asked].count(lookupd)


@pytest.fixture
def cluster(monkeypatch):
    cluster = Cluster()
    monkeypatch.setattr(metadata, "lookup_routes", cluster.lookup)
    return cluster


@pytest.fixture
def caches(cluster, leak_guard):
    """Make caches that are stopped after the test: ``caches("a:1", "b:1")``."""
    made = []

    def make(*lookupds):
        made.append(MetadataCache(list(lookupds), Config()))
        return made[-1]

    yield make
    cluster.release.set()
    for cache in made:
        cache.stop(Deadline(0.0))
        wait_until(lambda: not cache.stop(Deadline(WAIT)))


def leader(cache, topic="t"):
    return cache.routes(topic, Deadline(WAIT)).partitions.get(0)


@pytest.mark.parametrize("is_listed", [False, True])
def test_the_first_answer_decides_while_another_nsqlookupd_hangs(cluster, caches, is_listed):
    cluster.answers["b:1"] = answer("n:1", "a:1", "b:1")
    cluster.hanging.add("a:1")
    cache = caches("b:1") if is_listed else caches("a:1", "b:1")
    assert leader(cache) == "n:1"
    assert not cluster.release.is_set()
    wait_until(lambda: cluster.count("a:1") == 1)


def test_a_refresh_asks_the_others_again_while_one_hangs(cluster, caches):
    cluster.answers["b:1"] = answer("n:1")
    cluster.hanging.add("a:1")
    cache = caches("a:1", "b:1")
    assert leader(cache) == "n:1"
    for number in range(2, 5):
        cluster.answers["b:1"] = answer(f"n:{number}")
        cache.refresh("t", Deadline(WAIT))
        assert leader(cache) == f"n:{number}"
    assert cluster.count("a:1") == 1 and not cluster.release.is_set()


def test_a_refresh_waits_for_an_answer_to_a_later_request(cluster, caches):
    cluster.answers["a:1"] = answer("n:1")
    cache = caches("a:1")
    assert leader(cache) == "n:1"
    cluster.hanging.add("a:1")
    cache.refresh("t")
    wait_until(lambda: cluster.count("a:1") == 2)
    waits = threading.Thread(target=cache.refresh, args=("t", Deadline(WAIT)))
    waits.start()
    wait_until(lambda: cache._topics["t"].poller._again)
    cluster.release.set()
    waits.join(WAIT)
    assert cluster.count("a:1") == 3


def test_a_hung_nsqlookupd_occupies_one_thread_however_many_topics_there_are(cluster, caches):
    cluster.answers["b:1"] = answer("n:1")
    cluster.hanging.add("a:1")
    cache = caches("a:1", "b:1")
    assert {leader(cache, f"t{number}") for number in range(20)} == {"n:1"}
    assert cluster.count("a:1") == 1
    cluster.release.set()
    wait_until(lambda: cluster.count("a:1") == 20)


def test_the_old_answer_of_a_hung_nsqlookupd_gives_way(cluster, caches, monkeypatch):
    """The leading nsqlookupd has named an nsqd that crashed later."""
    monkeypatch.setattr(metadata, "LATE_AFTER", 0.0)
    cluster.answers = {"a:1": answer("n:1", "a:1", "b:1"), "b:1": answer("n:1", "a:1", "b:1")}
    cache = caches("a:1", "b:1")
    wait_until(lambda: leader(cache) == "n:1" and cluster.count("a:1") and cluster.count("b:1"))
    cluster.hanging.add("a:1")
    cluster.answers["b:1"] = answer("n:2", "a:1", "b:1")
    cache.refresh("t", Deadline(WAIT))
    wait_until(lambda: leader(cache) == "n:2")


def test_an_nsqlookupd_that_has_not_answered_yet_may_know_more(cluster, caches, monkeypatch):
    cluster.answers["b:1"] = answer("n:1")
    cluster.hanging.add("a:1")
    cache = caches("a:1", "b:1")
    assert leader(cache) == "n:1" and cache.may_learn_more("t")
    monkeypatch.setattr(metadata, "LATE_AFTER", 0.0)
    assert not cache.may_learn_more("t")


def test_without_any_answer_the_last_failure_is_raised(cluster, caches):
    cache = caches("a:1", "b:1")
    with pytest.raises(DiscoveryError, match="refused"):
        cache.routes("t", Deadline(WAIT))


def test_at_the_deadline_it_is_said_that_none_has_answered(cluster, caches):
    cluster.hanging.add("a:1")
    cache = caches("a:1")
    with pytest.raises(DiscoveryError, match="no answer yet"):
        cache.routes("t", Deadline(0.05))
