"""drain() and run_until_empty() on both kinds of server: when they end, and what is left then."""

import signal
import threading
from collections import Counter

import pytest

from nsqclient import (
    BatchHandler, Config, ConfigError, ConnectError, Consumer, Requeue, partitioned,
)
from nsqclient.devserver import PartitionedCluster
from tests.integration.test_consumer import Collector, consume, publish
from tests.support.faults.proxy import FaultProxy
from tests.support.servers.http_api import registered
from tests.support.waiting import wait_until

BODIES = [b"%d" % n for n in range(200)]


def http_of(*servers):
    return {"nsqd_http_addresses": [server.http_address for server in servers]}


def counts(server):
    stats = server.stats("events", "c")
    return stats["depth"], stats["in_flight_count"], stats["deferred_count"]


def lines(caplog, start):
    return [record.getMessage() for record in caplog.records
            if record.getMessage().startswith(f"events/c: {start}")]


def test_a_loop_takes_what_is_there_and_ends(server, caplog):
    """When nsqd says that nothing waits and nothing is in flight; another loop may follow."""
    publish(server, *BODIES)
    with consume(server, None, max_in_flight=10) as consumer:
        found = [message.body for message in consumer.drain(**http_of(server))]
        assert Counter(found) == Counter(BODIES)
        wait_until(lambda: counts(server) == (0, 0, 0))
        assert list(consumer.drain(**http_of(server))) == []
        publish(server, b"later")
        assert [m.body for m in consumer.drain(**http_of(server))] == [b"later"]
    assert lines(caplog, "ended after") == []


def test_run_until_empty_handles_what_is_there_and_stops(server):
    collector = Collector()
    publish(server, *BODIES)
    consumer = consume(server, collector, max_in_flight=20, workers=2)
    report = consumer.run_until_empty(**http_of(server))
    assert Counter(collector.bodies) == Counter(BODIES)
    assert report and report.is_empty and report.stop.complete
    assert (report.finished, report.requeued, report.deferred, report.paused) == (200, 0, 0, 0)
    assert report.unknown == () and counts(server) == (0, 0, 0)


def test_a_requeued_message_is_reported_and_left(server, caplog):
    def handle(message):
        if message.body == b"7":
            raise Requeue(delay=60, backoff=False)

    publish(server, *BODIES)
    server.post("/pub", b"late", topic="events", defer="60000")
    report = consume(server, handle, max_in_flight=10).run_until_empty(**http_of(server))
    assert report and (report.finished, report.requeued, report.deferred) == (199, 1, 2)
    assert counts(server) == (0, 0, 2)
    assert "2 deferred messages" in lines(caplog, "drained, except for")[0]


def test_messages_of_another_consumer_are_waited_for(server, caplog):
    """Here the other consumer requeues them after the drain has logged that it waits."""
    caplog.set_level("INFO")
    held = threading.Event()

    def hold(message):
        held.set()
        message.enable_async()
        kept.append(message)

    kept, found = [], []
    publish(server, b"x")
    with consume(server, hold) as other:
        assert held.wait(30)
        drain = consume(server, Collector(found.append))
        thread = threading.Thread(
            target=drain.run_until_empty, kwargs=http_of(server))
        thread.start()
        wait_until(lambda: lines(caplog, "drain: waiting for 1 message in flight"))
        other.pause()
        kept[0].requeue(delay=0, backoff=False)
        thread.join(30)
    assert not thread.is_alive() and [message.body for message in found] == [b"x"]


def test_messages_of_a_paused_channel_are_reported_and_left(server, caplog):
    publish(server, *BODIES)
    server.post("/channel/create", topic="events", channel="c")
    server.post("/channel/pause", topic="events", channel="c")
    wait_until(lambda: counts(server) == (200, 0, 0))
    report = consume(server, Collector()).run_until_empty(**http_of(server))
    assert (report.finished, report.paused) == (0, 200)
    (line,) = lines(caplog, "drained, except for 200 messages")
    assert "paused" in line and server.tcp_address in line


def test_a_signal_or_a_stop_ends_it_and_the_report_is_false(server):
    publish(server, *BODIES[:5])

    signals = iter([signal.SIGTERM])  # once: a second one would end the process

    def interrupt(message):
        for number in signals:
            signal.raise_signal(number)  # delivered to the main thread, which waits

    report = consume(server, interrupt).run_until_empty(**http_of(server))
    assert not report and not report.is_empty and report.stop.complete

    publish(server, b"x")
    consumer = consume(server, lambda message: consumer.stop())
    assert not consumer.run_until_empty(**http_of(server)).is_empty


def test_the_two_calls_say_which_one_a_consumer_has(server):
    with pytest.raises(ConfigError, match="use run_until_empty"):
        consume(server, print).drain()
    with pytest.raises(ConfigError, match="loop over drain"):
        consume(server, None).run_until_empty()


@pytest.mark.parametrize("delay, options", [(2, {"wait_deferred": True}), (0.01, {})])
def test_deferred_messages_are_waited_for_with_wait_deferred_or_when_they_are_due(
    server, delay, options
):
    """nsqd looks at the deferred messages of a new channel up to five seconds late."""
    attempts = []

    def handle(message):
        attempts.append(message.attempts)
        if message.attempts == 1:
            raise Requeue(delay=delay, backoff=False)

    publish(server, b"x")
    report = consume(server, handle).run_until_empty(**options, **http_of(server))
    assert attempts == [1, 2] and report and (report.finished, report.deferred) == (1, 0)
    assert counts(server) == (0, 0, 0)


def test_where_the_caller_allows_it_a_silence_is_the_end(server, caplog):
    publish(server, *BODIES)
    sizes = []
    consumer = consume(server, BatchHandler(lambda batch: sizes.append(len(batch)), 150, 3600),
                       max_in_flight=300)
    report = consumer.run_until_empty(
        end_after_silence=0.5, nsqd_http_addresses=["127.0.0.1:1"])
    assert sum(sizes) == 200 and report.unknown == (server.tcp_address,)
    assert not report and not report.is_empty
    (line,) = lines(caplog, "ended after 0.5 s without a message")
    assert "127.0.0.1:1" in line
    publish(server, *BODIES[:3])
    with consume(server, None) as looped:
        assert len(list(looped.drain(end_after_silence=0.5))) == 3


#: For those that are to fail.
SHORT = Config(drain_patience=1.0)


def test_an_nsqd_that_hangs_when_it_is_asked_is_not_empty(server):
    publish(server, *BODIES)
    with FaultProxy(server.http_address) as proxy:
        where = {"nsqd_http_addresses": [proxy.address]}
        proxy.set_black_hole()
        seen = Collector(lambda message: len(seen.bodies) == 200 and proxy.heal())
        assert consume(server, seen, max_in_flight=10).run_until_empty(**where).is_empty
        proxy.set_black_hole()
        with pytest.raises(ConnectError, match=f"could not see .*{proxy.address}"):
            consume(server, print, config=SHORT).run_until_empty(**where)


@pytest.mark.parametrize("form", ["loop", "handler"])
def test_an_nsqd_that_is_restarted_or_suspended_in_the_middle_is_drained(
    server_factory, lookupd_factory, form
):
    """One of two that nsqlookupd lists: the end of the other is not the end."""
    lookupd = lookupd_factory()
    servers = [server_factory(lookupd_tcp_addresses=[lookupd.tcp_address]) for _ in range(2)]
    for server in servers:
        publish(server, *BODIES)
    wait_until(lambda: len(registered(lookupd, "events")) == 2)
    first, back = threading.Event(), threading.Event()

    def restart():
        first.wait(60)
        servers[1].stop()
        back.wait(1.5)  # longer than the other nsqd needs
        servers[1].start()

    thread = threading.Thread(target=restart)
    thread.start()
    seen = set()

    def take(message):
        seen.add((message.nsqd_address, message.body))
        if len(seen) == 20:
            first.set()
            wait_until(lambda: len(registered(lookupd, "events")) == 1)

    where = {"lookupd_http_addresses": [lookupd.http_address], "max_in_flight": 2}
    if form == "handler":
        assert Consumer("events", "c", take, **where).run_until_empty().is_empty
    else:
        with Consumer("events", "c", **where) as consumer:
            for message in consumer.drain():
                take(message)
    thread.join()
    assert len(seen) == 400


def test_a_partitioned_topic_is_drained(caplog):
    caplog.set_level("INFO")
    with PartitionedCluster(2, 1) as cluster:
        cluster.create_topic("events", partitions=3, channels=["c"])
        lookupds = cluster.lookupd_http_addresses
        with partitioned.Producer(lookupd_http_addresses=lookupds) as producer:
            producer.publish_many("events", BODIES[:10])
        with partitioned.Consumer(
            "events", "c", lookupd_http_addresses=lookupds, max_in_flight=4
        ) as consumer:
            assert len(list(consumer.drain())) == 10
    assert lines(caplog, "drained: 10 finished")
