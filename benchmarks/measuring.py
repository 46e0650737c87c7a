"""How a work is measured: every contender once in every round, each on a topic of its own."""

from __future__ import annotations

import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import contestants
from contestants import Line, Measurement
from nsqd import BenchmarkError, Nsqd, bodies_of

CHANNEL = "bench"
#: How many messages a mode of publishing takes, as a factor of the count: about a second each.
SHARES = {
    "sync": 0.1, "sync2": 0.2, "sync4": 0.4, "sync16": 0.5, "sync64": 0.5, "multi": 10, "async": 1,
}
#: Seconds between two messages of the latency run: the consumer is idle when one comes.
PAUSE = 0.005

T = TypeVar("T")


@dataclass(frozen=True)
class Consume:
    """Consume a full channel with a handler that only counts."""

    names: Sequence[str]
    count: int = 100_000
    size: int = 200
    body: str = "x"
    max_in_flight: int = 2500
    workers: int = 1
    layers: Sequence[str] = ()
    nsqds: int = 1


@dataclass(frozen=True)
class Publish:
    """Publish into an empty topic in one of the modes of :data:`SHARES`."""

    names: Sequence[str]
    mode: str
    count: int = 100_000
    size: int = 200
    layers: Sequence[str] = ()


def consume(work: Consume, nsqds: Sequence[Nsqd], rounds: int) -> list[Measurement]:
    """Measure consuming; the channels are filled evenly before each run."""
    # The end of a stream waits in nsqd's output buffer for a timer of 250 ms, which would round
    # every result up to a multiple of that: the last message measured is not the last there is.
    surplus = 4 * work.max_in_flight
    bodies = bodies_of(work.body, work.size)
    share = -(-work.count // len(nsqds)) + surplus

    def run(command: list[str], topic: str) -> Measurement | None:
        for nsqd in nsqds:
            nsqd.fill(topic, CHANNEL, share, bodies)
        addresses = ",".join(nsqd.tcp_address for nsqd in nsqds)
        result = contestants.measure(
            command,
            [addresses, topic, CHANNEL, work.count, work.max_in_flight, work.workers,
             *_layers(nsqds[0], work.layers)],
        )
        if result is not None:
            # Of several nsqds, each delivers a different share.
            least = work.count if len(nsqds) == 1 else 0
            for nsqd in nsqds:
                nsqd.check_finished(topic, CHANNEL, least)
        for nsqd in nsqds:
            nsqd.delete(topic)
        return result

    return _in_rounds("consume", work.names, rounds, run)


def publish(work: Publish, nsqd: Nsqd, rounds: int) -> list[Measurement]:
    """Measure publishing; nsqd's count of messages must be right afterwards."""
    # A multiple of 16 000, so that threads and batches share it evenly.
    count = max(1, round(work.count * SHARES[work.mode] / 16_000)) * 16_000

    def run(command: list[str], topic: str) -> Measurement | None:
        nsqd.create(topic, CHANNEL)
        result = contestants.measure(
            command,
            [nsqd.tcp_address, topic, count, work.size, work.mode, *_layers(nsqd, work.layers)],
        )
        if result is not None:
            nsqd.check_published(topic, CHANNEL, count)
        nsqd.delete(topic)
        return result

    return _in_rounds("publish", work.names, rounds, run)


def latency(names: Sequence[str], nsqd: Nsqd, rounds: int, count: int = 500) -> list[Line]:
    """Median time from nsqd's timestamp to the sink's commit, with 50 messages a second."""

    def run(command: list[str], topic: str) -> Line | None:
        nsqd.create(topic, CHANNEL)
        publisher = threading.Thread(target=_publish_slowly, args=(nsqd, topic, count))
        publisher.start()
        try:
            return contestants.run(command, [nsqd.tcp_address, topic, CHANNEL, count])
        finally:
            publisher.join()
            nsqd.delete(topic)

    return _in_rounds("latency", names, rounds, run)


def alone(kind: str, names: Sequence[str], nsqd: Nsqd, rounds: int, *more: object) -> list[Line]:
    """Run programs that need no more than an nsqd with some messages."""

    def run(command: list[str], topic: str) -> Line | None:
        nsqd.fill(topic, CHANNEL, 10, [b"x"])
        try:
            return contestants.run(command, [nsqd.tcp_address, topic, CHANNEL, *more])
        finally:
            nsqd.delete(topic)

    return _in_rounds(kind, names, rounds, run)


def _publish_slowly(nsqd: Nsqd, topic: str, count: int) -> None:
    """Once the consumer is there, send messages that say when they were sent, one at a time."""
    pause = threading.Event()
    patience = time.monotonic() + contestants.LONGEST
    while not nsqd.channel(topic, CHANNEL)["client_count"]:
        if time.monotonic() > patience:
            raise BenchmarkError("the consumer never came")
        pause.wait(PAUSE)
    host, _, port = nsqd.tcp_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"  V2")
        for _ in range(count):
            pause.wait(PAUSE)
            head = b"PUB %b\n" % topic.encode() + struct.pack(">i", 8)
            connection.sendall(head + struct.pack(">q", time.time_ns()))
            if connection.recv(10, socket.MSG_WAITALL) != b"\0\0\0\6\0\0\0\0OK":
                raise BenchmarkError("nsqd refused a message")


def _in_rounds(
    kind: str,
    names: Sequence[str],
    rounds: int,
    run: Callable[[list[str], str], T | None],
) -> list[T]:
    """Interleave: each round starts with another contender, so that nobody always runs first."""
    commands = contestants.prepare(names, kind)
    results = []
    for number in range(rounds):
        by = number % len(names)
        for position, name in enumerate([*names[by:], *names[:by]]):
            result = run(commands[name], f"{kind}{number}-{position}")
            if result is not None:
                print(f"  round {number + 1}: {name:<10} {result}", flush=True)
                results.append(result)
    return results


def _layers(nsqd: Nsqd, layers: Sequence[str]) -> list[str]:
    """Name the layers as a contender reads them."""
    return [f"tls={nsqd.certificate}" if name == "tls" else name for name in layers]


def medians(results: Sequence[T], value: Callable[[T], float]) -> dict[str, float]:
    """Return each contender's median, by name."""
    by_name: dict[str, list[float]] = {}
    for result in results:
        by_name.setdefault(getattr(result, "name"), []).append(value(result))
    return {name: statistics.median(values) for name, values in by_name.items()}
