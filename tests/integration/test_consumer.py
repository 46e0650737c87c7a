"""The Consumer on both kinds of server: delivery, answers, heartbeats, discovery, stop."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from nsqclient import (
    ClosedError,
    Config,
    ConfigError,
    Consumer,
    InvalidChannelError,
    InvalidTopicError,
    Producer,
)
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

#: max_in_flight applies whatever handlers take.
EAGER = Config(rdy_share_of_timeout=0)
#: No backoff and quick requeues, so that tests of retries are short.
QUICK = Config(max_backoff_duration=0, default_requeue_delay=0)


class Collector:
    """A handler that keeps what it was given, and runs an action on each message."""

    def __init__(self, action=lambda message: None):
        self.messages = []
        self._action = action

    def __call__(self, message):
        self.messages.append(message)
        self._action(message)

    @property
    def bodies(self):
        return [message.body for message in self.messages]


def publish(server, *bodies, topic="events"):
    with Producer([server.tcp_address]) as producer:
        producer.publish_many(topic, bodies)


def consume(server, handler, channel="c", **options):
    """A consumer of the topic ``events`` of one server."""
    return Consumer(
        "events", channel, handler, nsqd_tcp_addresses=[server.tcp_address], **options
    )


def in_flight(server):
    """How many messages nsqd has out."""
    return server.stats("events", "c").get("in_flight_count")


def test_each_of_many_messages_is_finished(server):
    """Not one FIN of some thousands is missing, so nsqd delivers nothing again."""
    count = 4000
    bodies = [b"%d" % n for n in range(count)]
    collector = Collector()
    publish(server, *bodies)
    with consume(server, collector, max_in_flight=500, workers=3) as consumer:
        wait_until(lambda: consumer.stats().total.finished == count)
        wait_until(lambda: in_flight(server) == 0)
    stats = server.stats("events", "c")
    assert (stats["depth"], stats["requeue_count"], stats["timeout_count"]) == (0, 0, 0)
    assert Counter(collector.bodies) == Counter(bodies)


def test_a_message_carries_what_nsqd_said(server):
    """Body, id, attempts, timestamp, address and the deadline that was negotiated are there."""
    collector = Collector()
    before = time.time_ns()
    publish(server, b"hello")
    with consume(server, collector, config=Config(msg_timeout=30)):
        wait_until(lambda: collector.messages)
    message, = collector.messages
    assert (message.body, message.attempts) == (b"hello", 1)
    assert len(message.id) == 16
    assert before <= message.timestamp <= time.time_ns()
    assert message.nsqd_address == server.tcp_address
    assert 20 < message.time_left <= 30
    assert message.has_responded


def test_a_touched_message_outlives_its_timeout(server_factory):
    server = server_factory(msg_timeout=1.0)

    def work(message):
        until = time.monotonic() + 2.5
        wait = threading.Event()
        while time.monotonic() < until:
            wait.wait(0.3)
            message.touch()

    collector = Collector(work)
    publish(server, b"x")
    with consume(server, collector):
        wait_until(lambda: collector.messages and collector.messages[0].has_responded)
        wait_until(lambda: in_flight(server) == 0)
    assert len(collector.messages) == 1
    assert server.stats("events", "c")["timeout_count"] == 0


def test_heartbeats_survive_a_handler_that_blocks(server):
    """With all workers asleep for four heartbeats and a full queue the connection stays up.

    nsqd closes it after two without an answer.
    """
    release = threading.Event()
    collector = Collector(lambda message: release.wait(10))
    config = Config(heartbeat_interval=1.0)
    publish(server, *[b"%d" % n for n in range(40)])
    with consume(server, collector, max_in_flight=50, config=config):
        wait_until(lambda: collector.messages)
        client = server.stats("events", "c")["clients"][0]["remote_address"]
        until = time.monotonic() + 4
        wait_until(lambda: time.monotonic() > until, timeout=20)
        publish(server, b"meanwhile")
        release.set()
        wait_until(lambda: b"meanwhile" in collector.bodies)
        assert server.stats("events", "c")["clients"][0]["remote_address"] == client


def test_max_in_flight_is_never_passed(server):
    release = threading.Event()
    collector = Collector(lambda message: release.wait(20))
    publish(server, *[b"x"] * 50)
    with consume(server, collector, max_in_flight=7, workers=2, config=EAGER) as consumer:
        wait_until(lambda: in_flight(server) == 7)
        consumer.set_max_in_flight(12)
        wait_until(lambda: in_flight(server) == 12)
        assert server.stats("events", "c")["clients"][0]["ready_count"] == 12
        release.set()


def test_every_nsqd_is_consumed_with_fewer_in_flight_than_nsqds(server_factory):
    """max_in_flight 1 over two nsqds: both are drained, in turns."""
    servers = [server_factory() for _ in range(2)]
    for server in servers:
        publish(server, *[b"x"] * 5)
    collector = Collector()
    config = Config(low_rdy_idle_timeout=1.0, rdy_redistribute_interval=0.2)
    consumer = Consumer(
        "events", "c", collector, max_in_flight=1, config=config,
        nsqd_tcp_addresses=[server.tcp_address for server in servers],
    )
    with consumer:
        wait_until(lambda: len(collector.messages) == 10, timeout=20)


def test_nsqds_are_found_through_nsqlookupd(server_factory, lookupd_factory):
    """Both nsqlookupds are asked, and a topic that appears later is found."""
    lookupds = [lookupd_factory(), lookupd_factory()]
    servers = [
        server_factory(lookupd_tcp_addresses=[lookupd.tcp_address]) for lookupd in lookupds
    ]
    collector = Collector()
    consumer = Consumer(
        "events", "c", collector, max_in_flight=10,
        lookupd_http_addresses=[lookupds[0].http_address, f"http://{lookupds[1].http_address}"],
        config=Config(lookupd_poll_interval=0.2),
    )
    with consumer:
        for server in servers:
            publish(server, b"x", b"y")
        wait_until(lambda: len(collector.messages) == 4)


def test_stop_requeues_unstarted_messages(server):
    """What no handler has seen is another consumer's at once; what runs may finish."""
    release = threading.Event()
    first = Collector(lambda message: release.wait(20))
    publish(server, *[b"%d" % n for n in range(20)])
    consumer = consume(server, first, max_in_flight=20, workers=2, config=EAGER).start()
    wait_until(lambda: len(first.messages) == 2)
    wait_until(lambda: in_flight(server) == 20)
    reports = []
    stopping = threading.Thread(target=lambda: reports.append(consumer.stop(10)))
    stopping.start()
    second = Collector()
    with consume(server, second, max_in_flight=20):
        wait_until(lambda: len(second.messages) == 18, timeout=9)
        release.set()
        stopping.join()
    report, = reports
    assert report and report.requeued_unstarted == 18 and report.finished == 2
    assert Counter(first.bodies + second.bodies) == Counter(b"%d" % n for n in range(20))


def test_stop_returns_in_time_whatever_a_handler_does(server):
    release = threading.Event()
    collector = Collector(lambda message: release.wait(30))
    publish(server, b"x")
    consumer = consume(server, collector).start()
    wait_until(lambda: collector.messages)
    began = time.monotonic()
    report = consumer.stop(timeout=0.5)
    assert time.monotonic() - began < 0.5 + 1
    assert not report
    assert (report.abandoned, report.threads) == (1, ("nsq-worker",))
    release.set()
    wait_until(lambda: not any(t.name == "nsq-worker" for t in threading.enumerate()))


def test_stop_may_be_repeated_and_start_after_it_raises(server):
    consumer = consume(server, Collector())
    consumer.start()
    assert consumer.stop(5)
    assert consumer.stop(5)
    with pytest.raises(ClosedError):
        consumer.start()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "bad topic"}, InvalidTopicError),
        ({"channel": ""}, InvalidChannelError),
        ({"workers": 0}, ConfigError),
        ({"workers": 1.5}, ConfigError),
        ({"max_in_flight": -1}, ConfigError),
        ({"nsqd_tcp_addresses": []}, ConfigError),
        ({"nsqd_tcp_addresses": "127.0.0.1:4150"}, ConfigError),
        ({"nsqd_tcp_addresses": ["127.0.0.1"]}, ConfigError),
        ({"lookupd_http_addresses": ["ftp://127.0.0.1:4161"]}, ConfigError),
    ],
    ids=repr,
)
def test_bad_arguments_are_refused_at_once(arguments, error):
    """The constructor names the mistake; nothing was started."""
    good = {
        "topic": "t", "channel": "c", "handler": print, "nsqd_tcp_addresses": ["127.0.0.1:4150"]
    }
    with pytest.raises(error):
        Consumer(**(good | arguments))


@pytest.mark.parametrize("wrong", ["refused", "http", "lookupd-tcp"])
def test_wrong_addresses_are_reported_and_retried(server, lookupd_factory, wrong):
    """A wrong port is reported through on_error, in words that say what to do."""
    errors = []
    if wrong == "lookupd-tcp":
        options = {"lookupd_http_addresses": [lookupd_factory().tcp_address]}
    elif wrong == "http":
        options = {"nsqd_tcp_addresses": [server.http_address]}
    else:
        options = {"nsqd_tcp_addresses": [f"127.0.0.1:{free_port()}"]}
    with Consumer("events", "c", print, on_error=errors.append, **options):
        wait_until(lambda: errors)
    assert {"refused": "refused", "http": "HTTP", "lookupd-tcp": "TCP port"}[wrong] in str(
        errors[0]
    )
