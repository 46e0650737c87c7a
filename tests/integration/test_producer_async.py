"""publish_async, windows, discovery, fork safety and statistics, on both kinds of server."""

from __future__ import annotations

import time

import pytest

from nsqclient import (
    ClosedError,
    Config,
    ConfigError,
    InvalidMessageError,
    Producer,
    PublishError,
    PublishNotSentError,
)
from tests.support.faults.proxy import FaultProxy
from tests.support.processes import in_child
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


@pytest.fixture
def producer(server):
    with Producer([server.tcp_address]) as producer:
        yield producer


def test_a_future_ends_when_its_message_is_stored(producer, server):
    futures = [producer.publish_async("events", b"%d" % n) for n in range(500)]
    assert [future.result(10) for future in futures] == [None] * 500
    assert server.stats("events")["depth"] == 500
    assert producer.flush()


def test_a_deferred_message_is_sent_alone(producer, server):
    server.post("/topic/create", topic="events")
    server.post("/channel/create", topic="events", channel="c")
    producer.publish_async("events", b"x", defer=60).result(10)
    wait_until(lambda: server.stats("events", "c")["deferred_count"] == 1)


@pytest.mark.parametrize(
    "arguments", [("bad topic", b"x"), ("t", b""), ("t", b"x", 9999)]
)
def test_bad_input_is_refused_in_the_call(producer, arguments):
    with pytest.raises((InvalidMessageError, ValueError)):
        producer.publish_async(*arguments)


@pytest.mark.parametrize(
    "options",
    [{"on_full": "drop"}, {"max_pending": 0}, {"max_pending_bytes": 1.5}, {"linger": -1}],
    ids=str,
)
def test_bad_options_are_refused(options):
    with pytest.raises(ConfigError):
        Producer(["127.0.0.1:4150"], **options)


def test_a_full_window_raises_where_it_was_asked_for():
    address = f"127.0.0.1:{free_port()}"
    with Producer([address], max_pending=2, on_full="raise") as producer:
        futures = [producer.publish_async("t", b"x", timeout=3) for _ in range(2)]
        with pytest.raises(PublishNotSentError, match="max_pending"):
            producer.publish_async("t", b"x")
        assert all(isinstance(f.exception(20), PublishNotSentError) for f in futures)


def test_a_short_deadline_holds_behind_a_long_one_while_nsqd_takes_no_bytes(server):
    """Its worker waits until its bytes are written, which the end of the connection ends."""
    size = 32_000_000  # more than the sockets take
    config = Config(nsqd_max_msg_size=size, nsqd_max_body_size=2 * size, write_timeout=60)
    with FaultProxy(server.tcp_address) as proxy, Producer(
        [proxy.address], config=config, max_pending_bytes=2 * size,
    ) as producer:
        producer.publish_async("events", b"x").result(10)
        proxy.set_deaf()
        long = producer.publish_async("long", b"x", timeout=60)
        wait_until(long.running)
        began = time.monotonic()
        short = producer.publish_async("events", b"y" * size, timeout=0.5)
        with pytest.raises(PublishError):
            short.result(60)
        assert time.monotonic() - began < 30
        proxy.heal()
        assert long.result(60) is None


def test_nsqds_are_found_through_nsqlookupd(server_factory, lookupd_factory):
    lookupd = lookupd_factory()
    servers = [server_factory(lookupd_tcp_addresses=[lookupd.tcp_address]) for _ in range(2)]
    wait_until(lambda: len(lookupd.get("/nodes").json()["producers"]) == 2)
    with Producer(lookupd_http_addresses=[lookupd.http_address]) as producer:
        producer.publish("events", b"x")
        wait_until(lambda: len(producer.stats().connected) == 2 or producer.publish("events", b"x"))
        for _ in range(10):
            producer.publish("events", b"x")
    assert all(server.stats("events").get("depth", 0) >= 5 for server in servers)


def test_a_sticky_producer_uses_one_nsqd(server_factory):
    servers = [server_factory() for _ in range(2)]
    with Producer([server.tcp_address for server in servers], sticky=True) as producer:
        for _ in range(10):
            producer.publish("events", b"x")
    assert sorted(server.stats("events").get("depth", 0) for server in servers) == [0, 10]


def test_the_statistics_of_publishes_of_each_kind_are_complete(producer):
    """Counters and addresses show what happened; bytes are those of synchronous publishes."""
    for _ in range(4):
        producer.publish("events", b"12345")
    producer.publish("events", b"12345", defer=1)
    producer.publish_async("events", b"12345").result(5)
    producer.publish_many("events", [b"12345"] * 4)
    stats = producer.stats()
    assert (stats.published, stats.rejected, stats.unknown, stats.pending) == (10, 0, 0, 0)
    assert stats.bytes == (5 + 4) * 5
    assert 0 < stats.latency_p50 <= stats.latency_p99
    assert stats.connected == stats.known


def test_pending_futures_fail_in_the_child():
    with Producer([f"127.0.0.1:{free_port()}"]) as producer:
        future = producer.publish_async("t", b"x", timeout=1)
        assert in_child(lambda: isinstance(future.exception(1), ClosedError) or 1 / 0) == 0
        assert isinstance(future.exception(5), PublishNotSentError)
