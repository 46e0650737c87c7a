"""publish_async, windows, discovery, fork safety and statistics, on both kinds of server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import Future, wait

import pytest

from nsqclient import (
    ClosedError,
    Config,
    ConfigError,
    InvalidMessageError,
    Producer,
    PublishError,
    PublishNotSentError,
    PublishRejectedError,
    PublishUnknownError,
)
from tests.support.faults.proxy import FaultProxy
from tests.support.processes import in_child
from tests.support.servers.ports import free_port
from tests.support.servers.scripted import OK, ScriptedServer
from tests.support.waiting import wait_until


@pytest.fixture
def producer(server):
    """A producer for the server under test."""
    with Producer([server.tcp_address]) as producer:
        yield producer


def test_a_future_ends_when_its_message_is_stored(producer, server):
    """Each Future is done when its message is in the topic."""
    futures = [producer.publish_async("events", b"%d" % n) for n in range(500)]
    assert [future.result(10) for future in futures] == [None] * 500
    assert server.stats("events")["depth"] == 500
    assert producer.flush()


def test_the_future_is_an_ordinary_one(producer):
    """It is one of concurrent.futures, so that whatever takes those takes it."""
    assert isinstance(producer.publish_async("events", b"x"), Future)


def test_callbacks_and_waits_see_the_outcome(producer):
    """Callbacks run, and concurrent.futures.wait() works on our Futures."""
    called = []
    futures = [producer.publish_async("events", b"x") for _ in range(10)]
    for future in futures:
        future.add_done_callback(called.append)
    done, pending = wait(futures, timeout=10)
    assert len(done) == 10 and not pending
    wait_until(lambda: len(called) == 10)


def test_messages_of_one_topic_leave_in_order_as_one_mpub():
    """Messages that wait together are sent together, in the order of the calls."""
    seen = []
    ready = threading.Event()

    def script(peer):
        peer.identify()
        ready.wait(5)
        for _ in range(2):
            seen.append((peer.line(), peer.sized()))
            peer.send(OK)
        peer.until_closed()

    with ScriptedServer(script) as server, Producer([server.address], linger=0.2) as producer:
        futures = [producer.publish_async("a", b"%d" % n) for n in range(3)]
        futures.append(producer.publish_async("b", b"x"))
        ready.set()
        wait(futures, timeout=10)
    assert dict(seen) == {  # topics do not wait for each other
        b"MPUB a": b"\0\0\0\3\0\0\0\0010\0\0\0\0011\0\0\0\0012", b"PUB b": b"x",
    }


def test_a_deferred_message_is_sent_alone(producer, server):
    """defer= works asynchronously too."""
    server.post("/topic/create", topic="events")
    server.post("/channel/create", topic="events", channel="c")
    producer.publish_async("events", b"x", defer=60).result(10)
    wait_until(lambda: server.stats("events", "c")["deferred_count"] == 1)


def test_only_the_rejected_message_of_a_batch_fails(server_factory):
    """An MPUB that is refused for one message is taken apart."""
    server = server_factory(max_msg_size=100)
    with Producer([server.tcp_address], linger=0.2) as producer:
        bodies = [b"x" * 50] * 5 + [b"x" * 101] + [b"x" * 50] * 5
        futures = [producer.publish_async("events", body) for body in bodies]
        wait(futures, timeout=20)
    errors = [future.exception() for future in futures]
    assert [error is None for error in errors] == [len(body) == 50 for body in bodies]
    assert isinstance(errors[5], PublishRejectedError) and errors[5].code == "E_BAD_MESSAGE"
    assert server.stats("events")["depth"] == 10


@pytest.mark.parametrize(
    "arguments", [("bad topic", b"x"), ("t", b""), ("t", "x"), ("t", b"x", -1), ("t", b"x", 9999)]
)
def test_bad_input_is_refused_in_the_call(producer, arguments):
    """A mistake raises where it was made, not in the Future."""
    with pytest.raises((InvalidMessageError, ValueError)):
        producer.publish_async(*arguments)


@pytest.mark.parametrize(
    "options",
    [{"on_full": "drop"}, {"max_pending": 0}, {"max_pending_bytes": 1.5}, {"linger": -1}],
    ids=str,
)
def test_bad_options_are_refused(options):
    """The constructor names the mistake."""
    with pytest.raises(ConfigError):
        Producer(["127.0.0.1:4150"], **options)


def test_a_full_window_raises_where_it_was_asked_for():
    """With on_full="raise" a publish over max_pending is refused at once."""
    address = f"127.0.0.1:{free_port()}"
    with Producer([address], max_pending=2, on_full="raise") as producer:
        futures = [producer.publish_async("t", b"x", timeout=3) for _ in range(2)]
        with pytest.raises(PublishNotSentError, match="max_pending"):
            producer.publish_async("t", b"x")
        assert all(isinstance(f.exception(20), PublishNotSentError) for f in futures)


@pytest.mark.parametrize("retry", [True, False])
@pytest.mark.parametrize("way", ["publish", "publish_async"])
def test_a_lost_connection_is_retried_where_duplicates_are_allowed(server, retry, way):
    """An unknown outcome is sent again, or reported with retry_unknown=False."""
    with FaultProxy(server.tcp_address) as proxy, ThreadPoolExecutor(1) as executor, \
            Producer([proxy.address], retry_unknown=retry) as producer:
        if way == "publish":
            producer.publish("events", b"before")
        else:
            producer.publish_async("events", b"before").result(10)
        proxy.set_deaf()
        if way == "publish":
            future = executor.submit(producer.publish, "events", b"x", timeout=8)
        else:
            future = producer.publish_async("events", b"x", timeout=8)
        node = producer._nodes.connected[0]
        wait_until(lambda: any([conn.exchanges() for conn in node.connections()]))  # it is sent
        proxy.reset()
        proxy.set_deaf(False)
        error = future.exception(10)
    assert error is None if retry else isinstance(error, PublishUnknownError)


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
    """A producer asks nsqlookupd for all nsqds, and uses them in turn."""
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
    """With sticky=True all goes to one nsqd while it is alive."""
    servers = [server_factory() for _ in range(2)]
    with Producer([server.tcp_address for server in servers], sticky=True) as producer:
        for _ in range(10):
            producer.publish("events", b"x")
    assert sorted(server.stats("events").get("depth", 0) for server in servers) == [0, 10]


def test_the_statistics_of_async_publishes_are_complete(producer):
    """Counters and addresses show what happened."""
    for _ in range(5):
        producer.publish("events", b"x")
    producer.publish_async("events", b"x").result(5)
    producer.publish_many("events", [b"x"] * 4)
    stats = producer.stats()
    assert (stats.published, stats.rejected, stats.unknown, stats.pending) == (10, 0, 0, 0)
    assert 0 < stats.latency_p50 <= stats.latency_p99
    assert stats.connected == stats.known


def test_a_forked_child_has_its_own_connections(producer, server):
    """Parent and child publish over connections of their own, before and after the fork."""
    producer.publish("events", b"parent")

    def child():
        producer.publish("events", b"child")
        producer.publish_async("events", b"child").result(5)
        assert producer.close(5)

    assert in_child(child) == 0
    producer.publish("events", b"parent again")
    assert server.stats("events")["depth"] == 4
    assert producer.stats().published == 2


def test_pending_futures_fail_in_the_child():
    """A Future pending at the fork is the parent's; in the child it fails, and does not hang."""
    with Producer([f"127.0.0.1:{free_port()}"]) as producer:
        future = producer.publish_async("t", b"x", timeout=1)
        assert in_child(lambda: isinstance(future.exception(1), ClosedError) or 1 / 0) == 0
        assert isinstance(future.exception(5), PublishNotSentError)
