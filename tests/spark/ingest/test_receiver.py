"""From nsqd into the spool, on both kinds of server."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

import pytest

pytest.importorskip("pyarrow")

from nsqclient.errors import ConfigError, NSQError  # noqa: E402 - needs pyarrow
from nsqclient.producer.producer import Producer  # noqa: E402 - needs pyarrow
from nsqclient.spark.errors import (  # noqa: E402 - needs pyarrow
    SpoolError,
    SpoolFullError,
    SpoolLockedError,
)
from nsqclient.spark.ingest import message_buffer  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest import receiver as receiver_module  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest.receiver import Receiver  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest.subscription import BulkSubscription  # noqa: E402 - needs pyarrow
from nsqclient.spark.options import read_options  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool import folder as folder_module  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.segment import read_rows  # noqa: E402 - needs pyarrow
from tests.support.servers.http_api import registered  # noqa: E402 - needs pyarrow
from tests.support.waiting import wait_until  # noqa: E402 - needs pyarrow


#: For what is between our processes: the kind of the server matters little.
OF_THE_PROCESSES = pytest.mark.parametrize(
    "server_kind", ["embedded", pytest.param("real", marks=[pytest.mark.real, pytest.mark.long])])


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
    wait_until(lambda: counts(server) == (0, 0), 20, "all is finished")


def test_a_stop_leaves_nothing_in_flight(server, receive):
    """At whatever moment: what is not in the spool is back in the channel."""
    publish(server, 5000)
    receiver = receive(server, max_in_flight="1000")
    has_rows(receiver, 1)
    receiver.stop()
    # What was sent back last arrives after the stop; a message that was not takes a minute.
    wait_until(lambda: counts(server) == (5000 - len(stored(receiver)), 0), 20, "all is back")


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
    wait_until(lambda: registered(lookupd, "t"))
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
        result = append(*arguments)
        if receiver.spool.last == 1 and not receiver.spool.copies_dropped:
            wait_until(lambda: counts(server)[0] + server.stats("t", "c")["timeout_count"], 20,
                       "nsqd took it back")
        return result

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


def test_messages_are_requeued_when_the_disk_is_full(server, receive, monkeypatch):
    """The query fails with what to do; nothing is finished that is not stored."""
    publish(server, 200)
    receiver = receive(server, start=False)
    folder = receiver.spool.folder

    def full(data):
        raise SpoolError(folder.path, "cannot be written: No space left on device")

    receiver.spool.open(patience=0)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_tmp", full)
        patch.setattr(receiver.spool, "open", lambda *arguments, **named: None)
        receiver.open()
        with pytest.raises(SpoolError, match="No space"):
            wait_until(lambda: receiver.check())
        wait_until(lambda: counts(server) == (200, 0), 30, "all went back")
        receiver.stop()
    again = receive(server)
    has_rows(again, 200)
    assert stored(again) == list(range(200))


@pytest.fixture
def full_disk(monkeypatch, tmp_path):
    """A flag file: while it is there, no process of ours can write a segment."""
    flag = tmp_path / "full"
    real = folder_module.write_durably

    def write(path, data):
        if flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, data)

    monkeypatch.setattr(folder_module, "write_durably", write)
    monkeypatch.setattr(receiver_module, "_LAG_INTERVAL", 0.05)
    monkeypatch.setattr(receiver_module, "_DRAIN_INTERVAL", 0.05)
    return flag


def test_a_full_disk_pauses_the_ingest_until_there_is_space(server, receive, full_disk, caplog):
    """No failure: messages wait at nsqd, none is in flight, and it goes on by itself."""
    caplog.set_level("INFO", "nsqclient.spark")
    receiver = receive(server)
    publish(server, 100)
    has_rows(receiver, 100)
    full_disk.touch()
    publish(server, 200, 100)
    wait_until(lambda: receiver.lag()["disk_full"], 30, "the disk is full")
    wait_until(lambda: counts(server) == (200, 0), 30, "all went back")
    assert receiver._ingest._flow.is_paused and receiver.is_full
    receiver.check()
    receiver.spool.mark_committed(receiver.spool.last)  # what is stored is committed all the same
    full_disk.unlink()
    has_rows(receiver, 200)
    wait_until(lambda: counts(server) == (0, 0), 30, "all is finished")
    assert not receiver.lag()["disk_full"]
    assert caplog.text.count("until there is space") == caplog.text.count("space again") == 1


def test_a_start_on_a_full_disk_waits_for_space(server, receive, full_disk):
    """What is spooled can be read meanwhile."""
    publish(server, 100)
    first = receive(server)
    has_rows(first, 100)
    first.stop()
    full_disk.touch()
    publish(server, 50, 100)
    second = receive(server)
    assert stored(second) == list(range(100)) and second.is_full
    full_disk.unlink()
    has_rows(second, 150)
    assert stored(second) == list(range(150))


def test_a_disk_that_fails_otherwise_while_it_is_tried_ends_the_query(
    server, receive, full_disk, monkeypatch
):
    """With the reason."""
    receiver = receive(server)
    full_disk.touch()
    publish(server, 10)
    wait_until(lambda: receiver.is_full, 30, "the disk is full")

    def broken():
        raise SpoolError("/x", "Input/output error")

    monkeypatch.setattr(receiver.spool, "retry", broken)
    with pytest.raises(SpoolError, match="Input/output error"):
        wait_until(lambda: receiver.check())


def test_a_drain_does_not_wait_for_space_for_ever(server, receive, full_disk, monkeypatch):
    """It has an end; the error says what to do, and everything is at nsqd."""
    publish(server, 10)
    receiver = receive(server, drain=True, start=False)
    receiver.spool.open(patience=0)
    monkeypatch.setattr(receiver.spool, "open", lambda *arguments, **named: None)
    full_disk.touch()
    receiver.open()
    wait_until(lambda: receiver.is_full, 30, "the disk is full")
    assert not receiver.drain_is_over()
    receiver.check_space()
    monkeypatch.setattr(receiver_module, "_SPACE_PATIENCE", 0.0)
    with pytest.raises(SpoolFullError, match="free some space"):
        receiver.check_space()
    receiver.stop()
    assert counts(server) == (10, 0)


@pytest.mark.long
@OF_THE_PROCESSES
def test_a_full_disk_of_several_processes_pauses_all(server, receive, monkeypatch):
    """A process reports it, and its messages go back."""
    receiver = receive(server, ingestProcesses="2")
    wait_until(lambda: receiver.lag()["connections"] == 4, 30, "both are connected")
    with monkeypatch.context() as patch:
        def full(*arguments):
            raise SpoolFullError("/x", "full", 10)

        patch.setattr(receiver.spool, "append", full)
        patch.setattr(receiver.spool, "retry", lambda: False)
        publish(server, 300)
        wait_until(lambda: receiver.is_full, 30, "the disk is full")
        wait_until(lambda: counts(server) == (300, 0), 30, "all went back")
    has_rows(receiver, 300)
    receiver.stop()
    assert stored(receiver) == list(range(300))


def test_a_drain_ends_by_itself(server, receive):
    """When what was there has come; nothing is left in flight, and the depth is known to be 0."""
    publish(server, 2500)
    receiver = receive(server, drain=True)
    wait_until(receiver.drain_is_over, 20)
    assert stored(receiver) == list(range(2500))
    assert counts(server) == (0, 0)


def test_a_drain_without_http_ends_after_a_silence(server, receive):
    """No HTTP port reports the depth."""
    publish(server, 100)
    receiver = receive(server, drain=True, nsqdHttp="", idleMs="1000")
    wait_until(receiver.drain_is_over, 20)
    assert stored(receiver) == list(range(100))


def test_a_drain_of_two_nsqds_of_which_one_has_no_http_takes_all(server_factory, receive, caplog):
    """Its messages are not in the sum of the depths, which had ended the drain too early."""
    servers = [server_factory(), server_factory()]
    for index, one in enumerate(servers):
        publish(one, 1500, index * 1500)
    receiver = receive(*servers, drain=True, max_in_flight="100", idleMs="1000",
                       nsqdHttp=f"{servers[0].http_address},127.0.0.1:1")
    wait_until(receiver.drain_is_over, 20)
    assert stored(receiver) == list(range(3000))
    [warning] = [record.getMessage() for record in caplog.records if "depth" in record.message]
    assert "t/c: the depth is unknown, so the read ends after 1 s without a message" in warning
    assert "127.0.0.1:1: " in warning and "refused" in warning
    assert receiver.lag()["depth_unknown"] == ["127.0.0.1:1"]


def test_a_drain_that_cannot_know_its_end_fails(server, receive):
    """Before it takes a message, where nsqd has no HTTP address; else after drain_patience."""
    publish(server, 10)
    with pytest.raises(ConfigError, match=f"{server.tcp_address} is not known: set nsqdHttp"):
        receive(server, drain=True, nsqdHttp="", start=False)
    receiver = receive(server, drain=True, nsqdHttp="127.0.0.1:1", drain_patience="500ms")
    with pytest.raises(NSQError, match="for 0.5 s .drain_patience.: 127.0.0.1:1: .*refused"):
        wait_until(receiver.drain_is_over, 20)


def test_the_lag_after_a_drain_is_what_is_left(server, receive, monkeypatch):
    """Not what it was a moment before the end."""
    publish(server, 500)
    receiver = receive(server, drain=True, start=False)
    monkeypatch.setattr(receiver, "_watch_lag", lambda: None)  # its last look was before
    receiver.open()
    wait_until(receiver.drain_is_over, 20)
    assert receiver.lag()["depth"] == {server.http_address: 0} and receiver.lag()["drained"]


def test_the_first_messages_are_waited_for(server, receive):
    """A connection takes a while; where nothing waits it ends soon, and where none opens, too."""
    publish(server, 10)
    receiver = receive(server)
    receiver.wait_for_first(0, 20.0)
    assert receiver.spool.last > 0
    before = time.monotonic()
    receiver.wait_for_first(receiver.spool.last + 5, 60.0)
    assert time.monotonic() - before < 30.0


def test_the_first_messages_are_not_waited_for_in_vain(receive):
    """No nsqd is there."""
    receiver = receive(nsqd="127.0.0.1:1")
    receiver.wait_for_first(0, 0.2)
    assert receiver.spool.last == 0


def test_the_silence_of_a_drain_begins_with_the_connection(server, receive, monkeypatch):
    """A dial that takes longer than idleMs does not end a drain without HTTP."""
    receiver = receive(server, drain=True, start=False, nsqdHttp="", idleMs="60000",
                       connections="1")
    dial = BulkSubscription.open

    def dial_slowly(sub, deadline):
        receiver._started = receiver._ingest.last_arrival = time.monotonic() - 3600
        dial(sub, deadline)

    monkeypatch.setattr(BulkSubscription, "open", dial_slowly)
    receiver.open()
    wait_until(lambda: receiver._ingest is not None and receiver._ingest.connections, 20)
    assert not receiver.drain_is_over()


def test_a_drain_of_an_empty_channel_ends(server, receive):
    """With nothing."""
    receiver = receive(server, drain=True)
    wait_until(receiver.drain_is_over, 20)
    assert stored(receiver) == []


def test_a_drain_of_an_unknown_topic_ends(lookupd_factory, receive, caplog):
    """nsqlookupd was asked, and knows no such topic: nothing is not an error."""
    receiver = receive(drain=True, lookupd=lookupd_factory().http_address)
    wait_until(receiver.drain_is_over, 20)
    assert "lists no nsqd with the topic t" in caplog.text


def test_a_drain_that_leaves_messages_logs_a_warning(server, receive, caplog):
    """A paused channel gives nothing, and the next run begins there."""
    publish(server, 10)
    server.post("/channel/create", topic="t", channel="c")
    server.post("/channel/pause", topic="t", channel="c")
    receiver = receive(server, drain=True)
    wait_until(receiver.drain_is_over, 20)
    assert "is paused. Left for the next run: 10 messages" in caplog.text


def test_large_messages_are_held_back_by_their_bytes(server, receive, monkeypatch):
    """While the disk is slow, nsqd keeps them; then all come."""
    monkeypatch.setattr(message_buffer, "MOST_BYTES", 20_000)
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


def test_a_drain_without_any_nsqd_fails(receive):
    """With the reason of the last dial."""
    receiver = receive(drain=True, nsqd="127.0.0.1:1", drain_patience="500ms")
    with pytest.raises(NSQError, match="127.0.0.1:1"):
        wait_until(receiver.drain_is_over, 20)


def test_an_error_that_no_retry_fixes_is_raised(server_factory, receive):
    """nsqd refuses us: TLS was asked for and is not there."""
    receiver = receive(server_factory(), tls_v1="true")
    with pytest.raises(NSQError, match="(?i)tls"):
        wait_until(lambda: receiver.check())


def test_segments_of_an_earlier_writer_are_looked_for(server, receive, monkeypatch):
    """Not while Spark waits; an error of it ends the query."""
    monkeypatch.setattr(receiver_module, "_LAG_INTERVAL", 0.05)
    receiver = receive(server)

    def look():
        raise SpoolError("/x", "segment 5 cannot be read")

    monkeypatch.setattr(receiver.spool, "look_for_strays", look)
    with pytest.raises(SpoolError, match="segment 5 cannot be read"):
        wait_until(lambda: receiver.check())


def test_a_second_receiver_is_refused(server, receive, monkeypatch):
    """Two queries on one spool."""
    receive(server)
    second = receive(server, start=False)
    with pytest.raises(SpoolLockedError):
        second.spool.open(patience=0)


@OF_THE_PROCESSES
def test_several_processes_fill_one_spool(server, receive):
    """Under one numbering; and they end with nothing in flight."""
    publish(server, 3000)
    receiver = receive(server, ingestProcesses="2")
    has_rows(receiver, 3000)
    wait_until(lambda: receiver.lag()["connections"] == 4, 30, "both are connected")
    receiver.stop()
    assert stored(receiver) == list(range(3000))
    wait_until(lambda: counts(server) == (0, 0), 20, "all is finished")


@pytest.mark.long
@OF_THE_PROCESSES
def test_a_copy_that_reaches_another_process_is_dropped(server_factory, receive):
    """The first process is stopped before it can send FIN; the second gets the messages."""
    server = server_factory(msg_timeout=1.0)
    receiver = receive(server, ingestProcesses="2", msg_timeout="1s", connections="1")
    first, second = receiver._ingest._workers
    wait_until(lambda: receiver.lag()["connections"] == 2, 20, "both are connected")
    answer = first.send

    def stall(*words):
        # Durable by now; the answer that would let FIN go comes too late.
        if words[0] == "result" and words[1].number and not receiver.spool.copies_dropped:
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


@pytest.mark.long
def test_a_killed_process_ends_the_query_and_loses_nothing(server_factory, receive):
    """Its messages come again; the error says what happened."""
    server = server_factory(msg_timeout=1.0)
    publish(server, 1000)
    receiver = receive(server, ingestProcesses="2", msg_timeout="1s")
    has_rows(receiver, 1)
    os.kill(receiver._ingest._workers[0]._process.pid, signal.SIGKILL)
    with pytest.raises(NSQError, match="ingest process 1 ended by itself"):
        wait_until(lambda: receiver.check())
    receiver.stop()
    again = receive(server, msg_timeout="1s")
    wait_until(lambda: counts(server) == (0, 0), 30, "all is finished")
    assert stored(again) == list(range(1000))


def test_a_full_spool_is_not_taken_for_the_end_of_a_drain(server, receive):
    """Spark may be slow; the silence is our own."""
    publish(server, 3000)
    receiver = receive(server, drain=True, maxSpoolMessages="1000", max_in_flight="200",
                       idleMs="1", msg_timeout="1s")
    wait_until(lambda: receiver.is_full and receiver._ingest.is_idle, 30, "the spool is full")
    wait_until(lambda: receiver._seen[0] > receiver._ingest.last_arrival, 30, "the depth is known")
    assert not receiver.drain_is_over()
    while not receiver.drain_is_over():
        receiver.spool.mark_committed(receiver.spool.last)
        receiver.balance()
        receiver.spool.wait_for_more(receiver.spool.last, 0.05)
    assert counts(server) == (0, 0)
