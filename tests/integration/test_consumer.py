"""The Consumer on both kinds of server: delivery, answers, health, loops, discovery, stop."""

import itertools
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from nsqclient import (
    BatchHandler, ClosedError, Config, ConfigError, ConnectError, Consumer, InvalidChannelError,
    InvalidTopicError, NSQError, NegotiationError, Producer, Requeue,
)
from tests.support.servers.http_api import registered
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

#: max_in_flight applies whatever handlers take.
EAGER = Config(rdy_share_of_timeout=0)
#: No backoff and quick requeues, so that tests of retries are short.
QUICK = Config(max_backoff_duration=0, default_requeue_delay=0)


class Collector:
    """A handler that collects messages, and runs an action on each."""

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


def take(server, topic, count, channel="c"):
    """Consume ``count`` messages of a topic; return their bodies."""
    bodies = []
    with Consumer(topic, channel, nsqd_tcp_addresses=[server.tcp_address],
                  config=Config(max_in_flight=100)) as consumer:
        for message in itertools.islice(consumer.messages(timeout=20), count):
            message.finish()
            bodies.append(message.body)
    return bodies


def consume(server, handler, channel="c", **options):
    """A consumer of the topic ``events`` of one server."""
    return Consumer("events", channel, handler, nsqd_tcp_addresses=[server.tcp_address], **options)


def in_flight(server):
    """How many messages nsqd has out."""
    return server.stats("events", "c").get("in_flight_count")


def client_of(server):
    """nsqd's statistics of the channel's only client, or an empty dict."""
    return (server.stats("events", "c").get("clients") or [{}])[0]


@pytest.fixture
def release():
    """An event for handlers that block; set at the end, so that their threads end."""
    event = threading.Event()
    yield event
    event.set()


def workers_are_gone():
    """Threads that a stop has left behind end with their handler."""
    return not any(t.name.startswith("nsq-worker") for t in threading.enumerate())


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
    server = server_factory(msg_timeout=2.0)

    def work(message):
        until = time.monotonic() + 3
        wait = threading.Event()
        while time.monotonic() < until:
            wait.wait(0.1)
            message.touch()

    collector = Collector(work)
    publish(server, b"x")
    with consume(server, collector):
        wait_until(lambda: collector.messages and collector.messages[0].has_responded)
        wait_until(lambda: in_flight(server) == 0)
    assert len(collector.messages) == 1
    assert server.stats("events", "c")["timeout_count"] == 0


def test_heartbeats_survive_a_handler_that_blocks(server, release):
    """With all workers asleep for four heartbeats and a full queue the connection stays up.

    nsqd closes it after two without an answer.
    """
    collector = Collector(lambda message: release.wait(10))
    config = Config(heartbeat_interval=1.0)
    publish(server, *[b"%d" % n for n in range(40)])
    with consume(server, collector, max_in_flight=50, config=config):
        wait_until(lambda: collector.messages)
        client = client_of(server)["remote_address"]
        until = time.monotonic() + 4
        wait_until(lambda: time.monotonic() > until, timeout=20)
        publish(server, b"meanwhile")
        release.set()
        wait_until(lambda: b"meanwhile" in collector.bodies)
        assert client_of(server)["remote_address"] == client


def test_max_in_flight_is_never_passed(server, release):
    collector = Collector(lambda message: release.wait(20))
    publish(server, *[b"x"] * 50)
    with consume(server, collector, max_in_flight=7, workers=2, config=EAGER) as consumer:
        wait_until(lambda: in_flight(server) == 7)
        consumer.set_max_in_flight(12)
        wait_until(lambda: in_flight(server) == 12)
        assert client_of(server)["ready_count"] == 12
        release.set()


def test_every_nsqd_is_consumed_with_fewer_in_flight_than_nsqds(server_factory):
    servers = [server_factory() for _ in range(2)]
    for server in servers:
        publish(server, *[b"x"] * 5)
    collector = Collector()
    config = Config(low_rdy_idle_timeout=1.0, rdy_redistribute_interval=0.2)
    with Consumer("events", "c", collector, max_in_flight=1, config=config,
                  nsqd_tcp_addresses=[server.tcp_address for server in servers]):
        wait_until(lambda: len(collector.messages) == 10, timeout=20)


def test_nsqds_are_found_through_nsqlookupd(server_factory, lookupd_factory):
    lookupds = [lookupd_factory(), lookupd_factory()]
    servers = [server_factory(lookupd_tcp_addresses=[each.tcp_address]) for each in lookupds]
    collector = Collector()
    addresses = [lookupds[0].http_address, f"http://{lookupds[1].http_address}"]
    with Consumer("events", "c", collector, max_in_flight=10, lookupd_http_addresses=addresses,
                  config=Config(lookupd_poll_interval=0.2)):
        for server in servers:
            publish(server, b"x", b"y")
        wait_until(lambda: len(collector.messages) == 4)


def test_stop_requeues_unstarted_messages(server, release):
    first = Collector(lambda message: release.wait(60))
    publish(server, *[b"%d" % n for n in range(20)])
    consumer = consume(server, first, max_in_flight=20, workers=2, config=EAGER).start()
    wait_until(lambda: len(first.messages) == 2)
    wait_until(lambda: in_flight(server) == 20)
    reports = []
    stopping = threading.Thread(target=lambda: reports.append(consumer.stop(40)))
    stopping.start()
    second = Collector()
    with consume(server, second, max_in_flight=20):
        wait_until(lambda: len(second.messages) == 18, timeout=35)
        release.set()
        stopping.join()
    report, = reports
    assert report and report.requeued_unstarted == 18 and report.finished == 2
    assert Counter(first.bodies + second.bodies) == Counter(b"%d" % n for n in range(20))


def test_stop_returns_in_time_whatever_a_handler_does(server, release):
    def seconds() -> float:
        collector = Collector(lambda message: release.wait(30))
        publish(server, b"x")
        consumer = consume(server, collector).start()
        wait_until(lambda: collector.messages)
        began = time.monotonic()
        report = consumer.stop(timeout=0.5)
        took = time.monotonic() - began
        assert not report
        assert (report.abandoned, report.threads) == (1, ("nsq-worker",))
        return took

    assert any(seconds() < 0.5 + 1 for _ in range(5))  # a machine may be busy
    release.set()
    wait_until(workers_are_gone)


def test_stop_may_be_repeated_and_start_after_it_raises(server):
    consumer = consume(server, Collector()).start()
    assert consumer.stop(5)
    assert consumer.stop(5)
    with pytest.raises(ClosedError):
        consumer.start()


@pytest.mark.parametrize("arguments, error", [
    ({"topic": "bad topic"}, InvalidTopicError),
    ({"channel": ""}, InvalidChannelError),
    ({"workers": 0}, ConfigError),
    ({"workers": 1.5}, ConfigError),
    ({"max_in_flight": -1}, ConfigError),
    ({"nsqd_tcp_addresses": []}, ConfigError),
    ({"nsqd_tcp_addresses": "127.0.0.1:4150"}, ConfigError),
    ({"nsqd_tcp_addresses": ["127.0.0.1"]}, ConfigError),
    ({"lookupd_http_addresses": ["ftp://127.0.0.1:4161"]}, ConfigError),
], ids=repr)
def test_bad_arguments_are_refused_at_once(arguments, error):
    good = {"topic": "t", "channel": "c", "handler": print,
            "nsqd_tcp_addresses": ["127.0.0.1:4150"]}
    with pytest.raises(error):
        Consumer(**(good | arguments))


@pytest.mark.parametrize("kind, address, words", [
    ("nsqd_tcp", lambda nsqd, start_lookupd: f"127.0.0.1:{free_port()}", "refused"),
    ("nsqd_tcp", lambda nsqd, start_lookupd: nsqd.http_address, "HTTP"),
    # The real one resets the connection, which loses its answer.
    ("lookupd_http", lambda nsqd, start_lookupd: start_lookupd().tcp_address,
     "TCP port|closed before an answer"),
])
def test_wrong_addresses_are_reported_and_retried(server, lookupd_factory, kind, address, words):
    errors = []
    options = {f"{kind}_addresses": [address(server, lookupd_factory)]}
    with Consumer("events", "c", print, on_error=errors.append, **options):
        wait_until(lambda: any(re.search(words, str(error)) for error in errors))


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
    ("nsqd_tcp_addresses", r"events/c .* for [0-9.]+ s, .*refused.*see that nsqd runs"),
    ("lookupd_http_addresses", "the last failure: nsqlookupd .*refused"),
])
def test_a_loop_that_was_never_connected_raises(kind, words):
    address, failed = f"127.0.0.1:{free_port()}", threading.Event()
    options = {kind: [address], "on_error": lambda error: failed.set()}
    with Consumer("events", "c", **options) as consumer:
        assert failed.wait(30)
        with pytest.raises(ConnectError, match=words) as caught:
            list(consumer.messages(timeout=0.2))
    assert caught.value.address == address and caught.value.__cause__ is not None


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
    with consume(server, collector, max_in_flight=5, config=config,
                 on_backoff=lambda phase, wait: phases.append((phase, wait))) as consumer:
        wait_until(lambda: len(phases) >= 5)
        assert not consumer.healthy() or consumer.stats().backoff == "testing"
        failing.clear()
        wait_until(lambda: phases[-1][0] == "flowing")
        wait_until(lambda: client_of(server)["ready_count"] == 5)
        wait_until(lambda: in_flight(server) == 0 and server.stats("events", "c")["depth"] == 0)
        assert consumer.healthy()
    waits = [wait for phase, wait in phases if phase == "waiting"]
    assert waits[:3] == pytest.approx([0.2, 0.4, 0.8])


def test_a_paused_consumer_gets_nothing(server):
    collector = Collector()
    with consume(server, collector, max_in_flight=3, config=EAGER) as consumer:
        wait_until(lambda: client_of(server).get("ready_count") == 3)
        consumer.pause()
        wait_until(lambda: client_of(server)["ready_count"] == 0)
        publish(server, b"x")
        assert server.stats("events", "c")["depth"] == 1
        consumer.resume()
        wait_until(lambda: collector.messages)


def test_health_says_why_nothing_is_consumed(server):
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
    with consume(server, Collector(),
                 on_connect=lambda address: events.append(("up", address)),
                 on_disconnect=lambda address: events.append(("down", address))):
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
    with Consumer("events", "c", Collector(), lookupd_http_addresses=[lookupd.http_address],
                  discovery_filter=lambda found: [a for a in found if a == wanted],
                  config=Config(lookupd_poll_interval=0.2)) as consumer:
        wait_until(lambda: len(registered(lookupd, "events")) == 2)
        wait_until(lambda: [c.address for c in consumer.stats().connections] == [wanted])
        until = time.monotonic() + 0.6  # some more rounds
        wait_until(lambda: time.monotonic() > until)
        assert [c.address for c in consumer.stats().connections] == [wanted]


PATIENT = QUICK.replace(max_attempts=0)


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
    assert started.wait(30)
    wait_until(lambda: consumer.stats().total.received == 3)
    report = consumer.stop(0.2)
    assert not report and report.complete
    assert report.abandoned + report.requeued_unstarted >= 3 - consumer.stats().total.requeued
    release.set()
    wait_until(workers_are_gone)


def test_stop_waits_for_answers_from_elsewhere(server):
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
    stopper.join(30)
    assert reports and reports[0]
    assert consumer.stats().total.finished == 2
    wait_until(lambda: server.stats("events", "c")["depth"] == in_flight(server) == 0)


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
        thread.join(30)
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
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, server.tcp_address],
        capture_output=True, timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_consumer_whose_sockets_are_patched_does_not_start(server, monkeypatch):
    """As with gevent and eventlet: its reader would end, and healthy() would not notice."""
    monkeypatch.setattr(socket.socket, "__module__", "gevent._socket3")
    consumer = Consumer("events", "c", print, nsqd_tcp_addresses=[server.tcp_address])
    with pytest.raises(NegotiationError, match="patched by gevent._socket3: .* another process"):
        consumer.start()
    assert consumer.healthy().reason == "not started"
