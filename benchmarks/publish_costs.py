#!/usr/bin/env python3
"""Where the processor time of a publish goes, in microseconds: ``publish_costs.py [ROUNDS]``.

Each thread reads its own clock before and after publish() and the exchange in it.
"""

from __future__ import annotations

import statistics
import sys
import threading
from time import thread_time_ns

from nsqd import Nsqd

from nsqclient import Producer
from nsqclient.producer import publisher

MESSAGES = 32_000
_exchange = publisher.exchange
_spans = threading.local()


def exchange(fd: int, command: bytes, start: int, seconds: float) -> object:
    """Note when an exchange begins and ends."""
    began = thread_time_ns()
    answer = _exchange(fd, command, start, seconds)
    _spans.exchange = began, thread_time_ns()
    return answer


def publish(producer: Producer, count: int, found: list[tuple[int, ...]]) -> None:
    """Publish, and append the nanoseconds before, in and after the exchanges."""
    sums = [0, 0, 0]
    for _ in range(count):
        began = thread_time_ns()
        producer.publish("costs", b"x" * 200)
        ended = thread_time_ns()
        left, came = _spans.exchange
        for number, span in enumerate((left - began, came - left, ended - came)):
            sums[number] += span
    found.append(tuple(sums))


def measure(address: str, threads: int) -> list[float]:
    """Return the microseconds before, in and after an exchange."""
    publisher.exchange = exchange  # type: ignore[assignment]
    found: list[tuple[int, ...]] = []
    with Producer([address]) as producer:
        producer.publish("costs", b"x")
        running = [threading.Thread(target=publish, args=(producer, MESSAGES // threads, found))
                   for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    clock = min(-thread_time_ns() + thread_time_ns() for _ in range(1000))
    return [sum(spans) / MESSAGES / 1000 - clock / 1000 for spans in zip(*found)]


def main() -> None:
    """Print the medians of all rounds."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rows: dict[int, list[list[float]]] = {}
    with Nsqd() as nsqd:
        for _ in range(rounds):
            for threads in (1, 16):
                row = measure(nsqd.tcp_address, threads)
                rows.setdefault(threads, []).append(row)
    print("threads   Python before   exchange   Python after     sum")
    for threads, found in rows.items():
        before, inside, after = (statistics.median(column) for column in zip(*found))
        print(f"{threads:<7}{before:>16.1f}{inside:>11.1f}{after:>15.1f}"
              f"{before + inside + after:>8.1f}")


if __name__ == "__main__":
    main()
