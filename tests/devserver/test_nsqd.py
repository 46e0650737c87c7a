"""The embedded nsqd over its TCP port."""

from __future__ import annotations

import socket
import threading

import pytest

from nsqclient.devserver import Nsqd
from nsqclient.devserver.broker import ChannelNotFound, Notice, TopicNotFound
from nsqclient.devserver.persistence import DataPathError
from tests.support.raw_client import ERROR, RESPONSE, RawClient
from tests.support.waiting import wait_until

OK = (RESPONSE, b"OK")


@pytest.fixture
def nsqd():
    with Nsqd() as server:
        yield server


def connect(server):
    return RawClient(server.tcp_address)


def consume(server, ready=10, topic="t", channel="c"):
    """Return a subscribed client with this RDY."""
    client = connect(server)
    client.subscribe(topic, channel)
    client.send(b"RDY %d\n" % ready)
    return client


def pub(topic, body):
    return b"PUB %b\n%b%b" % (topic, len(body).to_bytes(4, "big"), body)


def identify(payload):
    return b"IDENTIFY\n" + len(payload).to_bytes(4, "big") + payload


def channel_stats(server, topic="t", channel="c"):
    return server.stats(topic, channel)["topics"][0]["channels"][0]


def test_publish_and_consume(nsqd):
    """A message goes from PUB to a consumer, and FIN ends it."""
    with consume(nsqd) as consumer, connect(nsqd) as producer:
        assert producer.ask(pub(b"t", b"hello")) == OK
        message_id, attempts, body = consumer.read_message()
        assert (attempts, body) == (1, b"hello")
        consumer.send(b"FIN %b\n" % message_id)
        nsqd.wait_until_empty("t", "c")


def test_mpub_and_dpub(nsqd):
    """MPUB keeps the order; DPUB comes later, and not before its delay."""
    with consume(nsqd) as consumer, connect(nsqd) as producer:
        assert producer.ask(b"DPUB t 300\n\0\0\0\1d") == OK
        bodies = b"\0\0\0\2\0\0\0\1a\0\0\0\1b"
        assert producer.ask(b"MPUB t\n\0\0\0\x0e" + bodies) == OK
        assert [consumer.read_message()[2] for _ in range(3)] == [b"a", b"b", b"d"]
        assert nsqd.messages("t", "c")[0].state == "in_flight"


def test_requeue_and_timeout(nsqd):
    """REQ and a timeout both bring the message back with one attempt more."""
    nsqd.publish("t", b"x")
    with connect(nsqd) as consumer:
        assert consumer.ask(identify(b'{"msg_timeout":1000}')) == OK
        consumer.subscribe("t", "c")
        consumer.send(b"RDY 1\n")
        message_id, attempts, _ = consumer.read_message()
        consumer.send(b"REQ %b 0\n" % message_id)
        assert consumer.read_message()[:2] == (message_id, 2)
        assert consumer.read_message()[:2] == (message_id, 3)
        assert channel_stats(nsqd)["timeout_count"] == 1


def test_leaving_does_not_requeue(nsqd):
    """What a consumer had in flight when it left waits for its timeout."""
    nsqd.publish("t", b"x")
    with consume(nsqd) as consumer:
        consumer.read_message()
    wait_until(lambda: channel_stats(nsqd)["client_count"] == 0)
    assert channel_stats(nsqd)["in_flight_count"] == 1


def test_refused_consumer_gives_its_place_back_at_once(nsqd):
    """A consumer that is dropped for an error gets no more messages."""
    with consume(nsqd) as consumer:
        assert consumer.ask(b"FOO\n") == (ERROR, b"E_INVALID invalid command FOO")
        consumer.read_end()
        wait_until(lambda: channel_stats(nsqd)["client_count"] == 0)


def test_fatal_error_is_the_last_word(nsqd):
    """No message follows a fatal error, even when there are some to give."""
    nsqd.publish("t", b"x")
    with connect(nsqd) as consumer:
        consumer.send(b"SUB t c\nRDY 1\nFOO\n")
        assert consumer.read_frame() == OK
        assert consumer.read_frame() == (ERROR, b"E_INVALID invalid command FOO")
        consumer.read_end()


def test_close_wait_is_the_last_word(nsqd):
    """After CLOSE_WAIT no message comes, and answers are still taken."""
    with consume(nsqd) as consumer:
        nsqd.publish("t", b"1")
        message_id = consumer.read_message()[0]
        assert consumer.ask(b"CLS\n") == (RESPONSE, b"CLOSE_WAIT")
        nsqd.publish("t", b"2")
        consumer.send(b"FIN %b\n" % message_id)
        wait_until(lambda: channel_stats(nsqd)["in_flight_count"] == 0)
        assert channel_stats(nsqd)["depth"] == 1


def test_ephemeral_channel_goes_with_the_connection(nsqd):
    """An ephemeral channel is gone once its only consumer is."""
    with consume(nsqd, channel="c#ephemeral"):
        assert nsqd.registrations() == [("t", "c#ephemeral")]
    wait_until(lambda: nsqd.registrations() == [("t", None)])


@pytest.mark.parametrize("delete", [["delete_topic", "t"], ["delete_channel", "t", "c"]])
def test_delete_ends_consumers_without_a_frame(nsqd, delete):
    """Whoever consumes what is deleted loses the connection, and is told nothing."""
    with consume(nsqd) as consumer:
        consumer.send(b"NOP\n")
        getattr(nsqd, delete[0])(*delete[1:])
        consumer.read_end()


def test_stop_ends_everything(nsqd):
    """stop() closes the clients without a frame, and may come twice."""
    with consume(nsqd) as consumer:
        nsqd.stop()
        consumer.read_end()
        nsqd.stop()


def test_heartbeats_and_silence(nsqd):
    """A client that says nothing gets a heartbeat per interval, and is dropped after two."""
    with connect(nsqd) as client:
        client.send(identify(b'{"heartbeat_interval":1000}'))
        started = threading.Event()
        received = b""
        client._socket.settimeout(10)
        while data := client._socket.recv(4096):
            received += data
            started.set()
        assert 1 <= received.count(b"_heartbeat_") <= 2


def test_any_command_keeps_the_connection(nsqd):
    """A client that says NOP once per interval stays."""
    with connect(nsqd) as client:
        client.ask(identify(b'{"heartbeat_interval":1000}'))
        for _ in range(3):
            assert client.is_silent(0.9)
            client.send(b"NOP\n")
        assert client.ask(pub(b"t", b"x")) == OK


def test_pipelined_answers_keep_their_order(nsqd):
    """Answers come in the order of the commands, the fatal one last."""
    with connect(nsqd) as client:
        client.send(pub(b"t", b"x") * 3 + b"FOO\n")
        assert [client.read_frame() for _ in range(4)] == [OK] * 3 + [
            (ERROR, b"E_INVALID invalid command FOO")
        ]
        client.read_end()


def test_error_arrives_before_the_end(nsqd):
    """An error reaches a client that is still sending, before the connection ends."""
    with connect(nsqd) as client:
        client.send(b"PUB t\n\0\x20\0\0" + b"x" * 2_000_000)
        assert client.read_frame()[1].startswith(b"E_BAD_MESSAGE PUB message too big")


def test_one_consumer_too_many():
    """max_channel_consumers is a limit per channel."""
    with Nsqd(max_channel_consumers=1) as nsqd, consume(nsqd), connect(nsqd) as second:
        assert second.ask(b"SUB t c\n") == (
            ERROR, b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1"
        )
        second.read_end()


def test_deaf_client_does_not_hold_up_the_others(nsqd):
    """A consumer that does not read costs only itself."""
    nsqd.publish_many("t", [b"x" * 100_000] * 200)
    with consume(nsqd, 200), connect(nsqd) as other:
        wait_until(lambda: channel_stats(nsqd)["in_flight_count"] == 200)
        assert other.ask(pub(b"u", b"x")) == OK


def test_deaf_client_is_dropped(nsqd, caplog):
    """A client that takes no bytes for a heartbeat interval loses the connection."""
    caplog.set_level("INFO", "nsqclient.devserver")
    nsqd.publish_many("t", [b"x" * 100_000] * 200)
    with connect(nsqd) as client:
        # Without a limit the system would take it all in the client's place.
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # So long that a busy machine does not make it silent, which costs the connection too.
        client.ask(identify(b'{"heartbeat_interval":2000}'))
        client.subscribe("t", "c")
        client.send(b"RDY 200\n")
        # It is not silent, only deaf.
        wait_until(
            lambda: client.send(b"NOP\n") or not channel_stats(nsqd)["client_count"], timeout=30)
        assert "does not read" in caplog.text


def test_many_messages_to_several_consumers(nsqd):
    """Each of many messages reaches one consumer, whole and once."""
    clients = [consume(nsqd, 100) for _ in range(3)]
    counts = [0, 0, 0]
    bodies: list[bytes] = []

    def work(index):
        while True:
            message_id, _, body = clients[index].read_message()
            if body == b"end":
                return
            counts[index] += 1
            bodies.append(body)
            clients[index].send(b"FIN %b\n" % message_id)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    sent = [b"%d" % number for number in range(3000)]
    for start in range(0, 3000, 100):
        nsqd.publish_many("t", sent[start:start + 100])
    nsqd.wait_until_empty("t", "c")
    nsqd.publish_many("t", [b"end"] * 3)  # whoever got one asks for no other
    for thread in threads:
        thread.join(10)
    for client in clients:
        client.close()
    assert sorted(bodies) == sorted(sent) and all(counts)


def test_stats(nsqd):
    """stats() has nsqd's keys, for consumers and for producers."""
    with consume(nsqd, 5) as consumer:
        consumer.ask(pub(b"t", b"abc"))
        consumer.read_message()
        stats = nsqd.stats()
        (topic,) = stats["topics"]
        assert (topic["topic_name"], topic["message_count"], topic["message_bytes"]) == ("t", 1, 3)
        (client,) = topic["channels"][0]["clients"]
        assert (client["state"], client["ready_count"], client["in_flight_count"]) == (3, 5, 1)
        assert stats["producers"][0]["pub_counts"] == [{"topic": "t", "count": 1}]
        assert nsqd.stats("nope")["topics"] is None
        assert nsqd.stats("t", "nope")["topics"] == []
        bare = nsqd.stats(include_clients=False)
        assert bare["producers"] is None and bare["topics"][0]["channels"][0]["clients"] is None


def test_operations_on_what_does_not_exist(nsqd):
    """Operations say whether the topic or the channel is unknown."""
    with pytest.raises(TopicNotFound):
        nsqd.pause_topic("t")
    with pytest.raises(TopicNotFound):
        nsqd.create_channel("t", "c")
    nsqd.create_topic("t")
    with pytest.raises(ChannelNotFound):
        nsqd.unpause_channel("t", "c")


def test_observer_is_told_in_order(nsqd):
    """Whoever observes hears of topics and channels in order, and may call the server."""
    heard = []

    class Observer:
        def changed(self, notice: Notice) -> None:
            heard.append((notice, nsqd.has_topic("t")))

    nsqd.add_observer(Observer())
    nsqd.create_topic("t")
    nsqd.create_channel("t", "c")
    nsqd.delete_topic("t")
    assert [notice for notice, _ in heard] == [
        Notice(True, "t", None), Notice(True, "t", "c"),
        Notice(False, "t", None), Notice(False, "t", "c"),
    ]
    assert [exists for _, exists in heard] == [True, True, False, False]


def test_wait_until_empty_says_what_is_left(nsqd):
    """Waiting in vain names what is left."""
    nsqd.publish("t", b"x")
    with pytest.raises(TimeoutError, match="there is no such channel"):
        nsqd.wait_until_empty("t", "c", 0.01)
    nsqd.create_channel("t", "c")
    with pytest.raises(TimeoutError, match="1 queued, 0 in flight, 0 deferred"):
        nsqd.wait_until_empty("t", "c", 0.01)


def test_scan_lag_is_late_and_never_early():
    """With a lag timers fire together and late, as nsqd's do."""
    with Nsqd(scan_lag=0.5) as nsqd, consume(nsqd) as consumer:
        nsqd.publish("t", b"x", defer=0.01)
        assert consumer.read_message()[2] == b"x"


def test_restart_with_a_data_path(tmp_path):
    """Messages, topics, channels and pauses survive a stop; counters and delays do not."""
    with Nsqd(data_path=str(tmp_path), mem_queue_size=2) as nsqd:
        with consume(nsqd, 1) as consumer:
            wait_until(lambda: channel_stats(nsqd)["clients"][0]["ready_count"] == 1)
            nsqd.publish_many("t", [b"0", b"1", b"2", b"3"])
            nsqd.publish("t", b"4", defer=60.0)
            consumer.read_message()
            assert channel_stats(nsqd)["backend_depth"] == 1
        nsqd.pause_channel("t", "c")
        nsqd.publish("lonely", b"x")
        nsqd.pause_topic("lonely")
        nsqd.create_topic("gone#ephemeral")
    with Nsqd(data_path=str(tmp_path)) as nsqd:
        assert nsqd.registrations() == [("t", "c"), ("lonely", None)]
        assert channel_stats(nsqd)["depth"] == 5 and channel_stats(nsqd)["message_count"] == 0
        assert channel_stats(nsqd)["paused"] and nsqd.stats("lonely")["topics"][0]["paused"]
        held = {message.body: message.attempts for message in nsqd.messages("t", "c")}
        assert held == {b"0": 1, b"1": 0, b"2": 0, b"3": 0, b"4": 0}
        assert [message.body for message in nsqd.messages("lonely")] == [b"x"]


def test_kill_loses_what_is_in_memory(tmp_path):
    """kill() keeps what was on disk and the names, as a killed nsqd does."""
    nsqd = Nsqd(data_path=str(tmp_path), mem_queue_size=1)
    nsqd.start()
    nsqd.publish_many("t", [b"memory", b"disk"])
    nsqd.kill()
    with Nsqd(data_path=str(tmp_path)) as again:
        assert [message.body for message in again.messages("t")] == [b"disk"]


def test_start_that_fails_leaves_nothing(tmp_path):
    """A data path in use, damage, or a port in use is an error; damage is not overwritten."""
    with Nsqd(data_path=str(tmp_path)) as nsqd:
        with pytest.raises(DataPathError, match="failed to lock data-path"):
            Nsqd(data_path=str(tmp_path)).start()
        port = int(nsqd.tcp_address.rpartition(":")[2])
        with pytest.raises(OSError, match="cannot listen on"):
            Nsqd(tcp_port=port).start()
    (tmp_path / "nsqd.dat").write_text("{")
    with pytest.raises(DataPathError, match="is damaged"):
        Nsqd(data_path=str(tmp_path)).start()
    assert (tmp_path / "nsqd.dat").read_text() == "{"


def test_full_disk(tmp_path, monkeypatch):
    """A disk that refuses fails the publish with the reason, and shows in the health."""
    with Nsqd(data_path=str(tmp_path), mem_queue_size=0) as nsqd, connect(nsqd) as client:
        with monkeypatch.context() as patch:
            patch.setattr("os.pwrite", lambda *_: 0)
            answer = client.ask(pub(b"t", b"x"))
            assert answer == (ERROR, b"E_PUB_FAILED PUB failed No space left on device")
            assert nsqd.health() == "NOK - No space left on device"
        nsqd.publish("t", b"x")
        assert nsqd.health() == "OK"


def test_info(nsqd):
    """info() has nsqd's keys, with durations in nanoseconds."""
    info = nsqd.info()
    assert info["version"] == "1.3.0" and info["max_heartbeat_interval"] == 60_000_000_000
    assert info["tcp_port"] == int(nsqd.tcp_address.rpartition(":")[2])
    assert nsqd.health() == "OK"
