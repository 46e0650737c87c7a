"""Whole dialogues of a consumer and of a producer through a proxy, with one fault somewhere."""

import os
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nsqclient import Config, Consumer, Producer, PublishUnknownError
from tests.support.faults.proxy import FaultProxy
from tests.support.servers.http_api import ServerUnderTest
from tests.support.waiting import wait_until

#: Whether every position is tried, or a choice.
FULL = os.environ.get("NSQ_FAULTS") == "full"
#: Dialogues under way at once: they mostly wait.
_PARALLEL = 8
#: How much longer than alone the processes of a busy machine take.
BUSY = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
#: Seconds in which a client has recovered from a fault that is over: see docs/reliability.rst.
RECOVERY = 5.0 * BUSY
#: Seconds within which nsqd scans a channel's timeouts again.
SCAN = 6.0

#: Short times, so that a fault costs little of them.
QUICK = Config(
    heartbeat_interval=1, max_reconnect_delay=0.01, max_attempts=0, max_backoff_duration=0,
    default_requeue_delay=0,
)
BODIES = {b"one", b"two" * 50, b"three" * 100}

#: Does something to a proxy that was just started.
Fault = Callable[[FaultProxy], object]
#: One dialogue: (server, topic, config, fault) -> bytes forwarded in each direction.
Dialogue = Callable[[ServerUnderTest, str, Config, Fault], dict[str, int]]


def faithful(proxy: FaultProxy) -> None:
    """No fault at all."""


class Seen:
    def __init__(self) -> None:
        self.bodies: set[bytes] = set()

    def __call__(self, message: Any) -> None:
        self.bodies.add(message.body)


def make_channel(server: ServerUnderTest, topic: str) -> None:
    server.post("/topic/create", topic=topic)
    server.post("/channel/create", topic=topic, channel="c")


def consume(server: ServerUnderTest, topic: str, config: Config, fault: Fault) -> dict[str, int]:
    for body in BODIES:
        server.post("/pub", body, topic=topic)
    seen = Seen()
    with FaultProxy(server.tcp_address) as proxy:
        fault(proxy)
        consumer = Consumer(
            topic, "c", seen, nsqd_tcp_addresses=[proxy.address], max_in_flight=2, config=config
        )
        with consumer:
            wait_until(lambda: seen.bodies == BODIES, RECOVERY + SCAN, "all were handled")
            assert consumer.stop(2).complete
        forwarded = dict(proxy.forwarded)
    drain(server, topic)
    return forwarded


def drain(
    server: ServerUnderTest, topic: str, expected: frozenset[bytes] = frozenset(),
    seconds: float = 1 + SCAN + RECOVERY,
) -> set[bytes]:
    """Consume the remaining messages, since FINs may have been lost. Fails if any stay."""

    def left() -> int:
        channel = server.stats(topic, "c")
        return sum(channel[key] for key in ("depth", "in_flight_count", "deferred_count"))

    seen = Seen()
    if expected or left():
        with Consumer(topic, "c", seen, nsqd_tcp_addresses=[server.tcp_address],
                      max_in_flight=10, config=QUICK):
            try:
                wait_until(lambda: expected <= seen.bodies and not left(), seconds)
            except AssertionError:
                missing = [body[:20] for body in expected - seen.bodies]
                raise AssertionError(
                    f"missing: {missing}; the channel: {server.stats(topic, 'c')}") from None
    return seen.bodies


def publish(server: ServerUnderTest, topic: str, config: Config, fault: Fault) -> dict[str, int]:
    with FaultProxy(server.tcp_address) as proxy:
        fault(proxy)
        with Producer([proxy.address], config=config) as producer:
            publish_three_ways(producer, topic)
        forwarded = dict(proxy.forwarded)
    everything = frozenset(BODIES | {b"later"})
    assert drain(server, topic, everything) == everything
    return forwarded


def publish_once(
    server: ServerUnderTest, topic: str, config: Config, fault: Fault
) -> dict[str, int]:
    with FaultProxy(server.tcp_address) as proxy:
        fault(proxy)
        with Producer([proxy.address], config=config, retry_unknown=False) as producer:
            unknown = False
            try:
                producer.publish(topic, b"once", timeout=RECOVERY)
            except PublishUnknownError:
                unknown = True
        forwarded = dict(proxy.forwarded)
    count = server.stats(topic)["message_count"]
    assert count == 1 or unknown and count == 0
    drain(server, topic)
    return forwarded


def publish_three_ways(producer: Producer, topic: str) -> None:
    first, *others = sorted(BODIES)
    producer.publish(topic, first, timeout=RECOVERY)
    assert producer.publish_many(topic, others, timeout=RECOVERY) == 2
    producer.publish(topic, b"later", defer=0.001, timeout=RECOVERY)


DIALOGUES: dict[str, Dialogue] = {
    "consume": consume, "publish": publish, "publish_once": publish_once,
}


def positions(length: int, seed: int, count: int) -> list[int]:
    if FULL or count >= length:
        return list(range(length))
    return sorted(random.Random(seed).sample(range(length), count))


def try_all(
    server: ServerUnderTest,
    dialogue: Dialogue,
    config: Config,
    faults: Iterable[tuple[str, Fault]],
    prefix: str,
) -> int:
    """Play the dialogue once for each named fault, several at a time; return how many."""
    failures: list[str] = []
    lock = threading.Lock()

    def play(numbered: tuple[int, tuple[str, Fault]]) -> None:
        number, (name, fault) = numbered
        topic = f"{prefix}-{number:05d}"
        try:
            make_channel(server, topic)
            dialogue(server, topic, config, fault)
            server.post("/topic/delete", topic=topic)
        except Exception as exc:  # any of them, with the position that brought it
            with lock:
                failures.append(f"{name}: {exc!r}")

    chosen = list(faults)
    with ThreadPoolExecutor(_PARALLEL) as executor:
        list(executor.map(play, enumerate(chosen)))
    print(f"{len(chosen)} dialogues")  # for the tables of the manual: pytest -rP shows it
    assert not failures, f"{len(failures)} of {len(chosen)}: " + "; ".join(failures[:5])
    return len(chosen)
