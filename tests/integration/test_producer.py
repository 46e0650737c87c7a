"""The Producer on both kinds of server: outcomes, limits, threads, restarts."""

from __future__ import annotations

import threading
import time

import pytest

from nsqclient import (
    ClosedError,
    Config,
    ConfigError,
    Consumer,
    InvalidMessageError,
    InvalidTopicError,
    NotNSQError,
    NSQError,
    Producer,
    PublishNotSentError,
    PublishRejectedError,
    PublishUnknownError,
)
from tests.support.processes import start_threads
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


@pytest.fixture
def producer(server):
    """A producer for the server under test."""
    with Producer([server.tcp_address]) as producer:
        yield producer


def test_a_publish_returns_when_the_message_is_stored(producer, server):
    """After publish() the message is in the topic, with no waiting."""
    producer.publish("events", b"hello")
    assert server.stats("events")["depth"] == 1


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_bytes_like_bodies_are_taken(producer, server, body):
    """bytes, bytearray and memoryview may be published."""
    producer.publish("events", body)
    assert server.stats("events")["message_bytes"] == 1


def test_many_bodies_are_stored_and_counted(producer, server):
    """publish_many stores all, and says how many."""
    assert producer.publish_many("events", [b"a", b"b", b"c"]) == 3
    assert server.stats("events")["depth"] == 3


def test_no_bodies_need_no_server(producer, server):
    """publish_many of nothing stores nothing and is no error."""
    assert producer.publish_many("events", []) == 0


def test_bodies_are_split_to_fit_the_body_limit(server_factory):
    """More than one MPUB is sent where nsqd's body limit asks for it."""
    server = server_factory(max_body_size=5_000, max_msg_size=2_000)
    config = Config(nsqd_max_body_size=5_000, nsqd_max_msg_size=2_000)
    with Producer([server.tcp_address], config=config) as producer:
        assert producer.publish_many("events", [b"x" * 1_500] * 10) == 10
    assert server.stats("events")["depth"] == 10


def test_a_deferred_message_is_deferred(producer, server):
    """defer= goes to nsqd as a delay in the channel."""
    server.post("/topic/create", topic="events")
    server.post("/channel/create", topic="events", channel="c")
    producer.publish("events", b"later", defer=60)
    wait_until(lambda: server.stats("events", "c")["deferred_count"] == 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("bad topic", b"x"), InvalidTopicError),
        (("t" * 65, b"x"), InvalidTopicError),
        (("t\n", b"x"), InvalidTopicError),
        ((b"t", b"x"), InvalidTopicError),
        (("t", b""), InvalidMessageError),
        (("t", "text"), InvalidMessageError),
        (("t", None), InvalidMessageError),
        (("t", b"x" * (1024 * 1024 + 1)), InvalidMessageError),
        (("t", b"x", -1), InvalidMessageError),
        (("t", b"x", 3601), InvalidMessageError),
        (("t", b"x", float("nan")), InvalidMessageError),
        (("t", b"x", float("inf")), InvalidMessageError),
        (("t", b"x", "1s"), InvalidMessageError),
        (("t", b"x", None, -1), ConfigError),
        (("t", b"x", None, "1"), ConfigError),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_input_raises_and_costs_nothing(producer, server, arguments, error):
    """A mistake raises its own error before the wire; the connection stays and works."""
    producer.publish("good", b"before")
    with pytest.raises(error):
        producer.publish(*arguments)
    producer.publish("good", b"after")
    assert server.stats("good")["depth"] == 2
    assert [topic["topic_name"] for topic in server.stats()["topics"]] == ["good"]


def test_the_largest_message_is_stored(producer, server):
    """A body of exactly the limit is no mistake."""
    producer.publish("events", b"x" * (1024 * 1024))
    assert server.stats("events")["message_bytes"] == 1024 * 1024


def test_a_limit_that_only_nsqd_knows_gives_its_code(server_factory):
    """Over nsqd's own limit: rejected with nsqd's code; the next publish is stored."""
    server = server_factory(max_msg_size=100)
    with Producer([server.tcp_address]) as producer:
        for _ in range(3):
            with pytest.raises(PublishRejectedError) as caught:
                producer.publish("events", b"x" * 101)
            assert caught.value.code == "E_BAD_MESSAGE"
            assert not caught.value.retryable
            producer.publish("events", b"x" * 100)
    assert server.stats("events")["depth"] == 3


def test_threads_share_as_many_connections_as_publish_at_once(producer, server):
    """Publishes of many threads are all stored, over at most as many connections."""

    def publish():
        for _ in range(100):
            producer.publish("events", b"x")

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.stats("events")["depth"] == 800
    assert 1 <= len(server.stats()["producers"]) <= 8
    assert producer.stats().connections == {
        server.tcp_address: len(server.stats()["producers"])}


def test_a_refused_message_does_not_spoil_the_others(server_factory):
    """While one thread sends what nsqd refuses, those of other threads are all stored once."""
    server = server_factory(max_msg_size=100)
    rejected = []
    with Producer([server.tcp_address]) as producer:

        def offend():
            for _ in range(10):
                try:
                    producer.publish("events", b"x" * 101)
                except (PublishRejectedError, PublishUnknownError) as exc:
                    rejected.append(exc)

        def publish():
            for _ in range(50):
                producer.publish("events", b"x")

        threads = [threading.Thread(target=job) for job in (offend, publish, publish, publish)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(rejected) == 10
    # A retry after a lost connection may duplicate, but never lose.
    assert server.stats("events")["depth"] >= 150


def test_a_restarted_nsqd_is_found_again(server):
    """The same producer publishes before and after a restart."""
    with Producer([server.tcp_address]) as producer:
        producer.publish("events", b"before")
        server.restart()
        producer.publish("events", b"after")
    assert server.stats("events")["depth"] == 2


def test_a_dead_nsqd_is_skipped(server_factory):
    """With one of two nsqds down every publish is stored on the other, without delay."""
    alive, dead = server_factory(), server_factory()
    with Producer([alive.tcp_address, dead.tcp_address]) as producer:
        for _ in range(4):
            producer.publish("events", b"x")
        dead.stop()
        for _ in range(10):
            producer.publish("events", b"x", timeout=5)
    assert alive.stats("events")["depth"] >= 10


def test_a_refused_port_is_a_publish_not_sent_error(server):
    """A refused port ends with PublishNotSentError within the time, naming the reason."""
    with Producer([f"127.0.0.1:{free_port()}"]) as producer:
        began = time.monotonic()
        with pytest.raises(PublishNotSentError, match="refused.*see that nsqd runs"):
            producer.publish("events", b"x", timeout=0.3)
        assert time.monotonic() - began < 15


def test_an_unknown_host_is_named_in_the_error(server):
    """A host that does not exist is named in the error."""
    with Producer(["no-such-host.invalid:4150"]) as producer:
        with pytest.raises(PublishNotSentError, match="no-such-host.invalid"):
            producer.publish("events", b"x", timeout=0.3)


def test_the_http_port_is_recognised(server):
    """nsqd's HTTP port given for its TCP port: the error says so, at once."""
    with Producer([server.http_address]) as producer:
        with pytest.raises(PublishNotSentError, match="HTTP.*give nsqd's --tcp-address") as caught:
            producer.publish("events", b"x")
        assert isinstance(caught.value.__cause__, NotNSQError)


def test_calls_after_close_raise_closed_error(server):
    """A closed producer says that it is closed, and close() may be repeated."""
    producer = Producer([server.tcp_address])
    producer.publish("events", b"x")
    assert producer.close()
    assert producer.close()
    for call in (lambda: producer.publish("events", b"x"), producer.ping):
        with pytest.raises(ClosedError):
            call()


def test_ping_connects_without_publishing(producer, server):
    """ping() reaches the nsqd without publishing."""
    producer.ping()
    assert not server.stats()["topics"]


def test_an_idle_connection_answers_heartbeats(server):
    """After several heartbeat intervals without a publish the connection still works."""
    config = Config(heartbeat_interval=1.0)
    with Producer([server.tcp_address], config=config) as producer:
        producer.publish("events", b"x")
        client = server.stats()["producers"][0]["remote_address"]
        until = time.monotonic() + 3.5
        wait_until(lambda: time.monotonic() >= until)
        producer.publish("events", b"x")
        assert server.stats()["producers"][0]["remote_address"] == client


@pytest.mark.real
def test_a_sigkill_while_four_threads_publish_ends_no_call_late(real_nsqd):
    """Every call returns in time with success or a typed error; then the same producer works."""
    server = real_nsqd()
    outcomes: list[object] = []
    slowest = [0.0]
    stop = threading.Event()
    timeout = 1.0
    with Producer([server.tcp_address]) as producer:

        def publish():
            while not stop.is_set():
                began = time.monotonic()
                try:
                    producer.publish("events", b"x", timeout=timeout)
                    outcomes.append("stored")
                except NSQError as exc:
                    outcomes.append(exc)
                slowest[0] = max(slowest[0], time.monotonic() - began)

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(outcomes) > 1_000)
            server.kill()
            wait_until(lambda: sum(outcome != "stored" for outcome in outcomes) >= 4)
            server.start()
            seen = len(outcomes)
            wait_until(lambda: "stored" in outcomes[seen:], timeout=20)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert slowest[0] < timeout + 1
    failures = [outcome for outcome in outcomes if outcome != "stored"]
    assert failures
    assert all(isinstance(o, (PublishUnknownError, PublishRejectedError)) for o in failures)


def test_the_bytes_counter_counts_bodies(server):
    """Whichever way a publish takes: alone, deferred, many at once, from many threads."""
    with Producer([server.tcp_address]) as producer:
        producer.publish("events", b"12345")
        producer.publish("events", b"12345", defer=1)
        producer.publish_many("events", [b"12345"] * 3)
        assert producer.stats().bytes == 25
        threads = start_threads(8, lambda: [producer.publish("events", b"12345") for _ in range(9)])
        for thread in threads:
            thread.join()
        assert producer.stats().bytes == 25 + 8 * 9 * 5


def test_a_value_is_published_as_json_and_read_as_it_was(producer, server):
    """Also with a delay; a dict for a body is refused with what to call, and costs nothing."""
    value = {"customer": "Zoë", "items": [1, 2.5, None]}
    producer.publish_json("orders", value)
    producer.publish_json("orders", value, defer=0.01, timeout=10)
    with pytest.raises(InvalidMessageError, match="publish_json"):
        producer.publish("orders", value)
    with pytest.raises(InvalidMessageError, match="publish_json"):
        producer.publish_many("orders", [value])
    with pytest.raises(InvalidMessageError, match="no JSON can be made"):
        producer.publish_json("orders", {1, 2})
    with Consumer("orders", "c", nsqd_tcp_addresses=[server.tcp_address]) as consumer:
        loop = consumer.messages(timeout=30)
        assert [next(loop).json(), next(loop).json()] == [value, value]
        loop.close()
