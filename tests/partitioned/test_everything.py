"""Producers and a consumer at once, while leaders move: each key in order, nothing lost."""

from __future__ import annotations

import runpy
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from nsqclient import Config, Consumer, Producer
from nsqclient.partitioned.sharding import murmur3

PARTITIONS = 8
PUBLISHERS = 4
KEYS = 40
MESSAGES = 50  # of each key


@pytest.mark.long
def test_each_key_stays_in_order_while_leaders_move(cluster):
    """2,000 keyed messages over 8 partitions, 4 publishers, a leader moves every 0.3 s."""
    cluster.create_topic("t", PARTITIONS, replicas=2, ordered=True, channels=["c"])
    handled = defaultdict(list)  # key -> (number, partition) of each message
    config = Config(lookupd_poll_interval=0.5, lookupd_poll_timeout=5.0, publish_timeout=60.0)

    def handler(message):
        key, _, number = message.body.partition(b":")
        # Partitions are handled side by side, the messages of one never are.
        handled[key].append((int(number), message.partition))

    failures = []

    def publish(first):
        # Each key belongs to one publisher: only then do its messages have an order.
        keys = [b"key-%d" % key for key in range(first, KEYS, PUBLISHERS)]
        try:
            for number in range(MESSAGES):
                for key in keys:
                    producer.publish("t", b"%b:%d" % (key, number), key=key)
        except Exception as exc:
            failures.append(exc)

    lookupds = cluster.lookupd_http_addresses
    with Producer(lookupd_http_addresses=lookupds, config=config) as producer, Consumer(
        "t", "c", handler, lookupd_http_addresses=lookupds, ordered=True, workers=4, config=config,
    ):
        threads = [threading.Thread(target=publish, args=(first,)) for first in range(PUBLISHERS)]
        for thread in threads:
            thread.start()
        moves = 0
        waiting = threading.Event()
        while any(thread.is_alive() for thread in threads) or moves < 3:
            waiting.wait(0.3)
            partition = moves % PARTITIONS
            cluster.begin_move("t", partition)
            waiting.wait(0.1)
            cluster.finish_move("t", partition)
            moves += 1
        for thread in threads:
            thread.join()
        # A message that was lost with its connection comes again after msg_timeout, 60 s.
        cluster.wait_until_empty("t", "c", timeout=200.0)
    assert failures == [] and len(handled) == KEYS
    for key, entries in handled.items():
        assert {partition for _, partition in entries} == {murmur3(key, PARTITIONS)}
        numbers = [number for number, _ in entries]
        assert list(dict.fromkeys(numbers)) == list(range(MESSAGES))
        # A message that comes again comes before any later one: the order is never broken.
        assert numbers == sorted(numbers)


def test_the_example_keeps_the_order(capsys):
    path = Path(__file__).resolve().parents[2] / "examples" / "ordered.py"
    runpy.run_path(str(path), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"order-{n} placed -> paid -> shipped" for n in range(1, 5)]
