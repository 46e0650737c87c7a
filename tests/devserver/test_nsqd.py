"""The embedded nsqd over its TCP port, and its own parts of the HTTP API."""

import logging
import socket

import pytest
import requests

from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.devserver.persistence import DataPathError
from nsqclient.errors import ConfigError, InvalidMessageError
from tests.devserver.test_persistence import fill_disk, free_disk
from tests.support.servers.raw_client import ERROR, RESPONSE, RawClient
from tests.support.waiting import wait_until

OK = (RESPONSE, b"OK")


def connect(server):
    return RawClient(server.tcp_address)


def consume(server, ready=10, topic="t", channel="c"):
    client = connect(server)
    client.subscribe(topic, channel, ready)
    return client


def pub(topic, body):
    return b"PUB %b\n%b%b" % (topic, len(body).to_bytes(4, "big"), body)


def identify(payload):
    return b"IDENTIFY\n" + len(payload).to_bytes(4, "big") + payload


def channel_stats(server, topic="t", channel="c"):
    return server.stats(topic, channel)["topics"][0]["channels"][0]


def test_no_message_follows_close_wait(nsqd):
    with consume(nsqd) as consumer:
        nsqd.publish("t", b"1")
        message_id = consumer.read_message()[0]
        assert consumer.ask(b"CLS\n") == (RESPONSE, b"CLOSE_WAIT")
        nsqd.publish("t", b"2")
        consumer.send(b"FIN %b\n" % message_id)
        wait_until(lambda: channel_stats(nsqd)["in_flight_count"] == 0)
        assert channel_stats(nsqd)["depth"] == 1


def test_stop_unregisters_before_connections_end():
    """A consumer that polls nsqlookupd when its connection ends does not find it again."""

    def producers():
        answer = requests.get(f"http://{lookupd.http_address}/nodes", timeout=20)
        return len(answer.json()["producers"])

    def stop(deadline):
        wait_until(lambda: producers() == 0)
        assert client.ask(b"NOP\nPUB t\n\0\0\0\1x")[0] == ERROR  # exiting, and still connected
        found.append(producers())
        end_clients(deadline)

    found = []
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd, \
            RawClient(nsqd.tcp_address) as client:
        assert producers() == 1
        end_clients, nsqd._acceptor.stop = nsqd._acceptor.stop, stop
        nsqd.stop()
    assert found == [0]


@pytest.mark.parametrize("withheld", [False, True])
def test_silent_client_is_dropped_after_two_heartbeats(nsqd, withheld):
    nsqd.faults.heartbeats_withheld = withheld
    with connect(nsqd) as client:
        client.send(identify(b'{"heartbeat_interval":1000}'))
        received = b""
        client._socket.settimeout(10)
        while data := client._socket.recv(4096):
            received += data
        assert received.count(b"_heartbeat_") in ([0] if withheld else [1, 2])


def test_client_that_does_not_read_is_dropped(nsqd, caplog):
    caplog.set_level("INFO", "nsqclient.devserver")
    nsqd.publish_many("t", [b"x" * 100_000] * 200)
    with connect(nsqd) as client:
        # Without a limit the system would take it all in the client's place.
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # So long that a busy machine does not make it silent, which costs the connection too.
        client.ask(identify(b'{"heartbeat_interval":2000}'))
        client.subscribe("t", "c", ready=200)
        # It is not silent, only deaf.
        wait_until(
            lambda: client.send(b"NOP\n") or not channel_stats(nsqd)["client_count"], timeout=30)
        assert "does not read" in caplog.text


def test_wait_until_empty_counts_the_messages_left(nsqd):
    nsqd.publish("t", b"x")
    with pytest.raises(TimeoutError, match="there is no such channel"):
        nsqd.wait_until_empty("t", "c", 0.01)
    nsqd.create_channel("t", "c")
    with pytest.raises(TimeoutError, match="1 queued, 0 in flight, 0 deferred"):
        nsqd.wait_until_empty("t", "c", 0.01)


def test_restart_with_a_data_path_keeps_messages(tmp_path):
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


def test_kill_loses_messages_in_memory(tmp_path):
    nsqd = Nsqd(data_path=str(tmp_path), mem_queue_size=1)
    nsqd.start()
    nsqd.publish_many("t", [b"memory", b"disk"])
    nsqd.kill()
    with Nsqd(data_path=str(tmp_path)) as again:
        assert [message.body for message in again.messages("t")] == [b"disk"]


def test_start_that_fails_leaves_nothing_open(tmp_path):
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


def test_publish_on_a_full_disk_fails(tmp_path):
    with Nsqd(data_path=str(tmp_path), mem_queue_size=0) as nsqd, connect(nsqd) as client:
        fill_disk(nsqd._data)
        answer = client.ask(pub(b"t", bytes(10_000)))
        assert answer == (ERROR, b"E_PUB_FAILED PUB failed No space left on device")
        assert nsqd.health() == "NOK - No space left on device"
        free_disk(nsqd._data)
        nsqd.publish("t", b"x")
        assert nsqd.health() == "OK"


@pytest.mark.parametrize(("body", "defer", "error", "hint"), [
    ("text", 0.0, InvalidMessageError, "encode it first, body.encode()"),
    (b"", 0.0, InvalidMessageError, "is empty"),
    (b"x" * 11, 0.0, InvalidMessageError, "over nsqd's limit of 10"),
    (b"x", -1, ConfigError, "at least 0 s"),
    (b"x", "1", ConfigError, "number of seconds"),
])
def test_publish_of_a_test_checks_its_arguments(body, defer, error, hint):
    """A consumer's connection would end with the message otherwise."""
    with Nsqd(max_msg_size=10) as nsqd:
        with pytest.raises(error, match=hint):
            nsqd.publish("t", body, defer)
        with pytest.raises(error, match=hint):
            nsqd.publish_many("t", [b"good", body], defer)
        assert not nsqd.has_topic("t")


def test_stop_on_a_full_disk_logs_the_loss(tmp_path, caplog):
    """Messages in flight that cannot be written are counted in an ERROR; nothing stays locked."""
    with Nsqd(data_path=str(tmp_path)) as nsqd, consume(nsqd) as client:
        nsqd.publish("t", bytes(10_000))
        client.read_message()
        fill_disk(nsqd._data)
        nsqd.stop()
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 2
    assert errors[0].startswith(f"cannot write messages to {tmp_path}: No space left on device")
    assert errors[1] == (
        "t:c: not written to the disk and lost: 1 message (No space left on device)")
    with Nsqd(data_path=str(tmp_path)) as again:
        assert again.health() == "OK"


@pytest.fixture
def call(nsqd):
    def call(method, path, body=b""):
        url = f"http://{nsqd.http_address}{path}"
        answer = requests.request(method, url, data=body, timeout=10)
        return answer.status_code, answer.text

    return call


def test_a_policy_that_accepts_any_certificate_is_refused():
    with pytest.raises(ConfigError, match="use 'require-verify'"):
        Nsqd(tls_client_auth_policy="require")


def test_publish_during_stop_is_503(nsqd, call):
    nsqd.create_topic("t")
    with nsqd._engine as broker:
        broker.is_exiting = True
    for path in ("/pub?topic=t", "/pub?topic=new", "/channel/create?topic=t&channel=c"):
        assert call("POST", path, b"x") == (503, '{"message":"EXITING"}')
