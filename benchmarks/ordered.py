"""Ordered consumption of 8 partitions: ``python benchmarks/ordered.py [--against FOLDER]``.

The embedded cluster runs in one process, the consumer in another. With ``--against``, a checkout
of another version, both versions take turns in one run. Shown are the median of the rates, and of
the CPU time and the voluntary context switches of the consumer for each message.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

PARTITIONS = 8
#: Messages that are not counted: threads start and connections open meanwhile.
WARM_UP = 100


def serve(messages: int) -> None:
    """Serve an ordered topic until the standard input ends; print the address of nsqlookupd."""
    from nsqclient.devserver import PartitionedCluster

    with PartitionedCluster(3, 1) as cluster:
        cluster.create_topic("t", PARTITIONS, ordered=True, channels=["c"])
        for _ in range(messages):
            for partition in range(PARTITIONS):
                cluster.publish("t", partition, b"x" * 100)
        print(cluster.lookupd_http_addresses[0], flush=True)
        sys.stdin.read()


def consume(lookupd: str, messages: int, workers: int) -> None:
    """Consume everything; print rate, microseconds of CPU and context switches as JSON."""
    import resource

    from nsqclient import Consumer

    count, begun, done = 0, (0.0, 0.0, 0), threading.Event()
    lock = threading.Lock()
    total = messages * PARTITIONS

    def now() -> tuple[float, float, int]:
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        return time.monotonic(), time.process_time(), switches

    def handle(message: object) -> None:
        nonlocal count, begun
        with lock:
            count += 1
            if count == WARM_UP * PARTITIONS:
                begun = now()
            if count == total:
                done.set()

    with Consumer("t", "c", handle, lookupd_http_addresses=[lookupd], ordered=True,
                  workers=workers):
        if not done.wait(300):
            sys.exit("not everything came in 300 s")
        wall, cpu, switches = (end - start for end, start in zip(now(), begun))
    counted = total - WARM_UP * PARTITIONS
    print(json.dumps([counted / wall, cpu / counted * 1e6, switches / counted]))


def measure(folder: Path, messages: int, workers: int) -> list[float]:
    """Run a server of this version and a consumer of another one; return its figures."""
    here = Path(__file__).resolve()
    server = subprocess.Popen(
        [sys.executable, here, "--serve", "--messages", str(messages)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(here.parent.parent)},
    )
    with server:
        assert server.stdin is not None and server.stdout is not None
        lookupd = server.stdout.readline().strip()
        result = subprocess.run(
            [sys.executable, here, "--consume", lookupd, "--messages", str(messages),
             "--workers", str(workers)],
            stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )
        server.stdin.close()
    figures: list[float] = json.loads(result.stdout)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--messages", type=int, default=2000, help="of each partition")
    parser.add_argument("--workers", type=int, default=PARTITIONS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--consume", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.messages)
    if args.consume:
        return consume(args.consume, args.messages, args.workers)
    folders = {"this version": Path(__file__).resolve().parent.parent}
    if args.against:
        folders["the other one"] = args.against.resolve()
    found: dict[str, list[list[float]]] = {name: [] for name in folders}
    for _ in range(args.rounds):
        for name, folder in folders.items():
            found[name].append(measure(folder, args.messages, args.workers))
    for name, rounds in found.items():
        rate, cpu, switches = (statistics.median(column) for column in zip(*rounds))
        print(f"{name:<14} {rate:7.0f} messages/s  {cpu:5.1f} us of CPU  {switches:4.2f} switches")
    return None


if __name__ == "__main__":
    main()
