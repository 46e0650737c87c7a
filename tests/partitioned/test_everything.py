"""Producers and a consumer at once, while leaders move, crash and hang.

At length, with the times of a real cluster: ``python -m benchmarks.partition_failures``.
"""

import runpy
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.partition_failures import Load, run
from nsqclient import Config
from nsqclient.devserver import PartitionedCluster
from nsqclient.partitioned import Consumer, Producer
from nsqclient.protocol.partitioned.sharding import murmur3

PARTITIONS = 6
CONFIG = Config(lookupd_poll_interval=0.5, publish_timeout=120.0, partition_try_timeout=0.5)


def move_leaders(cluster, load):
    for partition in range(PARTITIONS):
        load.wait_for_more(5, 120.0)
        cluster.begin_move("t", partition)
        threading.Event().wait(0.1)
        cluster.finish_move("t", partition)


@pytest.mark.long
def test_each_key_stays_in_order_while_leaders_move(leak_guard):
    """Publishes ride out the time without a leader; consumption follows the new ones."""
    handled = defaultdict(list)  # key -> (number, partition) of each message

    def handler(message):
        # Partitions are handled side by side, the messages of one never are.
        key, number = message.body.decode().split()
        handled[key].append((int(number), message.partition))

    with PartitionedCluster(3, 2, msg_timeout=2.0) as cluster:
        cluster.create_topic("t", PARTITIONS, replicas=2, ordered=True, channels=["c"])
        lookupds = cluster.lookupd_http_addresses
        with Producer(lookupd_http_addresses=lookupds, config=CONFIG) as producer, Consumer(
            "t", "c", handler, lookupd_http_addresses=lookupds, ordered=True, workers=4,
            config=CONFIG,
        ):
            load = Load(producer, 200)
            try:
                move_leaders(cluster, load)
            finally:
                load.end()
            cluster.wait_until_empty("t", "c", timeout=200.0)
    assert load.errors == [] and len(handled) == len(load.counts)
    for key, entries in handled.items():
        assert {partition for _, partition in entries} == {murmur3(key, PARTITIONS)}
        numbers = [number for number, _ in entries]
        assert list(dict.fromkeys(numbers)) == list(range(1, load.counts[key] + 1))
        # A message that comes again comes before any later one: the order is never broken.
        assert numbers == sorted(numbers)


@pytest.mark.long
def test_ten_failures_lose_nothing_and_keep_the_order_of_each_key():
    """Crashes and hangs in turn, 100 times as fast as on a real cluster."""
    result = run(scale=0.01, rate=200, failures=10, timeout=120.0)
    assert [row.name for row in result.rows].count("hang of a leader") >= 2
    assert len(result.rows) == 10
    assert result.errors == []
    assert result.lost == 0 and result.out_of_order == 0
    assert result.published == result.stored


def test_the_example_keeps_the_order(capsys):
    path = Path(__file__).resolve().parents[2] / "examples" / "ordered.py"
    runpy.run_path(str(path), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"order-{n} placed -> paid -> shipped" for n in range(1, 5)]
