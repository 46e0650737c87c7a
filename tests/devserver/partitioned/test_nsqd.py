"""The embedded cluster's nsqds, seen through bare sockets: what real servers were seen to do."""

import json
import struct

import pytest
import requests

from nsqclient.devserver import PartitionedCluster
from nsqclient.protocol.partitioned import extensions as commands
from nsqclient.protocol.commands import pub
from nsqclient.protocol.partitioned.extensions import MessageIds, read_stored
from tests.support.servers.raw_client import ERROR, RESPONSE, Closed, RawClient

OK = (RESPONSE, b"OK")


@pytest.fixture
def cluster():
    with PartitionedCluster(2, 1, msg_timeout=1.0) as running:
        running.create_topic("plain", 2, channels=["c"])
        running.create_topic("ordered", 2, ordered=True, channels=["c"])
        running.create_topic("ext", 1, extended=True, channels=["c"])
        yield running


def client_of(cluster, nsqd=0):
    return RawClient(cluster.nsqds[nsqd].tcp_address)


def code_of(frame):
    kind, data = frame
    assert kind == ERROR, frame
    return data.partition(b" ")[0].decode()


def subscribe(client, topic, partition=0, name="SUB", ready=1):
    assert client.ask(f"{name} {topic} c {partition}\n".encode()) == OK
    client.send(b"RDY %d\n" % ready)


def read_ordered(client):
    message_id, attempts, data = client.read_message()
    offset, size = struct.unpack(">QI", data[:12])
    return MessageIds.unpack(message_id).internal_id, attempts, offset, size, data[12:]


def test_header_with_a_trace_id_is_answered_like_a_trace(cluster):
    """PUB_EXT gets OK, or 30 bytes if the header has a trace id; MPUB_EXT always OK.

    Any list of JSON is a header without a trace id.
    """
    with client_of(cluster) as client:
        assert client.ask(commands.pub_ext("ext", 0, b'{"k":"v"}', b"a")) == OK
        assert client.ask(commands.pub_ext("ext", 0, b"[1]", b"x")) == OK
        traced = client.ask(commands.pub_ext("ext", 0, b'{"##trace_id":"77"}', b"b"))
        assert read_stored(traced[1]).trace_id == 77
        assert client.ask(commands.mpub_ext("ext", 0, [(b'{"##trace_id":"7"}', b"c")])) == OK


@pytest.mark.parametrize(("command", "code"), [
    (pub("plain 1", b"x"), "E_TOPIC_NOT_EXIST"),  # this nsqd has no copy
    (pub("unknown 0", b"x"), "E_TOPIC_NOT_EXIST"),
    (b"PUB bad!name\n\0\0\0\1x", "E_TOPIC_NOT_EXIST"),
    (b"PUB ordered\n\0\0\0\1x", "E_BAD_PARTITION"),
    (b"PUB plain x\n\0\0\0\1x", "E_BAD_PARTITION"),
    (b"PUB plain 0_0\n\0\0\0\1x", "E_BAD_PARTITION"),
    (b"PUB plain \t0\n\0\0\0\1x", "E_BAD_PARTITION"),
    (b"SUB ordered c 0\n", "E_SUB_ORDER_IS_MUST"),
    (b"SUB_ADVANCED ordered c 0\n", "E_SUB_ORDER_IS_MUST"),
    (b"SUB ext c 0\n", "E_SUB_EXTEND_NEED"),
    (b"SUB plain c!\n", "E_BAD_CHANNEL"),
    (b"SUB_ORDER plain c 0\n", "E_INVALID"),
    (b"DPUB plain 100\n\0\0\0\1x", "E_INVALID"),
])
def test_fatal_error_ends_the_connection(cluster, command, code):
    with client_of(cluster) as client:
        assert code_of(client.ask(command)) == code
        with pytest.raises(Closed):
            client.read_frame()


@pytest.mark.parametrize(("command", "code"), [
    (commands.pub_ext("plain", 0, b"{}", b"x"), "E_EXT_NOT_SUPPORT"),
    (commands.mpub_ext("plain", 0, [(b"{}", b"x")]), "E_EXT_NOT_SUPPORT"),
    (commands.pub_ext("ext", 0, b"no json", b"x"), "E_INVALID_JSON_HEADER"),
    (commands.pub_ext("ext", 0, b'{"##trace_id":77}', b"x"), "INVALID_TRACE_ID"),
])
def test_error_that_is_not_fatal_keeps_the_connection(cluster, command, code):
    with client_of(cluster) as client:
        assert code_of(client.ask(command)) == code
        assert client.ask(pub("plain 0", b"x")) == OK


def identify(client, **fields):
    body = json.dumps({"feature_negotiation": True, **fields}).encode()
    return client.ask(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body)


@pytest.mark.parametrize("command", [b"FIN %b\n", b"REQ %b 0\n", b"TOUCH %b\n"])
def test_an_id_of_zero_ends_the_connection(cluster, command):
    with client_of(cluster) as client:
        subscribe(client, "plain")
        assert code_of(client.ask(command % bytes(16))) == "E_INVALID"
        client.read_end()


def test_a_publish_that_is_too_big_ends_in_a_reset(cluster):
    with client_of(cluster) as client:
        client.send(b"PUB plain 0\n" + struct.pack(">i", 2**20 + 1) + bytes(2**20))
        try:
            assert code_of(client.read_frame()) == "E_BAD_MESSAGE"
            end = client.read_end()
        except Closed as closed:
            end = closed
        assert end.reset


def test_ordered_channel_requeues_without_delay(cluster):
    cluster.publish("ordered", 0, b"one")
    with client_of(cluster) as client:
        subscribe(client, "ordered", name="SUB_ORDERED")
        number, attempts, *_ = read_ordered(client)
        message_id = MessageIds(number, 0).pack()
        client.send(b"REQ " + message_id + b" 0\n")
        assert read_ordered(client)[:2] == (number, 2)
        client.send(b"REQ " + message_id + b" 5000\n")
        assert read_ordered(client)[:2] == (number, 3)  # after the timeout of 1 s
        # Only the first half of an id counts.
        client.send(b"FIN " + message_id[:8] + b"\x0a \x0a \x0a \x0a " + b"\n")
        cluster.wait_until_empty("plain", "c")
        client.send(b"FIN " + message_id + b"\n")
        assert code_of(client.read_frame()) == "E_FIN_FAILED"


def test_ready_zero_stops_an_ordered_subscription(cluster):
    with client_of(cluster) as client:
        subscribe(client, "ordered", name="SUB_ORDERED", ready=0)
        cluster.publish("ordered", 0, b"one")
        assert client.ask(pub("plain 0", b"x")) == OK  # nothing came before this
        client.send(b"RDY 1\n")
        assert read_ordered(client)[4] == b"one"


def test_channel_that_is_not_ordered_defers(cluster):
    cluster.publish("plain", 0, b"one")
    with client_of(cluster) as client:
        subscribe(client, "plain")
        message_id, _, _ = client.read_message()
        client.send(b"REQ " + message_id + b" 50\n")
        assert client.read_message() == (message_id, 2, b"one")
        client.send(b"TOUCH " + message_id + b"\n")
        client.send(b"FIN " + message_id + b"\n")
        cluster.wait_until_empty("plain", "c")


def test_http_api_publishes_many(cluster):
    url = f"http://{cluster.nsqds[0].http_address}"
    where = {"topic": "plain", "partition": "0"}
    requests.post(url + "/pub", data=b"a", params=where, timeout=10)
    binary = struct.pack(">II", 1, 3) + b"d\ne"
    requests.post(url + "/mpub", data=b"b\nc\n", params=where, timeout=10)
    requests.post(url + "/mpub", data=binary, params={**where, "binary": "true"}, timeout=10)
    assert cluster.messages("plain", 0) == [b"a", b"b", b"c", b"d\ne"]
    info = requests.get(url + "/info", timeout=10).json()
    assert str(info["tcp_port"]) == cluster.nsqds[0].tcp_address.rpartition(":")[2]
    assert set(info) >= {"hostname", "broadcast_address", "http_port", "start_time"}
    assert "-HA." in info["version"] and requests.get(url + "/ping", timeout=10).text == "OK"
    stats = requests.get(url + "/stats", params={"format": "json", "topic": "plain"}, timeout=10)
    topic, = stats.json()["topics"]
    assert (topic["topic_partition"], topic["is_leader"], topic["message_count"]) == ("0", True, 4)
    assert topic["channels"][0]["depth"] == 4


def test_http_api_publishes_and_changes_channels(cluster):
    url = f"http://{cluster.nsqds[0].http_address}"

    def post(path, body=b"", **params):
        answer = requests.post(url + path, data=body, params=params, timeout=10)
        return answer.status_code, answer.text

    assert post("/pub", b"x", topic="plain", partition="0") == (200, "OK")
    assert post("/pub", b"x") == (404, '{"message":"E_TOPIC_NOT_EXIST"}')
    assert post("/pub", b"", topic="plain", partition="0")[0] == 406
    assert post("/pub", b"x", topic="plain", partition="9")[0] == 404
    assert post("/pub", b"x", topic="plain", partition="zero")[0] == 400
    assert post("/channel/create", topic="plain", partition="0", channel="new")[0] == 200
    assert post("/channel/create", topic="plain", partition="0", channel="new!")[0] == 400
    where = {"topic": "plain", "partition": "0", "channel": "new"}
    assert cluster.messages("plain", 0, "new") == []
    assert post("/channel/setoffset", b"virtual_queue:0", **where)[0] == 200
    assert cluster.messages("plain", 0, "new") == [b"x"]
    assert post("/channel/setoffset", b"special:-1", **where)[0] == 200
    assert cluster.messages("plain", 0, "new") == []
    assert post("/channel/setoffset", b"nonsense", **where)[0] == 400


# -- positions, tags, filters


@pytest.mark.parametrize("start", [b"virtual_queue:0", b"msgcount:0", b"timestamp:0"])
def test_a_partition_without_messages_has_only_its_end_as_start(cluster, start):
    """As on a real server, which finds no entry in its log."""
    cluster.create_topic("empty", 1, channels=["c"])
    url = f"http://{cluster.nsqds[0].http_address}/channel/setoffset"
    where = {"topic": "empty", "partition": "0", "channel": "c"}
    answer = requests.post(url, start, params=where, timeout=10)
    assert (answer.status_code, answer.json()) == (500, {"message": "commit log end of file"})
    assert requests.post(url, b"special:-1", params=where, timeout=10).status_code == 200


def test_a_tag_is_confirmed_and_dropped_on_a_plain_topic(cluster):
    """The answer to IDENTIFY repeats it; a plain topic delivers everything all the same.

    A tag of more than 100 characters, or one that is no UTF-8, ends the connection.
    """
    cluster.publish("plain", 0, b"a")
    for tag in ("x" * 101, "\ud800"):
        with client_of(cluster) as client:
            assert code_of(identify(client, desired_tag=tag)) == "E_BAD_BODY"
            client.read_end()
    with client_of(cluster) as client:
        tag = "x" * 100
        assert json.loads(identify(client, desired_tag=tag)[1])["desired_tag"] == tag
        subscribe(client, "plain")
        cluster.publish("plain", 0, b"b")
        assert client.read_message()[2] in (b"a", b"b")


def test_a_channel_is_moved_by_the_leader_alone_and_must_exist(cluster):
    """404 for no channel, 400 at an nsqd that does not lead, 403 where channels are registered."""
    cluster.create_topic("registered", 1, registered_channels=True)
    cluster.create_topic("copied", 1, replicas=2, channels=["c"])

    def post(nsqd, path, topic, channel):
        url = f"http://{cluster.nsqds[nsqd].http_address}/channel/{path}"
        return requests.post(url, b"special:-1", timeout=10, params={
            "topic": topic, "partition": "0", "channel": channel}).status_code

    assert post(0, "setoffset", "plain", "none") == 404
    assert post(1, "setoffset", "copied", "c") == 400
    assert post(0, "setoffset", "copied", "c") == 200
    assert post(0, "create", "registered", "c") == 403
