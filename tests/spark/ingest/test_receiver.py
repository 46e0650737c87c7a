"""From nsqd into the spool, on both kinds of server."""

from __future__ import annotations

import os
import signal
import threading

import pytest

pytest.importorskip("pyarrow")

from nsqclient.devserver import PartitionedCluster  # noqa: E402 - needs pyarrow
from nsqclient.errors import NSQError, PartitionError  # noqa: E402 - needs pyarrow
from nsqclient.producer import Producer  # noqa: E402 - needs pyarrow
from nsqclient.spark.errors import SpoolError, SpoolLockedError  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest import gathering  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest.receiver import Receiver  # noqa: E402 - needs pyarrow
from nsqclient.spark.options import read_options  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.segment import read_rows  # noqa: E402 - needs pyarrow
from tests.support.waiting import wait_until  # noqa: E402 - needs pyarrow


@pytest.fixture
def receive(tmp_path):
    """Factory of receivers; they are stopped with the test."""
    started = []

    def start(*servers, drain=False, start=True, **options):
        texts = {
            "topic": "t", "channel": "c", "spoolDir": str(tmp_path / "the spöol 漢 #1"),
            "nsqd": ",".join(server.tcp_address for server in servers),
            "nsqdHttp": ",".join(server.http_address for server in servers), **options,
        }
        receiver = Receiver(read_options(texts, "stream"))
        started.append(receiver)
        if drain:
            receiver.prepare_drain()
        if start:
            receiver.open()
        return receiver

    yield start
    for receiver in started:
        receiver.stop()


def publish(server, count, first=0):
    """Messages whose bodies are numbers."""
    with Producer([server.tcp_address]) as producer:
        producer.publish_many("t", [b"%d" % number for number in range(first, first + count)])


def stored(receiver):
    """Every body in the spool, sorted as numbers."""
    spool = receiver.spool
    return sorted(
        int(body) for entry in spool.batch(0, spool.last)
        for body in read_rows(spool.path_of(entry.number)).column("body").to_pylist()
    )


def has_rows(receiver, count):
    """Wait for so many rows in the spool."""
    wait_until(lambda: receiver.spool.waiting[0] >= count, 20, f"{count} rows in the spool")


def counts(server):
    """Depth and messages in flight of the channel."""
    stats = server.stats("t", "c")
    return stats["depth"], stats["in_flight_count"]


def test_everything_is_stored_and_finished(server, receive):
    """The channel is empty, the spool has each message once."""
    publish(server, 3000)
    receiver = receive(server)
    has_rows(receiver, 3000)
    receiver.stop()
    assert stored(receiver) == list(range(3000))
    assert counts(server) == (0, 0)


def test_a_stop_leaves_nothing_in_flight(server, receive):
    """At whatever moment: what is not in the spool is back in the channel."""
    publish(server, 5000)
    receiver = receive(server, max_in_flight="1000")
    has_rows(receiver, 1)
    receiver.stop()
    depth, in_flight = counts(server)
    assert in_flight == 0 and depth + len(stored(receiver)) == 5000


def test_two_nsqds_with_several_connections_share_max_in_flight(server_factory, receive):
    """It is the total."""
    servers = [server_factory(), server_factory()]
    for index, one in enumerate(servers):
        publish(one, 500, index * 500)
    receiver = receive(*servers, connections="2", max_in_flight="40")
    has_rows(receiver, 1000)
    assert receiver.lag()["connections"] == 4
    assert stored(receiver) == list(range(1000))


def test_nsqds_are_found_through_lookupd(server_factory, lookupd_factory, receive):
    """And so are their HTTP ports, for the depth."""
    lookupd = lookupd_factory()
    server = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address])
    publish(server, 100)
    wait_until(lambda: lookupd.get("/lookup", topic="t"), 30, "it is registered")
    receiver = receive(lookupd=lookupd.http_address, lookupd_poll_interval="100ms")
    has_rows(receiver, 100)
    wait_until(lambda: receiver.lag()["depth"] == {server.http_address: 0}, 30, "the depth")


def test_a_full_spool_stops_the_flow_until_spark_has_caught_up(server, receive):
    """Messages wait at nsqd, not here."""
    publish(server, 3000)
    receiver = receive(server, maxSpoolMessages="1000", max_in_flight="200")
    has_rows(receiver, 1000)
    wait_until(lambda: counts(server)[1] == 0, 30, "nothing is in flight")
    assert receiver.is_full and receiver.spool.waiting[0] < 1600
    taken = receiver.spool.last
    receiver.spool.mark_committed(taken)
    receiver.balance()
    wait_until(lambda: receiver.spool.last > taken, 30, "it goes on")


def test_a_restarted_nsqd_is_found_again(server, receive):
    """And what was out comes again, once."""
    publish(server, 1000)
    receiver = receive(server, max_reconnect_delay="100ms")
    has_rows(receiver, 1000)
    server.restart()
    publish(server, 500, 1000)
    has_rows(receiver, 1500)
    assert stored(receiver) == list(range(1500))


@pytest.mark.real
def test_a_killed_nsqd_makes_no_duplicate(real_nsqd, receive):
    """It begins again where its disk queue was last noted; what it held in memory is lost."""
    server = real_nsqd(mem_queue_size=100)
    server.post("/topic/create", topic="t")
    server.post("/channel/create", topic="t", channel="c")
    for first in range(0, 20_000, 5000):
        publish(server, 5000, first)
    receiver = receive(server, max_reconnect_delay="100ms", msg_timeout="1s", connections="1")
    has_rows(receiver, 5000)
    server.kill()
    server.start()
    publish(server, 1, 20_000)
    wait_until(lambda: 20_000 in stored(receiver), 20, "it reads on")
    wait_until(lambda: counts(server) == (0, 0), 20, "all is finished")
    rows = stored(receiver)
    assert len(rows) == len(set(rows))


def test_a_late_fin_makes_no_duplicate(server_factory, receive, monkeypatch):
    """A stall longer than msg_timeout: nsqd sends copies, which are dropped and finished."""
    server = server_factory(msg_timeout=1.0)
    publish(server, 50)
    receiver = receive(server, msg_timeout="1s")
    append = receiver.spool.append

    def slowly(*arguments):
        verdict = append(*arguments)
        if receiver.spool.last == 1 and not receiver.spool.copies_dropped:
            wait_until(lambda: counts(server)[0] + server.stats("t", "c")["timeout_count"], 20,
                       "nsqd took it back")
        return verdict

    monkeypatch.setattr(receiver.spool, "append", slowly)
    wait_until(lambda: receiver.spool.copies_dropped, 20, "copies came")
    wait_until(lambda: counts(server) == (0, 0), 20, "all is finished")
    assert stored(receiver) == list(range(50))


def test_messages_whose_fin_was_lost_in_a_crash_are_dropped(server_factory, receive):
    """Durable, not finished, and then the process died."""
    server = server_factory(msg_timeout=1.0)
    publish(server, 50)
    first = receive(server, msg_timeout="1s")
    has_rows(first, 50)
    first._ingest._writer.pass_reports = lambda: None  # no word to the spool from now on
    for sub in first._ingest._subs:
        sub.conn.close()
    first.spool.folder.close()  # as a killed process lets it go
    publish(server, 50)
    second = receive(server, msg_timeout="1s", start=False)
    rows = stored(first)
    known = len(rows)
    second.open()
    first._ingest.stop()
    wait_until(lambda: counts(server) == (0, 0), 20, "all is finished")
    assert known == 50 and len(stored(second)) == 100


def test_a_full_disk_gives_everything_back(server, receive, monkeypatch):
    """The query fails with what to do; nothing is finished that is not stored."""
    publish(server, 200)
    receiver = receive(server, start=False)
    folder = receiver.spool.folder

    def full(data):
        raise SpoolError(folder.path, "cannot be written: No space left on device")

    receiver.spool.open(patience=0)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_tmp", full)
        patch.setattr(receiver.spool, "open", lambda *arguments: None)
        receiver.open()
        with pytest.raises(SpoolError, match="No space"):
            wait_until(lambda: receiver.check())
        wait_until(lambda: counts(server) == (200, 0), 30, "all went back")
        receiver.stop()
    again = receive(server)
    has_rows(again, 200)
    assert stored(again) == list(range(200))


def test_a_drain_ends_by_itself(server, receive):
    """When what was there has come; nothing is left in flight, and the depth is known to be 0."""
    publish(server, 2500)
    receiver = receive(server, drain=True)
    wait_until(receiver.drain_is_over, 20)
    assert stored(receiver) == list(range(2500))
    assert counts(server) == (0, 0)


def test_a_drain_without_http_ends_after_a_silence(server, receive):
    """Nobody can be asked for the depth."""
    publish(server, 100)
    receiver = receive(server, drain=True, nsqdHttp="", idleMs="300")
    wait_until(receiver.drain_is_over, 20)
    assert stored(receiver) == list(range(100))


def test_a_drain_of_an_empty_channel_ends(server, receive):
    """With nothing."""
    receiver = receive(server, drain=True)
    wait_until(receiver.drain_is_over, 20)
    assert stored(receiver) == []


def test_a_drain_of_a_topic_that_nobody_has_ends(lookupd_factory, receive, caplog):
    """nsqlookupd was asked, and knows no such topic: nothing is not an error."""
    receiver = receive(drain=True, lookupd=lookupd_factory().http_address)
    wait_until(receiver.drain_is_over, 20)
    assert "no nsqd has the topic t" in caplog.text


def test_a_drain_that_leaves_messages_says_so(server, receive, monkeypatch, caplog):
    """A paused channel gives nothing, and the next run begins there."""
    publish(server, 10)
    server.post("/channel/create", topic="t", channel="c")
    server.post("/channel/pause", topic="t", channel="c")
    receiver = receive(server, drain=True, start=False)
    monkeypatch.setattr(receiver._drain, "_return_time", 0.5)
    receiver.open()
    wait_until(receiver.drain_is_over, 20)
    assert "is the channel paused? Left for the next run: 10 messages" in caplog.text


def test_large_messages_are_held_back_by_their_bytes(server, receive, monkeypatch):
    """While the disk is slow, nsqd keeps them; then all come."""
    monkeypatch.setattr(gathering, "MOST_BYTES", 20_000)
    receiver = receive(server, connections="1")
    append, reached, gate = receiver.spool.append, threading.Event(), threading.Event()

    def slowly(*arguments):
        reached.set()
        return gate.wait(20) and append(*arguments)

    monkeypatch.setattr(receiver.spool, "append", slowly)
    publish(server, 1)
    assert reached.wait(10)
    with Producer([server.tcp_address]) as producer:
        producer.publish_many("t", [b"%d" % number + b" " * 1000 for number in range(1, 500)])
    wait_until(lambda: receiver._ingest._flow.is_paused, 30, "the flow is stopped")
    gate.set()
    has_rows(receiver, 500)
    wait_until(lambda: not receiver._ingest._flow.is_paused, 30, "it goes on")
    assert stored(receiver) == list(range(500))


def test_a_drain_without_any_nsqd_fails(receive, monkeypatch):
    """With the reason of the last dial."""
    receiver = receive(drain=True, nsqd="127.0.0.1:1")
    monkeypatch.setattr(receiver, "_started", receiver._started - 60)
    with pytest.raises(NSQError, match="127.0.0.1:1"):
        wait_until(receiver.drain_is_over, 20)


def test_what_no_retry_mends_is_told(server_factory, receive):
    """nsqd refuses us: TLS was asked for and is not there."""
    receiver = receive(server_factory(), tls_v1="true")
    with pytest.raises(NSQError, match="(?i)tls"):
        wait_until(lambda: receiver.check())


def test_a_topic_with_partitions_is_refused(receive):
    """It would wait for ever otherwise; the query ends."""
    with PartitionedCluster(1, 1) as cluster:
        cluster.create_topic("t", 2)
        receiver = receive(lookupd=cluster.lookupd_http_addresses[0])
        with pytest.raises(PartitionError, match="has partitions"):
            wait_until(lambda: receiver.check())
        receiver.stop()


def test_a_second_receiver_is_refused(server, receive, monkeypatch):
    """Two queries on one spool."""
    receive(server)
    second = receive(server, start=False)
    with pytest.raises(SpoolLockedError):
        second.spool.open(patience=0)


def test_several_processes_fill_one_spool(server, receive):
    """Under one numbering; and they end with nothing in flight."""
    publish(server, 3000)
    receiver = receive(server, ingestProcesses="2")
    has_rows(receiver, 3000)
    wait_until(lambda: receiver.lag()["connections"] == 4, 30, "both are connected")
    receiver.stop()
    assert stored(receiver) == list(range(3000))
    assert counts(server) == (0, 0)


def test_a_copy_that_reaches_another_process_is_dropped(server_factory, receive):
    """The first process is stopped before it can send FIN; the second gets the messages."""
    server = server_factory(msg_timeout=1.0)
    receiver = receive(server, ingestProcesses="2", msg_timeout="1s", connections="1")
    first, second = receiver._ingest._children
    wait_until(lambda: receiver.lag()["connections"] == 2, 20, "both are connected")
    answer = first.send

    def stall(*words):
        # Durable by now; the answer that would let FIN go comes too late.
        if words[0] == "verdict" and words[1].number and not receiver.spool.copies_dropped:
            os.kill(first._process.pid, signal.SIGSTOP)
        answer(*words)

    first.send = stall
    publish(server, 400)
    try:
        wait_until(lambda: receiver.spool.copies_dropped, 30, "copies reached the other process")
    finally:
        os.kill(first._process.pid, signal.SIGCONT)
    wait_until(lambda: counts(server) == (0, 0), 30, "all is finished")
    assert stored(receiver) == list(range(400))
    assert second.stored > 0


def test_a_killed_process_ends_the_query_and_loses_nothing(server_factory, receive):
    """Its messages come again; the error says what happened."""
    server = server_factory(msg_timeout=1.0)
    publish(server, 1000)
    receiver = receive(server, ingestProcesses="2", msg_timeout="1s")
    has_rows(receiver, 1)
    os.kill(receiver._ingest._children[0]._process.pid, signal.SIGKILL)
    with pytest.raises(NSQError, match="ingest process 1 ended by itself"):
        wait_until(lambda: receiver.check())
    receiver.stop()
    again = receive(server, msg_timeout="1s")
    wait_until(lambda: counts(server) == (0, 0), 30, "all is finished")
    assert stored(again) == list(range(1000))


def test_a_full_spool_is_not_taken_for_the_end_of_a_drain(server, receive, monkeypatch):
    """Spark may be slow; the silence is our own."""
    publish(server, 3000)
    receiver = receive(server, drain=True, start=False, maxSpoolMessages="1000",
                       max_in_flight="200", idleMs="1", msg_timeout="1s")
    monkeypatch.setattr(receiver._drain, "_return_time", 0.001)
    receiver.open()
    wait_until(lambda: receiver.is_full and receiver._ingest.is_idle, 30, "the spool is full")
    wait_until(lambda: receiver._seen[0] > receiver._ingest.last_arrival, 30, "the depth is known")
    assert not receiver.drain_is_over()
    monkeypatch.setattr(receiver._drain, "_return_time", 7.0)
    while not receiver.drain_is_over():
        receiver.spool.mark_committed(receiver.spool.last)
        receiver.balance()
        receiver.spool.wait_for_more(receiver.spool.last, 0.05)
    assert counts(server) == (0, 0)
