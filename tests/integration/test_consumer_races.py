"""A consumer under rough treatment: answers from everywhere, storms, stops at the wrong moment."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time

import pytest

from nsqclient import BatchHandler, Config, Consumer, NSQError, Requeue
from tests.integration.test_consumer import QUICK, Collector, consume, in_flight, publish
from tests.support.waiting import wait_until

PATIENT = QUICK.replace(max_attempts=0)


@pytest.fixture
def release():
    """An event for handlers that block; set at the end, so that their threads end."""
    event = threading.Event()
    yield event
    event.set()


def workers_are_gone():
    """Threads that a stop has left behind end with their handler."""
    return not any(t.name.startswith("nsq-worker") for t in threading.enumerate())


def test_a_fin_does_not_wait_for_its_handler(server, release):
    """finish() in the middle of a handler is nsqd's to know at once, not when it returns."""
    def early(message):
        message.finish()
        release.wait(20)

    publish(server, b"x")
    collector = Collector(early)
    with consume(server, collector):
        wait_until(lambda: collector.messages)
        wait_until(lambda: in_flight(server) == 0, timeout=15)
        release.set()


@pytest.mark.parametrize("size", [3, 10])
def test_a_batch_that_is_abandoned_is_reported(server, release, size):
    """Whoever handed it over, its messages were not answered, and the report is false."""
    started = threading.Event()

    def handle(batch):
        started.set()
        release.wait(20)

    publish(server, *[b"x"] * 3)
    handler = BatchHandler(handle, size=size, max_wait=0.05)
    consumer = consume(server, handler, max_in_flight=100).start()
    assert started.wait(10)
    wait_until(lambda: consumer.stats().total.received == 3)
    report = consumer.stop(0.2)
    assert not report and report.complete
    assert report.abandoned + report.requeued_unstarted >= 3 - consumer.stats().total.requeued
    release.set()
    wait_until(workers_are_gone)


def test_stop_waits_for_answers_from_elsewhere(server):
    """Messages that a handler left to another thread may be answered until the deadline."""
    collector = Collector(lambda message: message.enable_async())
    publish(server, b"a", b"b")
    consumer = consume(server, collector, max_in_flight=2).start()
    wait_until(lambda: len(collector.messages) == 2)
    reports = []
    stopper = threading.Thread(target=lambda: reports.append(consumer.stop(20)))
    stopper.start()
    wait_until(lambda: not consumer.healthy())
    stopper.join(0.5)
    assert stopper.is_alive()
    for message in collector.messages:
        message.finish()
    stopper.join(5)
    assert reports and reports[0]
    assert consumer.stats().total.finished == 2
    wait_until(lambda: server.stats("events", "c")["depth"] == in_flight(server) == 0)


def test_messages_that_were_never_answered_do_not_starve(server_factory):
    """Once nsqd has taken them back, they count no longer: is_starved() is about what is out."""
    server = server_factory(msg_timeout=1.0)
    collector = Collector(lambda message: message.enable_async())
    publish(server, b"x")
    with consume(server, collector, config=PATIENT) as consumer:
        wait_until(lambda: collector.messages)
        assert consumer.is_starved()
        consumer.pause()
        wait_until(lambda: collector.messages[-1].time_left <= 0 and not consumer.is_starved())


def test_a_storm_of_changes_loses_nothing(server_factory):
    """max_in_flight, pause, requeues, a restart, all at once: every message is handled."""
    servers = [server_factory(msg_timeout=5.0) for _ in range(2)]
    chance = random.Random(1)
    seen, over = set(), threading.Event()

    def handler(message):
        if chance.random() < 0.05:
            raise Requeue(delay=0, backoff=chance.random() < 0.3)
        seen.add(message.body)

    def storm(consumer):
        while not over.wait(0.005):
            consumer.set_max_in_flight(chance.choice([0, 1, 2, 7, 40]))
            chance.choice([consumer.pause, consumer.resume])()
            consumer.stats()
        consumer.resume()
        consumer.set_max_in_flight(40)

    config = Config(
        max_attempts=0, backoff_multiplier=0.01, max_backoff_duration=0.1,
        low_rdy_idle_timeout=1.0, rdy_redistribute_interval=0.2,
    )
    consumer = Consumer(
        "events", "c", handler, max_in_flight=40, workers=4, config=config,
        nsqd_tcp_addresses=[server.tcp_address for server in servers],
    )
    bodies = {b"%d" % n for n in range(2000)}
    with consumer:
        storming = threading.Thread(target=storm, args=(consumer,))
        storming.start()
        for server in servers:
            publish(server, *sorted(bodies))
        wait_until(lambda: len(seen) > 200, timeout=30)
        servers[0].restart()
        over.set()
        storming.join()
        wait_until(lambda: seen == bodies, timeout=30)
        assert consumer.stats().repairs == 0


def test_nothing_flows_before_and_after_a_loop_over_messages(server):
    """While nobody loops, messages stay in nsqd instead of expiring here; the next loop has them.
    """
    def ready():
        return server.stats("events", "c")["clients"][0]["ready_count"]

    def take_one():
        with contextlib.closing(consumer.messages(timeout=20)) as loop:
            message = next(loop)
            message.finish()
            return message.body

    publish(server, b"a")
    with consume(server, None, max_in_flight=5) as consumer:
        wait_until(lambda: server.stats("events", "c").get("client_count") == 1)
        assert ready() == 0
        assert take_one() == b"a"
        wait_until(lambda: ready() == 0)
        publish(server, b"b")
        wait_until(lambda: server.stats("events", "c")["depth"] == 1)
        assert take_one() == b"b"


def test_answers_from_many_threads_survive_broken_connections(server):
    """Finish, requeue and touch after a loss raise nothing by default, and nothing hangs."""
    failures = []

    def answer(message):
        try:
            message.touch()
            chance.choice([message.finish, lambda: message.requeue(0, backoff=False)])()
        except NSQError as exc:
            failures.append(exc)

    chance = random.Random(2)
    threads = []

    def hand_over(message):
        message.enable_async()
        thread = threading.Thread(target=answer, args=(message,))
        threads.append(thread)
        thread.start()

    publish(server, *[b"%d" % n for n in range(200)])
    with consume(server, hand_over, max_in_flight=20, workers=2, config=PATIENT) as consumer:
        wait_until(lambda: consumer.stats().total.finished > 20)
        server.restart()
        wait_until(lambda: consumer.stats().total.finished > 100)
        wait_until(lambda: server.stats("events", "c")["depth"] == 0, timeout=30)
    for thread in threads:
        thread.join(10)
    assert failures == []


_PROGRAM = """
import sys, threading
from nsqclient import Consumer
first = threading.Event()
consumer = Consumer("events", "c", lambda m: first.set(), nsqd_tcp_addresses=sys.argv[1:],
                    max_in_flight=100, workers=4).start()
assert first.wait(20)
"""


def test_a_program_may_end_without_stop(server):
    """Daemon threads in the middle of their work neither hang nor crash the interpreter."""
    publish(server, *[b"x"] * 2000)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, server.tcp_address],
        capture_output=True, timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert time.monotonic() - began < 20
