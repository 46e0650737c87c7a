"""Loops, batches, backoff, pause and health, on both kinds of server."""

from __future__ import annotations

import threading
import time

import pytest

from nsqclient import (
    BatchHandler,
    Config,
    ConfigError,
    ConnectError,
    Consumer,
    Requeue,
)
from tests.integration.test_consumer import Collector, consume, in_flight, publish
from tests.support.servers.http_api import registered
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


def test_stop_inside_a_loop_ends_it_after_the_turn(server):
    publish(server, *[b"x"] * 3)
    consumer = consume(server, None, max_in_flight=3)
    turns = 0
    for _ in consumer.messages(timeout=5):
        turns += 1
        assert not consumer.stop(5).complete
    assert consumer.stop(5).complete
    assert turns == 1
    wait_until(lambda: server.stats("events", "c")["depth"] == 2)


@pytest.mark.parametrize(("kind", "words"), [
    ("nsqd_tcp_addresses", "events/c .* for 0.2 s, .*refused.*see that nsqd runs"),
    ("lookupd_http_addresses", "the last failure: nsqlookupd .*refused"),
])
def test_a_loop_that_was_never_connected_raises(kind, words):
    """A server that is not there is no empty topic; the error says why, and what to do."""
    address, failed = f"127.0.0.1:{free_port()}", threading.Event()
    options = {kind: [address], "on_error": lambda error: failed.set()}
    with Consumer("events", "c", **options) as consumer:
        assert failed.wait(10)
        with pytest.raises(ConnectError, match=words) as caught:
            list(consumer.messages(timeout=0.2))
    assert caught.value.address == address and caught.value.__cause__ is not None


def test_a_loop_that_had_no_time_to_connect_says_so(server):
    """It does not speak of a failure, since there was none."""
    consumer = Consumer("events", "c", nsqd_tcp_addresses=[server.tcp_address])
    consumer._core.connections.start = lambda: None  # it comes to nothing in so short a time
    with pytest.raises(ConnectError, match="no attempt to connect has ended yet: give messages"):
        list(consumer.messages(timeout=0))
    assert consumer.stop(20).complete


def test_a_loop_over_an_empty_topic_ends(server):
    """Also when the connection is lost while it waits: there was one."""
    with consume(server, None) as consumer:
        wait_until(lambda: consumer.stats().connections)
        assert list(consumer.messages(timeout=0.2)) == []
        end = threading.Timer(0.1, server.stop)
        end.start()
        assert list(consumer.messages(timeout=1)) == []
        end.join()
        wait_until(lambda: not consumer.stats().connections)
        with pytest.raises(ConnectError, match="the last failure"):
            list(consumer.messages(timeout=0.2))


def test_messages_is_for_consumers_without_a_handler_and_run_for_those_with_one():
    """Without one run() would wait forever; the error says what to do."""
    options = {"nsqd_tcp_addresses": ["127.0.0.1:4150"]}
    with pytest.raises(ConfigError, match="without a handler"):
        Consumer("events", "c", print, **options).messages()
    consumer = Consumer("events", "c", **options)
    with pytest.raises(ConfigError, match="messages\\(\\)"):
        consumer.run()
    assert consumer.stop(5).complete


def test_a_last_batch_is_handled_at_stop(server):
    batches = []
    handler = BatchHandler(lambda batch: batches.append(len(batch)), size=100, max_wait=60)
    publish(server, *[b"x"] * 5)
    consumer = consume(server, handler, max_in_flight=100).start()
    wait_until(lambda: consumer.stats().total.received == 5 and not consumer.stats().queued)
    assert consumer.stop(5)
    assert batches == [5]
    wait_until(lambda: in_flight(server) == 0)
    assert server.stats("events", "c")["depth"] == 0


def test_backoff_stops_the_flow_and_lets_it_go_on(server):
    """A failure stops all, one message tests the waters, a success restores the flow."""
    phases = []
    failing = threading.Event()
    failing.set()

    def handler(message):
        if failing.is_set():
            raise Requeue(delay=0)

    collector = Collector(handler)
    publish(server, *[b"x"] * 10)
    config = Config(backoff_multiplier=0.1, max_backoff_duration=1, max_attempts=0)
    consumer = consume(
        server, collector, max_in_flight=5, config=config,
        on_backoff=lambda phase, wait: phases.append((phase, wait)),
    )
    with consumer:
        wait_until(lambda: len(phases) >= 5)
        assert not consumer.healthy() or consumer.stats().backoff == "testing"
        failing.clear()
        wait_until(lambda: phases[-1][0] == "flowing")
        wait_until(lambda: server.stats("events", "c")["clients"][0]["ready_count"] == 5)
        wait_until(lambda: in_flight(server) == 0 and server.stats("events", "c")["depth"] == 0)
        assert consumer.healthy()
        assert consumer.stats().repairs == 0
    waits = [wait for phase, wait in phases if phase == "waiting"]
    assert waits[:3] == pytest.approx([0.2, 0.4, 0.8])


def test_a_paused_consumer_gets_nothing(server):
    collector = Collector()
    consumer = consume(
        server, collector, max_in_flight=3, config=Config(rdy_share_of_timeout=0))
    with consumer:
        def ready():
            # nsqd makes the channel before it adds the client.
            clients = server.stats("events", "c").get("clients") or [{}]
            return clients[0].get("ready_count")

        wait_until(lambda: ready() == 3)
        consumer.pause()
        wait_until(lambda: ready() == 0)
        publish(server, b"x")
        assert server.stats("events", "c")["depth"] == 1
        consumer.resume()
        wait_until(lambda: collector.messages)


def test_health_says_why_nothing_is_consumed(server):
    """A ceiling of 0 and a pause are reasons, and healthy() is true again after each."""
    consumer = consume(server, Collector())
    assert not consumer.healthy() and "not started" in consumer.healthy().reason
    with consumer:
        wait_until(consumer.healthy)
        assert consumer.healthy().reason == "connected to 1 nsqd"
        consumer.set_max_in_flight(0)
        assert not consumer.healthy() and "max_in_flight is 0" in consumer.healthy().reason
        consumer.set_max_in_flight(1)
        assert consumer.healthy()
        consumer.pause()
        assert not consumer.healthy() and "paused" in consumer.healthy().reason
        consumer.resume()
        assert consumer.healthy()
    assert not consumer.healthy() and "stopped" in consumer.healthy().reason


def test_healthy_says_that_a_consumer_without_handler_needs_a_loop(server):
    """It consumes only while somebody iterates over messages()."""
    publish(server, b"x")
    with consume(server, None) as consumer:
        wait_until(lambda: consumer.stats().connections)
        assert not consumer.healthy() and "messages()" in consumer.healthy().reason
        messages = consumer.messages(timeout=20)
        next(messages)
        assert consumer.healthy()
        messages.close()
        assert not consumer.healthy() and "messages()" in consumer.healthy().reason


def test_connects_and_disconnects_are_reported(server):
    events = []
    consumer = consume(
        server, Collector(),
        on_connect=lambda address: events.append(("up", address)),
        on_disconnect=lambda address: events.append(("down", address)),
    )
    with consumer:
        wait_until(lambda: events)
        server.restart()
        wait_until(lambda: len(events) == 3)
    assert events[:3] == [(word, server.tcp_address) for word in ("up", "down", "up")]


def test_a_discovery_filter_chooses_the_nsqds(server_factory, lookupd_factory):
    lookupd = lookupd_factory()
    servers = [server_factory(lookupd_tcp_addresses=[lookupd.tcp_address]) for _ in range(2)]
    for server in servers:
        publish(server, b"x")
    wanted = servers[0].tcp_address
    consumer = Consumer(
        "events", "c", Collector(), lookupd_http_addresses=[lookupd.http_address],
        discovery_filter=lambda found: [a for a in found if a == wanted],
        config=Config(lookupd_poll_interval=0.2),
    )
    with consumer:
        wait_until(lambda: len(registered(lookupd, "events")) == 2)
        wait_until(lambda: [c.address for c in consumer.stats().connections] == [wanted])
        until = time.monotonic() + 0.6  # some more rounds
        wait_until(lambda: time.monotonic() > until)
        assert [c.address for c in consumer.stats().connections] == [wanted]
