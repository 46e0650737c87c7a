"""What crashes and hangs of a partitioned cluster do to publishes with keys.

``python -m benchmarks.partition_failures [--scale 0.1] [--rate 200] [--failures 10]``. The embedded
cluster (3 nsqds, 2 nsqlookupds, one topic of 6 partitions and 2 replicas) crashes and hangs while
threads publish messages with keys; after each failure it recovers in the times of a real cluster,
multiplied by the scale. One line for each failure: the longest publish to a partition that
the failure concerns, and the longest one to all others.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from nsqclient import Config
from nsqclient.devserver import PartitionedCluster
from nsqclient.partitioned import Producer
from nsqclient.protocol.partitioned.sharding import murmur3

_PARTITIONS = 6
_KEYS = [f"key-{number}" for number in range(16)]
_NSQDS = 3
#: Seconds from a crash until a real cluster (0.3.7-HA) lists new leaders for readers, until they
#: serve, and until the nsqd is dropped as a replica; and from a restart until the nsqd serves.
_NEW_LEADER_LISTED, _NEW_LEADER_SERVES, _REPLICA_DROPPED, _NODE_REJOINS = 34.0, 38.0, 46.0, 72.0


class Publish(NamedTuple):
    """One publish that ended: when it began, on time.monotonic(), and how long it took."""

    partition: int
    began: float
    took: float


class Row(NamedTuple):
    """One failure."""

    name: str
    concerned: float  #: longest publish to a partition that it concerns, in seconds
    others: float  #: longest publish to any other partition


@dataclass
class Result:
    """The result of a run."""

    rows: list[Row] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    published: int = 0  #: messages whose publish returned
    stored: int = 0  #: different messages in the partitions
    lost: int = 0
    repeated: int = 0  #: stored more than once
    out_of_order: int = 0  #: messages whose first copy is behind a later one of its key


class Load:
    """A thread for each key publishes numbers, all together at a rate."""

    def __init__(self, producer: Producer, rate: float) -> None:
        self._producer = producer
        self._pause = len(_KEYS) / rate
        self._over = threading.Event()
        self.counts = dict.fromkeys(_KEYS, 0)
        self.publishes: list[Publish] = []
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._run, args=(key,)) for key in _KEYS]
        for thread in self._threads:
            thread.start()

    def _run(self, key: str) -> None:
        partition = murmur3(key, _PARTITIONS)
        while not self._over.wait(self._pause):
            began = time.monotonic()
            try:
                self._producer.publish("t", f"{key} {self.counts[key] + 1}".encode(), key=key)
            except Exception as exc:
                self.errors.append(exc)
                return
            self.counts[key] += 1
            self.publishes.append(Publish(partition, began, time.monotonic() - began))

    def wait_for_more(self, messages: int, timeout: float) -> None:
        """Wait until each key has ``count`` more messages."""
        wanted = {key: count + messages for key, count in self.counts.items()}
        until = time.monotonic() + timeout
        while any(self.counts[key] < wanted[key] for key in _KEYS) and not self.errors:
            if time.monotonic() > until:
                raise TimeoutError(f"no more messages within {timeout:g} s: {self.counts}")
            self._over.wait(0.01)

    def end(self) -> None:
        """Ask the process to end, without waiting."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def longest(self, since: float, partitions: set[int]) -> float:
        """Return the longest publish to these partitions that ended after a time."""
        return max((one.took for one in list(self.publishes)
                    if one.partition in partitions and one.began + one.took >= since), default=0.0)


def run(scale: float, rate: float, failures: int, timeout: float) -> Result:
    """Crash and hang nsqds in turn under load; return the result.

    Args:
        scale: of the times of a real cluster.
        rate: messages a second.
        timeout: seconds of one publish, and of one recovery.
    """
    result = Result()
    config = Config(publish_timeout=timeout, partition_try_timeout=max(0.3, 3 * scale))
    with PartitionedCluster(_NSQDS, 2) as cluster:
        cluster.create_topic("t", _PARTITIONS, replicas=2, ordered=True, channels=["c"])
        with Producer(
            lookupd_http_addresses=cluster.lookupd_http_addresses, config=config
        ) as producer:
            load = Load(producer, rate)
            try:
                for number in range(failures):
                    load.wait_for_more(3, timeout)
                    result.rows.append(_fail(cluster, load, number, scale, timeout))
                load.wait_for_more(3, timeout)
            finally:
                load.end()
        _compare(cluster, load, result)
    return result


def _fail(
    cluster: PartitionedCluster, load: Load, number: int, scale: float, timeout: float
) -> Row:
    """Let one failure happen, and wait for its end."""
    everything = set(range(_PARTITIONS))
    began = time.monotonic()
    if number % 2:
        used = sorted({murmur3(key, _PARTITIONS) for key in _KEYS})
        partition = used[number // 2 % len(used)]
        cluster.hang("t", partition)
        threading.Event().wait(_REPLICA_DROPPED * scale)
        cluster.hang("t", partition, False)
        name, concerned = "hang of a leader", {partition}
    else:
        # Each nsqd leads partitions and has copies of others; both kinds are concerned.
        nsqd = number // 2 % _NSQDS
        led = {one for one in everything if cluster.leader_of("t", one) == nsqd}
        copied = {one for one in everything if (one % _NSQDS + 1) % _NSQDS == nsqd}
        cluster.crash(nsqd)
        threading.Event().wait(_NEW_LEADER_LISTED * scale)
        cluster.take_over(nsqd, writable=False)
        threading.Event().wait((_NEW_LEADER_SERVES - _NEW_LEADER_LISTED) * scale)
        cluster.take_over(nsqd)
        load.wait_for_more(1, timeout)
        threading.Event().wait(_NODE_REJOINS * scale)
        cluster.restart(nsqd)
        name, concerned = "crash of a leader and replica", led | copied | {
            one for one in everything if one % _NSQDS == nsqd}
    load.wait_for_more(1, timeout)
    return Row(name, load.longest(began, concerned), load.longest(began, everything - concerned))


def _compare(cluster: PartitionedCluster, load: Load, result: Result) -> None:
    """Count messages that are lost, stored twice, or behind a later message of their key."""
    result.errors = load.errors
    result.published = sum(load.counts.values())
    numbers: dict[str, list[int]] = {key: [] for key in _KEYS}
    for partition in range(_PARTITIONS):
        for body in cluster.messages("t", partition):
            key, number = body.decode().split()
            numbers[key].append(int(number))
    for key, found in numbers.items():
        firsts = list(dict.fromkeys(found))
        result.stored += len(firsts)
        result.repeated += len(found) - len(firsts)
        result.lost += len(set(range(1, load.counts[key] + 1)).difference(firsts))
        result.out_of_order += sum(
            first > second for first, second in zip(firsts, firsts[1:]))


def main(argv: list[str] | None = None) -> int:
    """Run it, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--failures", type=int, default=10)
    options = parser.parse_args(argv)
    result = run(options.scale, options.rate, options.failures, 600.0)
    print(f"{'failure':32} {'longest there':>14} {'longest elsewhere':>18}")
    for row in result.rows:
        print(f"{row.name:32} {row.concerned:12.2f} s {row.others:16.2f} s")
    print(f"published {result.published}, lost {result.lost}, out of order {result.out_of_order},"
          f" stored again {result.repeated}, errors {len(result.errors)}")
    return 1 if result.errors or result.lost or result.out_of_order else 0


if __name__ == "__main__":
    sys.exit(main())
