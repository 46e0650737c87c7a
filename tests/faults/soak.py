"""``python -m tests.faults.soak``: half of the maximum rate for a long time, on a real nsqd.

Exits with 1 when memory has grown by 5 % from the second sixth of the run to the last, when
threads, descriptors or timers have become more, or when a stored message was not handled.
"""

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from nsqclient import Config, Consumer, Message, Producer
from nsqclient.runtime.timer import TimerTask
from tests.support.exit_signals import exit_on_first_signal
from tests.support.faults.proxy import FaultProxy
from tests.support.memory import MIB, resident
from tests.support.servers.real_servers import RealNsqd

RECONNECT, LOOK = 10.0, 5.0
#: Messages of one publish_many.
BATCH = 100
MAX_GROWTH = 0.05
#: So many may be stored and not handled; the window holds many times as many numbers.
MOST_MISSING, WINDOW = 20_000, 1 << 20


class Sample(NamedTuple):
    at: float
    memory: int
    threads: int
    descriptors: int
    timers: int
    stored: int
    handled: int


class Soak:
    def __init__(self, address: str, proxy: FaultProxy) -> None:
        config = Config(max_attempts=0, max_backoff_duration=0, msg_timeout=5)
        self._proxy = proxy
        self._producer = Producer([proxy.address], config=config)
        self._consumer = Consumer(
            "soak", "c", self._handle, nsqd_tcp_addresses=[proxy.address], max_in_flight=500,
            workers=2, config=config,
        )
        # Which of a window of numbers are not handled yet. Not a set: its own memory would grow and
        # shrink by megabytes with the load of the machine.
        self._is_missing = bytearray(WINDOW)
        self._missing = 0
        self._lock = threading.Lock()
        self.stored = self.handled = 0
        self.samples: list[Sample] = []

    def _handle(self, message: Message) -> None:
        with self._lock:
            place = int(message.body[:12]) % WINDOW
            self._missing -= self._is_missing[place]
            self._is_missing[place] = 0
        self.handled += 1

    def _publish_batch(self) -> None:
        first = self.stored
        with self._lock:
            for number in range(first, first + BATCH):
                self._is_missing[number % WINDOW] = 1
            self._missing += BATCH
        self._producer.publish_many(
            "soak", [b"%012d" % number + b"x" * 200 for number in range(first, first + BATCH)],
            timeout=30,
        )
        self.stored += BATCH

    def measure_rate(self, seconds: float) -> float:
        began, before = time.monotonic(), self.stored
        while time.monotonic() - began < seconds:
            self._publish_batch()
            self._wait_for_space()
        return (self.stored - before) / (time.monotonic() - began)

    def _wait_for_space(self) -> None:
        """Wait for the consumer, so that the number of unhandled messages is bounded."""
        pause = threading.Event()
        until = time.monotonic() + 60
        while self._missing > MOST_MISSING and time.monotonic() < until:
            pause.wait(0.01)

    def run(self, seconds: float) -> None:
        with self._consumer, self._producer:
            rate = self.measure_rate(min(10.0, seconds / 6)) / 2
            print(f"half of the maximum rate: {rate:.0f} messages in a second", flush=True)
            pause = threading.Event()
            began = time.monotonic()
            start, next_drop, next_look = self.stored, began + RECONNECT, began + LOOK
            while (now := time.monotonic()) < began + seconds:
                self._publish_batch()
                self._wait_for_space()
                pause.wait(max(0.0, began + (self.stored - start) / rate - time.monotonic()))
                if now >= next_drop:
                    self._proxy.drop()
                    next_drop = now + RECONNECT
                if now >= next_look:
                    self._look(now - began)
                    next_look = now + LOOK
            until = time.monotonic() + 60
            while self._missing and time.monotonic() < until:
                pause.wait(0.1)

    def _look(self, at: float) -> None:
        gc.collect()
        timers = sum(isinstance(thing, TimerTask) for thing in gc.get_objects())
        sample = Sample(
            at, resident()[0], threading.active_count(), len(os.listdir("/proc/self/fd")),
            timers, self.stored, self.handled,
        )
        self.samples.append(sample)
        print(
            f"{at:6.0f} s  {sample.memory / MIB:7.1f} MiB  {sample.threads} threads"
            f"  {sample.descriptors} descriptors  {timers} timers  {sample.stored} stored"
            f"  {sample.handled} handled", flush=True,
        )

    def failures(self) -> list[str]:
        after = self.samples[len(self.samples) // 6:]
        part = -(-len(after) // 5)
        found = []
        if self._missing:
            found.append(f"{self._missing} stored messages were not handled")
        # Medians: a sample may fall into the moment of a reconnect.
        first, last = (_median([s.memory for s in some]) for some in (after[:part], after[-part:]))
        growth = last / first - 1
        print(f"memory grew by {growth:.1%}")
        if growth >= MAX_GROWTH:
            found.append(f"memory grew by {growth:.1%}")
        for name in ("threads", "descriptors", "timers"):
            values = [getattr(s, name) for s in after]
            print(f"{name}: {min(values)} to {max(values)}")
            # At no moment of the end there may be more than usual: at some there are, or fewer,
            # because connections come and go.
            first, last = _median(values[:part]), min(values[-part:])
            if last > first:
                found.append(f"{name}: {first} became {last} or more")
        return found


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0, help="default: half an hour")
    seconds = parser.parse_args().seconds
    exit_on_first_signal()
    with tempfile.TemporaryDirectory() as folder:
        nsqd = RealNsqd(Path(folder))
        try:
            nsqd.start()
            with FaultProxy(nsqd.tcp_address) as proxy:
                soak = Soak(nsqd.tcp_address, proxy)
                soak.run(seconds)
        finally:
            nsqd.kill()
    failures = soak.failures()
    for line in failures:
        print("FAILED", line)
    print(f"{soak.stored} stored, {soak.handled} handled, {'failed' if failures else 'passed'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
