"""Forks: parent and child never disturb each other."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from nsqclient import Config, Producer
from tests.integration.test_consumer import client_of, consume, publish
from tests.support.faults.proxy import FaultProxy
from tests.support.processes import (
    LIMIT, exit_status, fork, in_child, run_program, start_threads,
)
from tests.support.waiting import wait_until

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def producer(server):
    with Producer([server.tcp_address]) as producer:
        producer.publish("events", b"parent")
        yield producer


def clients(server) -> set[str]:
    return {client["remote_address"] for client in server.stats()["producers"]}


@contextlib.contextmanager
def undisturbed(producer: Producer, server) -> Iterator[None]:
    """Check that the parent's connection is the same after the block, and that it works."""
    before = clients(server)
    assert len(before) == 1
    yield
    producer.publish("events", b"parent again")
    producer.publish_async("events", b"parent again").result(30)
    # As many as there were threads that published.
    wait_until(lambda: len(clients(server)) == sum(producer.stats().connections.values()))
    assert before <= clients(server)


def test_close_in_the_child_keeps_the_parents_connection(producer, server):
    def child():
        producer.publish("events", b"child")
        assert producer.close(5)

    with undisturbed(producer, server):
        assert in_child(child) == 0
    assert server.stats("events")["depth"] == 4


def test_a_child_may_end_in_any_way(producer, server):
    """No exit, SIGKILL or close() without a publish is seen on the parent's connection."""
    def killed():
        producer.publish("events", b"child")
        os.kill(os.getpid(), signal.SIGKILL)

    with undisturbed(producer, server):
        assert in_child(lambda: producer.publish("events", b"child")) == 0
        assert in_child(lambda: producer.close(5) or 1 / 0) == 0
        assert in_child(lambda: os._exit(0)) == 0
        assert in_child(killed) == -signal.SIGKILL
    assert server.stats("events")["depth"] == 5


def test_the_child_publishes_after_the_parents_close(producer, server):
    has_published, is_closed = FORK.Event(), FORK.Event()

    def child():
        producer.publish("events", b"child")
        has_published.set()
        assert is_closed.wait(LIMIT)
        for _ in range(10):
            producer.publish("events", b"child")
        assert producer.close(5)

    pid = fork(child)
    assert has_published.wait(LIMIT)
    assert producer.close(5)
    # The child holds no copy of the parent's socket: nsqd sees its end.
    wait_until(lambda: len(clients(server)) == 1)
    is_closed.set()
    assert exit_status(pid) == 0
    assert server.stats("events")["depth"] == 12


def test_a_fork_while_other_threads_publish_harms_nothing(producer, server):
    """Whatever the other threads are at when the process forks, nobody hangs, nothing is lost."""
    stop = threading.Event()
    stored = []

    def publish():
        while not stop.is_set():
            producer.publish("events", b"thread", timeout=30)
            producer.publish_async("events", b"thread", timeout=30).result(30)
            stored.append(2)

    def child():
        producer.publish("events", b"child", timeout=30)
        producer.publish_async("events", b"child", timeout=30).result(30)
        assert producer.close(10)

    with undisturbed(producer, server):
        threads = start_threads(4, publish)
        try:
            wait_until(lambda: len(stored) > 10)
            assert [in_child(child) for _ in range(10)] == [0] * 10
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert server.stats("events")["depth"] == 1 + sum(stored) + 10 * 2 + 2


def test_a_fork_during_a_dial_harms_nothing(server, monkeypatch):
    """A connection that the parent is opening is the parent's alone."""
    monkeypatch.setattr("nsqclient.producer.nodes.HANDSHAKE_TIMEOUT", 60.0)
    with FaultProxy(server.tcp_address) as proxy:
        proxy.set_deaf()
        with Producer([proxy.address]) as producer:
            future = producer.publish_async("events", b"parent", timeout=30)
            wait_until(lambda: proxy.accepted == 1)
            assert in_child(lambda: producer.close(5) or 1 / 0) == 0
            proxy.set_deaf(False)
            assert future.result(30) is None
            assert proxy.accepted == 1


def test_a_consumer_goes_on_while_children_come_and_go(server):
    seen = []
    consumer = consume(server, lambda message: seen.append(message.body), max_in_flight=10,
                       workers=2, config=Config(heartbeat_interval=1.0))
    with consumer, Producer([server.tcp_address]) as producer:
        producer.publish("events", b"parent")
        wait_until(lambda: seen == [b"parent"])
        client = client_of(server)["remote_address"]
        for work in (lambda: producer.publish("events", b"child"), lambda: None, consumer.stop):
            assert in_child(work) == 0
        producer.publish("events", b"parent again")
        wait_until(lambda: seen == [b"parent", b"child", b"parent again"])
        assert client_of(server)["remote_address"] == client
        assert consumer.healthy()


class TaggedProducer(Producer):
    """A subclass whose constructor has other arguments."""

    def __init__(self, tag, address):
        super().__init__([address], config=Config(publish_timeout=20))
        self.tag = tag


def test_an_answer_in_a_forked_child_is_reported_as_lost(server):
    statuses = []

    def handle(message):
        def child():
            message.finish()
            assert message.has_responded

        statuses.append(in_child(child))

    publish(server, b"parent")
    with consume(server, handle, max_in_flight=100) as consumer:
        wait_until(lambda: consumer.stats().total.finished == 1)
    assert statuses == [0]


def test_a_subclass_of_producer_keeps_its_attributes_in_a_forked_child(server):
    """The child's publishes over its own connection; the constructor does not run again."""
    with TaggedProducer("blue", server.tcp_address) as producer:
        producer.publish("events", b"parent")

        def child():
            assert (producer.tag, producer.config.publish_timeout) == ("blue", 20)
            assert producer.stats().published == 0 and not producer.stats().connected
            producer.publish("events", b"child")
            assert producer.stats().published == 1

        assert in_child(child) == 0
        assert producer.stats().published == 1
        producer.publish("events", b"parent again")
        assert server.stats("events")["message_count"] == 3


@pytest.mark.parametrize("kind", [
    "publish", "publish_many", "publish_async", "ping", "close", "answer", "stop", "start", "reset",
])
def test_a_child_without_fork_hooks_resets_at_its_first_call(server, kind):
    """uWSGI forks its workers so: they use no connection, lock or thread of the parent."""
    result = run_program("forked_without_hooks", server.tcp_address, kind)
    assert result.returncode == 0, result.stderr
    children = {"publish": 12, "publish_many": 12, "publish_async": 12, "reset": 3}.get(kind, 0)
    parents = {"reset": 0, "answer": 1, "stop": 1, "start": 1}.get(kind, 3)
    assert server.stats("events")["message_count"] == children + parents
