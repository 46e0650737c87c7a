"""How late publish() and stop() return when nsqd hangs: ``python benchmarks/deadlines.py``.

``--busy`` processes compute meanwhile, so that the load of the machine is at least that. nsqd is
suspended with SIGSTOP. Shown is the time beyond the timeout, in seconds.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from nsqd import Nsqd

from nsqclient import Consumer, NSQError, Producer

TIMEOUT = 0.5
TOPIC, CHANNEL = "deadlines", "bench"


def late(call: Callable[[], object]) -> float:
    """Return how many seconds after TIMEOUT a call returned."""
    began = time.perf_counter()
    try:
        call()
    except NSQError:
        pass
    return time.perf_counter() - began - TIMEOUT


def publishes(nsqd: Nsqd, rounds: int) -> list[float]:
    """Publish to an nsqd that was suspended after it had stored a message."""
    found = []
    for _ in range(rounds):
        with Producer([nsqd.tcp_address]) as producer:
            producer.publish(TOPIC, b"x", timeout=60)
            nsqd.signal(signal.SIGSTOP)
            try:  # on the connection that hangs, and on a new one
                for _ in range(2):
                    found.append(late(lambda: producer.publish(TOPIC, b"x", timeout=TIMEOUT)))
            finally:
                nsqd.signal(signal.SIGCONT)
    return found


def stops(nsqd: Nsqd, rounds: int) -> list[float]:
    """Stop a consumer whose handler hangs, and whose nsqd is suspended."""
    found = []
    for _ in range(rounds):
        begun, release = threading.Event(), threading.Event()

        def handle(message: object) -> None:
            begun.set()
            release.wait()

        consumer = Consumer(TOPIC, CHANNEL, handle, nsqd_tcp_addresses=[nsqd.tcp_address]).start()
        begun.wait()
        nsqd.signal(signal.SIGSTOP)
        try:
            found.append(late(lambda: consumer.stop(TIMEOUT)))
        finally:
            nsqd.signal(signal.SIGCONT)
            release.set()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--busy", type=int, default=20, help="processes that compute (20)")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(args.busy)]
    try:
        with Nsqd() as nsqd:
            nsqd.create(TOPIC, CHANNEL)
            for name, measure in (("publish", publishes), ("stop", stops)):
                found = measure(nsqd, args.rounds)
                print(f"{name:<8} {len(found)} calls, late by {statistics.median(found):.3f} s"
                      f" (median), {max(found):.3f} s (most); load {os.getloadavg()[0]:.0f}",
                      flush=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
