"""A leader crashes, and the cluster recovers by itself, as a real one and faster."""

from __future__ import annotations

import threading

import pytest

from nsqclient import Config, Consumer, Producer
from nsqclient.devserver import PartitionedCluster
from nsqclient.discovery import lookup_nodes
from tests.support.waiting import wait_until

KEYS = [f"k{number}" for number in range(6)]
CONFIG = Config(publish_timeout=120.0, partition_try_timeout=0.5)


class Publishing:
    """One thread for each key; each publishes numbers until the end."""

    def __init__(self, producer):
        self._producer = producer
        self.errors = []
        self.counts = dict.fromkeys(KEYS, 0)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(key,)) for key in KEYS]
        for thread in self._threads:
            thread.start()

    def _run(self, key):
        while not self._over.wait(0.02):
            try:
                number = self.counts[key] + 1
                self._producer.publish("t", f"{key} {number}".encode(), key=key)
                self.counts[key] = number
            except Exception as exc:
                self.errors.append(exc)

    def wait_for_more(self, count):
        """Wait until each key has so many more messages."""
        wanted = {key: value + count for key, value in self.counts.items()}
        wait_until(lambda: all(self.counts[key] >= wanted[key] for key in KEYS), timeout=120)

    def end(self):
        self._over.set()
        for thread in self._threads:
            thread.join(150)


@pytest.fixture
def cluster(leak_guard):
    """Elections take two seconds instead of 38."""
    with PartitionedCluster(3, 2, recovery_scale=0.05) as running:
        running.create_topic("t", 3, replicas=2, ordered=True, channels=["c"])
        yield running


@pytest.mark.long
def test_nothing_is_lost_and_the_order_kept_while_leaders_crash_and_return(cluster):
    """Publishes ride out the election in their time; consumption follows the new leaders."""
    got = {key: [] for key in KEYS}

    def handle(message):
        key, number = message.body.decode().split()
        got[key].append(int(number))

    lookupds = cluster.lookupd_http_addresses
    with Producer(lookupd_http_addresses=lookupds, config=CONFIG) as producer, Consumer(
        "t", "c", handle, ordered=True, workers=3, config=CONFIG, lookupd_http_addresses=lookupds,
    ):
        publishing = Publishing(producer)
        try:
            for nsqd in (0, 1):
                publishing.wait_for_more(5)
                cluster.crash(nsqd)
                publishing.wait_for_more(5)
                cluster.restart(nsqd)
                publishing.wait_for_more(5)
                wait_until(lambda: len(lookup_nodes(lookupds[0], CONFIG)) == 3)
        finally:
            publishing.end()
        cluster.wait_until_empty("t", "c", timeout=120)
    assert publishing.errors == []
    for key in KEYS:
        firsts = list(dict.fromkeys(got[key]))  # redeliveries left out
        assert firsts == list(range(1, publishing.counts[key] + 1))
