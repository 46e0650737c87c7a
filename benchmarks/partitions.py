"""How fast partitions are published to, side by side with raw sockets, on the embedded cluster.

``python -m benchmarks.partitions [--rounds 5] [--seconds 2]``. The cluster (3 nsqds, a topic of 6
partitions) runs in a process of its own. ``raw MPUB`` is the limit for asynchronous publishes: one
socket for each partition, MPUBs of 2000 messages that were built before, one under way on each.
``raw PUB`` is one socket and one publish after the other. Messages of 100 bytes; medians of
interleaved rounds: messages a second, and microseconds of processor time per message in the client
and in the cluster. On a machine with other work the latter are the figures to compare.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nsqclient import Config, Producer
from tests.support.servers.raw_client import RawClient

_PARTITIONS = 6
_PER_MPUB = 2000
_BODY = b"x" * 100
_CLUSTER = f"""
import sys
from nsqclient.devserver import PartitionedCluster
with PartitionedCluster(3, 1) as cluster:
    cluster.create_topic("t", {_PARTITIONS}, channels=[])
    print(*cluster.lookupd_http_addresses, *[one.tcp_address for one in cluster.nsqds], flush=True)
    sys.stdin.read()
"""


class Figures(NamedTuple):
    """One measurement: messages a second, and microseconds of processor time per message."""

    rate: float
    client: float
    cluster: float


def cpu_of(process: int) -> float:
    """Return the seconds of processor time that a process has used."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def cluster() -> Iterator[tuple[int, str, list[str]]]:
    """Run a cluster; give its process, the address of its nsqlookupd and those of its nsqds."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        lookupd, *nsqds = process.stdout.readline().split()
        yield process.pid, lookupd, nsqds
    finally:
        process.stdin.close()
        process.wait(30)


def in_threads(work: Callable[[int, float], int], threads: int, seconds: float) -> float:
    """Call ``work(number, until)`` in threads; return the messages of all together."""
    counts: list[int] = []
    began = time.monotonic()
    running = [threading.Thread(target=lambda n=n: counts.append(work(n, began + seconds)))
               for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts)


class Contest:
    """The ways to publish to one cluster, by name."""

    def __init__(self, lookupd: str, nsqds: list[str], seconds: float) -> None:
        self._nsqds, self._seconds = nsqds, seconds
        self.producer = Producer(lookupd_http_addresses=[lookupd], config=Config())
        self.producer.publish("t", _BODY)
        self.ways: dict[str, Callable[[], float]] = {
            "raw MPUB, a socket per partition": lambda: self._raw(_PER_MPUB, _PARTITIONS),
            "publish_async": lambda: self._asynchronous(False),
            "publish_async, 40 keys": lambda: self._asynchronous(True),
            "raw PUB, 1 socket": lambda: self._raw(1, 1),
            "publish, 1 thread": lambda: self._synchronous(1, False),
            "publish, 16 threads": lambda: self._synchronous(16, False),
            "publish with keys, 4 threads": lambda: self._synchronous(4, True),
            "publish with keys, 16 threads": lambda: self._synchronous(16, True),
        }

    def _raw(self, messages: int, sockets: int) -> float:
        sized = len(_BODY).to_bytes(4, "big") + _BODY
        body = messages.to_bytes(4, "big") + sized * messages

        def work(partition: int, until: float) -> int:
            command = b"PUB t %d\n" % partition + sized
            if messages > 1:
                command = b"MPUB t %d\n" % partition + len(body).to_bytes(4, "big") + body
            count = 0
            with RawClient(self._nsqds[partition % len(self._nsqds)]) as client:
                while time.monotonic() < until:
                    client.ask(command)
                    count += messages
            return count

        return in_threads(work, sockets, self._seconds)

    def _synchronous(self, threads: int, has_keys: bool) -> float:
        def work(number: int, until: float) -> int:
            count = 0
            while time.monotonic() < until:
                key = f"key-{number}-{count % 10}" if has_keys else None
                self.producer.publish("t", _BODY, key=key)
                count += 1
            return count

        return in_threads(work, threads, self._seconds)

    def _asynchronous(self, has_keys: bool) -> float:
        def work(number: int, until: float) -> int:
            count = 0
            keys = [f"key-{number}" if has_keys else None for number in range(40)]
            while time.monotonic() < until:
                for _ in range(100):
                    self.producer.publish_async("t", _BODY, key=keys[count % 40])
                    count += 1
            assert self.producer.flush(60.0)
            return count

        return in_threads(work, 1, self._seconds)


def measure(process: int, way: Callable[[], float]) -> Figures:
    """Publish in one way."""
    cluster_cpu, client_cpu, began = cpu_of(process), time.process_time(), time.monotonic()
    count = way()
    return Figures(
        count / (time.monotonic() - began), 1e6 * (time.process_time() - client_cpu) / count,
        1e6 * (cpu_of(process) - cluster_cpu) / count)


def main(argv: list[str] | None = None) -> int:
    """Measure, and print one line for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args(argv)
    results: dict[str, list[Figures]] = {}
    for _ in range(options.rounds):
        with cluster() as (process, lookupd, nsqds):
            contest = Contest(lookupd, nsqds, options.seconds)
            for name, way in contest.ways.items():
                results.setdefault(name, []).append(measure(process, way))
            contest.producer.close(10.0)
    print(f"{'':34} {'messages/s':>10} {'client us':>10} {'cluster us':>10}")
    for name, figures in results.items():
        rate, client, server = map(statistics.median, zip(*figures))
        print(f"{name:34} {rate:10,.0f} {client:10.1f} {server:10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
