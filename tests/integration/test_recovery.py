"""A consumer in bad times: nsqds that stop, die and come back, lookups that hang, long handlers."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import Counter

import pytest

from nsqclient import Config, Consumer, Producer
from tests.integration.test_consumer import Collector, publish
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

#: A restart counts as an attempt, so nothing may be given up here.
PATIENT = Config(max_attempts=0, max_backoff_duration=0)


class Ledger:
    """A handler that counts each body."""

    def __init__(self):
        self.seen = Counter()
        self._lock = threading.Lock()

    def __call__(self, message):
        with self._lock:
            self.seen[message.body] += 1


class Publisher:
    """Publishes numbered messages to all servers from a thread, until it has stored ``count``."""

    def __init__(self, servers, count):
        self.stored = []
        self._count = count
        self._producer = Producer([server.tcp_address for server in servers])
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        for number in itertools.count():
            if len(self.stored) >= self._count:
                return
            bodies = [b"%d-%d" % (number, n) for n in range(100)]
            self._producer.publish_many("events", bodies, timeout=30)
            self.stored += bodies

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._thread.join()
        self._producer.close()


@pytest.fixture
def cluster(server_factory, lookupd_factory):
    """Two nsqlookupds and three nsqds that know the topic."""
    lookupds = [lookupd_factory() for _ in range(2)]
    servers = [
        server_factory(
            lookupd_tcp_addresses=[lookupd.tcp_address for lookupd in lookupds], msg_timeout=5.0
        )
        for _ in range(3)
    ]
    for server in servers:
        server.post("/topic/create", topic="events")
        server.post("/channel/create", topic="events", channel="c")
    return lookupds, servers


def discover(lookupds, handler, **options):
    """A consumer that finds its nsqds by lookup, with the default poll interval."""
    options = {"max_in_flight": 200, "workers": 2, "config": PATIENT} | options
    return Consumer(
        "events", "c", handler,
        lookupd_http_addresses=[lookupd.http_address for lookupd in lookupds], **options,
    )


def addresses(consumer):
    """The nsqds that the consumer is connected to."""
    return {connection.address for connection in consumer.stats().connections}


@pytest.mark.long
def test_restarts_under_load_lose_nothing(cluster):
    """One nsqd is stopped and started five times; all is handled, it is soon back."""
    lookupds, servers = cluster
    ledger = Ledger()
    with discover(lookupds, ledger) as consumer:
        wait_until(lambda: len(addresses(consumer)) == 3)
        with Publisher(servers, 20_000) as publisher:
            for turn in range(5):
                wait_until(lambda: len(publisher.stored) > 3_000 * (turn + 1), timeout=60)
                servers[0].stop()
                wait_until(lambda: servers[0].tcp_address not in addresses(consumer))
                servers[0].start()
                wait_until(lambda: servers[0].tcp_address in addresses(consumer), timeout=60)
        wait_until(lambda: len(ledger.seen) == len(publisher.stored), timeout=60)
        assert consumer.stats().repairs == 0
    assert set(ledger.seen) == set(publisher.stored)


def test_a_killed_nsqd_is_back_and_the_others_lose_nothing(cluster):
    """SIGKILL of one nsqd: it is soon consumed again; what the others had is all handled."""
    lookupds, servers = cluster
    ledger = Ledger()
    with discover(lookupds, ledger) as consumer:
        wait_until(lambda: len(addresses(consumer)) == 3)
        for server in servers[1:]:
            publish(server, *[b"%b-%d" % (server.tcp_address.encode(), n) for n in range(500)])
        servers[0].kill()
        servers[0].start()
        wait_until(lambda: servers[0].tcp_address in addresses(consumer), timeout=20)
        publish(servers[0], b"after")
        wait_until(lambda: ledger.seen[b"after"] and len(ledger.seen) == 1001, timeout=20)


def test_a_restart_of_all_nsqds_is_survived(cluster):
    """After a restart of everything all messages are handled within 30 s."""
    lookupds, servers = cluster
    ledger = Ledger()
    with discover(lookupds, ledger) as consumer:
        wait_until(lambda: len(addresses(consumer)) == 3)
        for server in servers:
            server.stop()
        wait_until(lambda: not addresses(consumer))
        for server in servers:
            server.start()
            publish(server, *[b"%b-%d" % (server.tcp_address.encode(), n) for n in range(300)])
        wait_until(lambda: len(ledger.seen) == 900, timeout=30)


def test_a_hanging_nsqlookupd_delays_nobody(cluster):
    """One nsqlookupd that accepts and never answers has no effect on the others."""
    lookupds, servers = cluster
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = "127.0.0.1:%d" % deaf.getsockname()[1]
        consumer = Consumer(
            "events", "c", Ledger(), max_in_flight=10,
            lookupd_http_addresses=[address, lookupds[0].http_address],
            config=PATIENT.replace(lookupd_poll_timeout=30),
        )
        with consumer:
            wait_until(lambda: len(addresses(consumer)) == 3, timeout=15)
            servers[0].restart()
            wait_until(lambda: len(addresses(consumer)) == 3, timeout=15)
            # End the request that hangs, so that no thread outlives the test.
            deaf.accept()[0].close()


def test_one_message_in_flight_is_shared_by_five_nsqds(server_factory):
    """With all messages on one of five nsqds, its turn comes in time, and it is drained."""
    servers = [server_factory() for _ in range(5)]
    publish(servers[3], *[b"%d" % n for n in range(100)])
    idle, interval = 1.0, 0.5
    config = PATIENT.replace(low_rdy_idle_timeout=idle, rdy_redistribute_interval=interval)
    collector = Collector()
    consumer = Consumer(
        "events", "c", collector, max_in_flight=1, config=config,
        nsqd_tcp_addresses=[server.tcp_address for server in servers],
    )
    with consumer:
        wait_until(lambda: len(addresses(consumer)) == 5)
        wait_until(lambda: collector.messages)
        wait_until(lambda: len(collector.messages) == 100, timeout=30)
        assert consumer.stats().repairs == 0


def test_stop_ends_in_time_with_long_handlers_and_a_full_queue(server):
    """stop(5) returns though eight handlers take longer; the queue is another's before that."""
    release = threading.Event()
    first = Collector(lambda message: release.wait(30))
    publish(server, *[b"%d" % n for n in range(108)])
    config = PATIENT.replace(rdy_share_of_timeout=0)  # the queue fills
    options = {"nsqd_tcp_addresses": [server.tcp_address], "config": config}
    consumer = Consumer("events", "c", first, max_in_flight=108, workers=8, **options).start()
    wait_until(lambda: len(first.messages) == 8)
    wait_until(lambda: consumer.stats().total.received == 108)
    second = Collector()
    with Consumer("events", "c", second, max_in_flight=200, **options):
        wait_until(lambda: server.stats("events", "c")["client_count"] == 2)
        began = time.monotonic()
        stopper = threading.Thread(target=consumer.stop, args=(5,))
        stopper.start()
        wait_until(lambda: len(second.messages) == 100, timeout=4)
        stopper.join()
        assert time.monotonic() - began < 15
        release.set()
    wait_until(lambda: not any("worker" in t.name for t in threading.enumerate()))


@pytest.mark.real
def test_the_messages_in_flight_never_exceed_max_in_flight(real_nsqd):
    """The servers' own numbers, every 20 ms, while max_in_flight goes 12-8-3-2-3-12."""
    servers = [real_nsqd() for _ in range(4)]
    for server in servers:
        server.post("/topic/create", topic="events")
        publish(server, *[b"x"] * 3_000)
    pause = threading.Event()
    consumer = Consumer(
        "events", "c", lambda message: pause.wait(0.002), max_in_flight=12, workers=4,
        nsqd_tcp_addresses=[server.tcp_address for server in servers], config=PATIENT,
    )

    def out():
        return sum(server.stats("events", "c").get("in_flight_count", 0) for server in servers)

    def highest(seconds):
        until = time.monotonic() + seconds
        seen = [0]
        wait_until(lambda: seen.append(out()) or time.monotonic() > until, timeout=60)
        return max(seen)

    with consumer:
        wait_until(lambda: len(addresses(consumer)) == 4)
        ceiling = 12
        for new in (8, 3, 2, 3, 12):
            consumer.set_max_in_flight(new)
            # Four answers are four moments, so what one nsqd had may be seen again on another.
            assert highest(0.6) <= max(ceiling, new)
            assert highest(0.5) <= new
            ceiling = new
        assert consumer.stats().repairs == 0
