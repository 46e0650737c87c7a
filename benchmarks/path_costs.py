"""What a message costs where, in microseconds: ``python benchmarks/path_costs.py``.

A publish of one thread, and a consumer with max_in_flight 1, on a real nsqd; the same with a key,
and of ordered partitions, on an embedded cluster in a process of its own. The processor time of a
message is measured without a profile; a second run under cProfile, by the thread's processor time,
says which part of it each module and each system call has.
"""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from nsqclient import Consumer, Message, Producer  # noqa: E402 - after the path it is on

from nsqd import Nsqd  # noqa: E402 - beside this file

PACKAGE = f"{CHECKOUT / 'nsqclient'}/"
WARM, COUNT, SIZE = 2000, 20_000, 200
PARTITIONS = 8
LIMIT = 120.0
_CLUSTER = f"""
import sys
from nsqclient.devserver import PartitionedCluster
with PartitionedCluster(3, 1) as cluster:
    cluster.create_topic("published", {PARTITIONS}, channels=[])
    cluster.create_topic("consumed", {PARTITIONS}, ordered=True, channels=["c"])
    for number in range({WARM + 2 * COUNT}):
        cluster.publish("consumed", number % {PARTITIONS}, b"x" * {SIZE})
    print(cluster.lookupd_http_addresses[0], flush=True)
    sys.stdin.read()
"""


def part_of(file: str, name: str) -> str:
    """Name the part of a table that a function belongs to."""
    if file.startswith(PACKAGE):
        return file.removeprefix(PACKAGE)
    for call in ("sendall", "send", "recv", "poll"):
        if file == "~" and f"'{call}' of" in name:
            return f"{call}()"
    return "Python itself, and the caller"


def show(title: str, profile: cProfile.Profile, processor: float, wall: float) -> None:
    """Print a table: microseconds and calls of each part, for one message."""
    seconds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for (file, _, name), (_, count, own, _, _) in pstats.Stats(profile).stats.items():
        part = part_of(file, name)
        seconds[part] += own
        calls[part] += count
    total = sum(seconds.values())
    print(f"{title}: {COUNT / wall:,.0f}/s, {processor / COUNT * 1e6:.1f} us of processor time")
    for part, own in seconds.most_common():
        share = own / total * processor / COUNT * 1e6
        if share >= 0.1:
            print(f"    {part:<34}{share:>7.1f} us{calls[part] / COUNT:>7.1f} calls")


def publish(title: str, producer: Producer, **key: str) -> None:
    """Measure publishes of one thread."""
    profile = cProfile.Profile(time.thread_time)
    with producer:
        def run(count: int) -> None:
            for _ in range(count):
                producer.publish("published", b"x" * SIZE, **key)

        run(WARM)
        processor, wall = time.process_time(), time.monotonic()
        run(COUNT)
        processor, wall = time.process_time() - processor, time.monotonic() - wall
        profile.runcall(run, COUNT)
    show(title, profile, processor, wall)


def consume(title: str, **options: Any) -> None:
    """Measure a consumer."""
    profile, end = cProfile.Profile(time.thread_time), threading.Event()
    marks: list[tuple[float, float]] = []
    handled = 0

    def handle(message: Message) -> None:
        nonlocal handled
        handled += 1
        if handled in (WARM, WARM + COUNT):
            marks.append((time.process_time(), time.monotonic()))
        if handled == WARM + COUNT:
            profile.enable()  # in the worker's thread
        elif handled == WARM + 2 * COUNT:
            profile.disable()
            end.set()

    with Consumer("consumed", "c", handle, **options):
        if not end.wait(LIMIT):
            raise SystemExit(f"not within {LIMIT:g} s")
    (processor, wall), (processor_end, wall_end) = marks
    show(title, profile, processor_end - processor, wall_end - wall)


def main() -> int:
    """Measure, and print a table for each."""
    with Nsqd() as nsqd:
        publish("publish, 1 thread", Producer([nsqd.tcp_address]))
        nsqd.fill("consumed", "c", WARM + 2 * COUNT, [b"x" * SIZE] * 1000)
        consume("consume, max_in_flight 1", nsqd_tcp_addresses=[nsqd.tcp_address], max_in_flight=1)
    with subprocess.Popen([sys.executable, "-c", _CLUSTER], cwd=CHECKOUT, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdin is not None and cluster.stdout is not None
        lookupds = [cluster.stdout.readline().strip()]
        publish("publish with a key, 1 thread", Producer(lookupd_http_addresses=lookupds), key="k")
        consume("consume, 8 ordered partitions", lookupd_http_addresses=lookupds, ordered=True)
        cluster.stdin.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
