"""A leader crashes, and the cluster recovers by itself, as a real one and faster."""

from __future__ import annotations

from collections import defaultdict

import pytest

from benchmarks.partition_failures import Load
from nsqclient import Config, Consumer, Producer
from nsqclient.devserver import PartitionedCluster
from nsqclient.discovery import lookup_nodes
from tests.support.waiting import wait_until

CONFIG = Config(publish_timeout=120.0, partition_try_timeout=0.5)


@pytest.fixture
def cluster(leak_guard):
    """Elections take two seconds instead of 38."""
    with PartitionedCluster(3, 2, recovery_scale=0.05) as running:
        running.create_topic("t", 3, replicas=2, ordered=True, channels=["c"])
        yield running


@pytest.mark.long
def test_nothing_is_lost_and_the_order_kept_while_leaders_crash_and_return(cluster):
    """Publishes ride out the election in their time; consumption follows the new leaders."""
    got = defaultdict(list)

    def handle(message):
        key, number = message.body.decode().split()
        got[key].append(int(number))

    lookupds = cluster.lookupd_http_addresses
    with Producer(lookupd_http_addresses=lookupds, config=CONFIG) as producer, Consumer(
        "t", "c", handle, ordered=True, workers=3, config=CONFIG, lookupd_http_addresses=lookupds,
    ):
        load = Load(producer, 200)
        try:
            for nsqd in (0, 1):
                load.wait_for_more(5, 120.0)
                cluster.crash(nsqd)
                load.wait_for_more(5, 120.0)
                cluster.restart(nsqd)
                load.wait_for_more(5, 120.0)
                wait_until(lambda: len(lookup_nodes(lookupds[0], CONFIG)) == 3)
        finally:
            load.end()
        cluster.wait_until_empty("t", "c", timeout=120)
    assert load.errors == []
    for key, count in load.counts.items():
        firsts = list(dict.fromkeys(got[key]))  # redeliveries left out
        assert firsts == list(range(1, count + 1))
