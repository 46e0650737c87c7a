"""The Producer on both kinds of server: outcomes, limits, Futures, discovery, statistics, exit."""

import signal
import threading
import time

import pytest

from nsqclient import (
    ClosedError, Config, ConfigError, Consumer, InvalidMessageError, InvalidTopicError, Producer,
    PublishNotSentError, PublishRejectedError,
)
from tests.support.processes import (
    STARTS_NO_THREAD_AT_ITS_END, in_child, run_program, start_threads,
)
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


@pytest.fixture
def producer(server):
    with Producer([server.tcp_address]) as producer:
        yield producer


def test_a_publish_returns_when_the_message_is_stored(producer, server):
    producer.publish("events", b"hello")
    assert server.stats("events")["depth"] == 1


def test_many_bodies_are_stored_and_counted(producer, server):
    assert producer.publish_many("events", [b"a", b"b", b"c"]) == 3
    assert producer.publish_many("events", []) == 0
    assert server.stats("events")["depth"] == 3


def test_bodies_are_split_to_fit_the_body_limit(server_factory):
    server = server_factory(max_body_size=5_000, max_msg_size=2_000)
    config = Config(nsqd_max_body_size=5_000, nsqd_max_msg_size=2_000)
    with Producer([server.tcp_address], config=config) as producer:
        assert producer.publish_many("events", [b"x" * 1_500] * 10) == 10
    assert server.stats("events")["depth"] == 10


@pytest.mark.parametrize("publish", [
    lambda producer, *message: producer.publish(*message, defer=60),
    lambda producer, *message: producer.publish_async(*message, defer=60).result(30),
], ids=["blocking", "async"])
def test_a_deferred_message_is_deferred(producer, server, publish):
    server.create("events", "c")
    publish(producer, "events", b"later")
    wait_until(lambda: server.stats("events", "c")["deferred_count"] == 1)


@pytest.mark.parametrize("arguments, error", [
    (("bad topic", b"x"), InvalidTopicError),
    ((b"t", b"x"), InvalidTopicError),
    (("t", b""), InvalidMessageError),
    (("t", "text"), InvalidMessageError),
    (("t", b"x" * (1024 * 1024 + 1)), InvalidMessageError),
    (("t", b"x", -1), InvalidMessageError),
    (("t", b"x", 3601), InvalidMessageError),
    (("t", b"x", float("nan")), InvalidMessageError),
    (("t", b"x", None, -1), ConfigError),
], ids=lambda value: repr(value)[:40])
def test_bad_input_raises_and_costs_nothing(producer, server, arguments, error):
    """A mistake raises its own error before the wire, in the call; the connection works on."""
    producer.publish("good", b"before")
    for publish in (producer.publish, producer.publish_async):
        with pytest.raises(error):
            publish(*arguments)
    producer.publish("good", b"after")
    assert server.stats("good")["depth"] == 2
    assert [topic["topic_name"] for topic in server.stats()["topics"]] == ["good"]


def test_a_limit_that_only_nsqd_knows_gives_its_code(server_factory):
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
    def publish():
        for _ in range(100):
            producer.publish("events", b"x")

    for thread in start_threads(8, publish):
        thread.join()
    assert server.stats("events")["depth"] == 800
    assert 1 <= len(server.stats()["producers"]) <= 8
    assert producer.stats().connections == {
        server.tcp_address: len(server.stats()["producers"])}


def test_a_refused_port_is_a_publish_not_sent_error(server):
    with Producer([f"127.0.0.1:{free_port()}"]) as producer:
        began = time.monotonic()
        with pytest.raises(PublishNotSentError, match="refused.*see that nsqd runs"):
            producer.publish("events", b"x", timeout=0.3)
        assert time.monotonic() - began < 15


def test_calls_after_close_raise_closed_error(server):
    producer = Producer([server.tcp_address])
    producer.publish("events", b"x")
    assert producer.close()
    assert producer.close()
    for call in (producer.publish, producer.publish_async):
        with pytest.raises(ClosedError):
            call("events", b"x")
    with pytest.raises(ClosedError):
        producer.ping()


def test_ping_connects_without_publishing(producer, server):
    producer.ping()
    assert not server.stats()["topics"]


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


def test_a_future_ends_when_its_message_is_stored(producer, server):
    futures = [producer.publish_async("events", b"%d" % n) for n in range(500)]
    assert [future.result(30) for future in futures] == [None] * 500
    assert server.stats("events")["depth"] == 500
    assert producer.flush()


@pytest.mark.parametrize("options", [
    {"on_full": "drop"}, {"max_pending": 0}, {"max_pending_bytes": 1.5}, {"linger": -1},
], ids=str)
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
    for _ in range(4):
        producer.publish("events", b"12345")
    producer.publish("events", b"12345", defer=1)
    producer.publish_async("events", b"12345").result(30)
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
        assert isinstance(future.exception(30), PublishNotSentError)


@pytest.mark.skipif(
    STARTS_NO_THREAD_AT_ITS_END, reason="this Python starts no thread while the process ends")
def test_a_script_that_ends_without_close_has_everything_stored(server):
    done = run_program("publish_and_end", server.tcp_address, "5000")
    assert (done.returncode, done.stderr) == (0, "")
    assert server.stats("events")["depth"] == 5000


def test_a_script_that_cannot_publish_ends_soon_and_says_so():
    began = time.monotonic()
    done = run_program("publish_and_end", f"127.0.0.1:{free_port()}", "10")
    assert done.returncode == 0
    assert "no outcome at exit: 10 publishes to events" in done.stderr
    assert 4.5 < time.monotonic() - began < 40


def test_close_works_in_a_signal_handler(server):
    """A handler that interrupts publish_async anywhere may close: it returns in time."""
    def child():
        closed = []
        producer = Producer([server.tcp_address])

        def close(signum, frame):
            began = time.monotonic()
            closed.append(producer.close(0.5))
            closed.append(time.monotonic() - began)

        signal.signal(signal.SIGUSR1, close)
        producer.publish("events", b"x")
        # Sent by a thread, so that it comes at any moment of the loop.
        threading.Timer(0.05, signal.raise_signal, [signal.SIGUSR1]).start()
        try:
            while True:
                producer.publish_async("events", b"x")
        except ClosedError:
            pass
        assert closed[1] < 3

    for _ in range(3):
        assert in_child(child) == 0


def test_a_finalizer_may_use_the_library_while_the_interpreter_ends(server):
    """Up to Python 3.11 a thread that is started then never runs: nothing may wait for one."""
    done = run_program("closed_in_finalizer", server.tcp_address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "publish_async: cannot start a thread: the interpreter is shutting down",
        "close: True", "stop: False", "in time: True",
    ]
