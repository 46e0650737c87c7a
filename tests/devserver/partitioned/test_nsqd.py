"""The embedded cluster's nsqds, seen through bare sockets: what real servers were seen to do."""

from __future__ import annotations

import struct

import pytest
import requests

from nsqclient.devserver import PartitionedCluster
from nsqclient.protocol import partition_commands as commands
from nsqclient.protocol.extended import MessageIds, Stored, make_internal_id, read_stored
from tests.support.raw_client import ERROR, RESPONSE, Closed, RawClient

OK = (RESPONSE, b"OK")


@pytest.fixture
def cluster():
    """Two nsqds and one nsqlookupd with a plain, an ordered and an extended topic."""
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
    """Return internal id, attempts, offset, size and body of the next message."""
    message_id, attempts, data = client.read_message()
    offset, size = struct.unpack(">QI", data[:12])
    return MessageIds.unpack(message_id).internal_id, attempts, offset, size, data[12:]


def test_traced_publish_says_where_the_message_is(cluster):
    """Ids carry the partition, and the next message lies at offset + size."""
    with client_of(cluster, 1) as client:
        places = [
            read_stored(client.ask(commands.pub_trace("plain", 1, 7, body))[1])
            for body in (b"hello world", b"x")
        ]
    assert places == [
        Stored(make_internal_id(1, 2), 7, 0, 41), Stored(make_internal_id(1, 3), 7, 41, 31)
    ]


def test_mpub_trace_says_the_first_and_the_sum(cluster):
    """The answer to several messages has the first id, trace id 0 and the sum of all sizes."""
    with client_of(cluster) as client:
        answer = client.ask(commands.mpub_trace("plain", 0, [(5, b"a"), (6, b"b")]))
    assert read_stored(answer[1]) == Stored(make_internal_id(0, 2), 0, 0, 62)


def test_header_with_a_trace_id_is_answered_like_a_trace(cluster):
    """PUB_EXT says OK, or 30 bytes where the header has a trace id; MPUB_EXT always OK."""
    with client_of(cluster) as client:
        assert client.ask(commands.pub_ext("ext", 0, b'{"k":"v"}', b"a")) == OK
        traced = client.ask(commands.pub_ext("ext", 0, b'{"##trace_id":"77"}', b"b"))
        assert read_stored(traced[1]).trace_id == 77
        assert client.ask(commands.mpub_ext("ext", 0, [(b'{"##trace_id":"7"}', b"c")])) == OK


@pytest.mark.parametrize(("command", "code"), [
    (commands.pub("plain", 1, b"x"), "E_TOPIC_NOT_EXIST"),  # this nsqd has no copy
    (commands.pub("unknown", 0, b"x"), "E_TOPIC_NOT_EXIST"),
    (b"PUB bad!name\n\0\0\0\1x", "E_TOPIC_NOT_EXIST"),
    (b"PUB ordered\n\0\0\0\1x", "E_BAD_PARTITION"),
    (b"PUB plain x\n\0\0\0\1x", "E_BAD_PARTITION"),
    (b"SUB ordered c 0\n", "E_SUB_ORDER_IS_MUST"),
    (b"SUB_ADVANCED ordered c 0\n", "E_SUB_ORDER_IS_MUST"),
    (b"SUB ext c 0\n", "E_SUB_EXTEND_NEED"),
    (b"SUB plain c!\n", "E_BAD_CHANNEL"),
    (b"SUB_ORDER plain c 0\n", "E_INVALID"),
    (b"DPUB plain 100\n\0\0\0\1x", "E_INVALID"),
])
def test_fatal_refusals(cluster, command, code):
    """The error comes, and the connection ends behind it."""
    with client_of(cluster) as client:
        assert code_of(client.ask(command)) == code
        with pytest.raises(Closed):
            client.read_frame()


def test_extend_support_on_a_plain_topic_is_refused(cluster):
    """Both ways of not matching are errors."""
    with client_of(cluster) as client:
        body = b'{"feature_negotiation":true,"extend_support":true}'
        client.ask(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        assert code_of(client.ask(b"SUB plain c 0\n")) == "E_SUB_EXTEND_FORBIDDON"


@pytest.mark.parametrize(("command", "code"), [
    (commands.pub_ext("plain", 0, b"{}", b"x"), "E_EXT_NOT_SUPPORT"),
    (commands.pub_ext("ext", 0, b"no json", b"x"), "E_INVALID_JSON_HEADER"),
    (commands.pub_ext("ext", 0, b'{"##trace_id":77}', b"x"), "INVALID_TRACE_ID"),
    (b"INTERNAL_CREATE_TOPIC t 0\n", "E_CREATE_TOPIC_FAILED"),
])
def test_refusals_that_spare_the_connection(cluster, command, code):
    """The next publish on the same connection is answered."""
    with client_of(cluster) as client:
        assert code_of(client.ask(command)) == code
        assert client.ask(commands.pub("plain", 0, b"x")) == OK


def test_mpub_ext_desynchronises(cluster):
    """After the refusal the rest of the body is read as commands."""
    with client_of(cluster) as client:
        refused = client.ask(commands.mpub_ext("plain", 0, [(b"{}", b"x")]))
        assert code_of(refused) == "E_EXT_NOT_SUPPORT"
        assert code_of(client.ask(b"NOP\n")) == "E_INVALID"


def test_a_new_channel_begins_at_the_end(cluster):
    """What was published before the first SUB of a channel never reaches it."""
    cluster.publish("plain", 0, b"before")
    with client_of(cluster) as client:
        assert client.ask(b"SUB plain new 0\n") == OK
        client.send(b"RDY 5\n")
        cluster.publish("plain", 0, b"after")
        assert client.read_message()[2] == b"after"


def test_ordered_has_one_in_flight_over_all_clients(cluster):
    """A second subscriber gets OK, and nothing until the first one is gone."""
    cluster.publish("ordered", 0, b"one")
    cluster.publish("ordered", 0, b"two")
    with client_of(cluster) as first, client_of(cluster) as second:
        subscribe(first, "ordered", name="SUB_ORDERED", ready=5)
        assert read_ordered(first)[4] == b"one"
        subscribe(second, "ordered", name="SUB_ORDERED")
        second.send(b"NOP\n")
        first.close()
        # Delivered again, and the interrupted try does not count.
        assert read_ordered(second)[1:] == (1, 0, 33, b"one")


def test_ordered_requeue_and_timeout(cluster):
    """REQ 0 brings it back at once, REQ with a delay is ignored, the timeout brings it back."""
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
    """RDY is not ignored: 0 stops the flow."""
    with client_of(cluster) as client:
        subscribe(client, "ordered", name="SUB_ORDERED", ready=0)
        cluster.publish("ordered", 0, b"one")
        assert client.ask(commands.pub("plain", 0, b"x")) == OK  # nothing came before this
        client.send(b"RDY 1\n")
        assert read_ordered(client)[4] == b"one"


def test_plain_subscription_defers(cluster):
    """REQ with a delay works where the channel is not ordered."""
    cluster.publish("plain", 0, b"one")
    with client_of(cluster) as client:
        subscribe(client, "plain")
        message_id, _, _ = client.read_message()
        client.send(b"REQ " + message_id + b" 50\n")
        assert client.read_message() == (message_id, 2, b"one")
        client.send(b"TOUCH " + message_id + b"\n")
        client.send(b"FIN " + message_id + b"\n")
        cluster.wait_until_empty("plain", "c")


def test_planned_move_step_by_step(cluster):
    """First not writable, then led elsewhere; the consumer's connection ends without a word."""
    with client_of(cluster, 1) as consumer, client_of(cluster, 1) as old, client_of(cluster) as new:
        subscribe(consumer, "plain", 1)
        cluster.begin_move("plain", 1)
        publish = commands.pub("plain", 1, b"x")
        assert code_of(old.ask(publish)) == "E_FAILED_ON_NOT_WRITABLE"
        cluster.finish_move("plain", 1)
        assert code_of(old.ask(publish)) == "E_FAILED_ON_NOT_LEADER"
        assert new.ask(publish) == OK
        with pytest.raises(Closed):
            consumer.read_frame()
        assert code_of(old.ask(b"SUB plain c 1\n")) == "E_FAILED_ON_NOT_LEADER"


def test_http_of_nsqd(cluster):
    """Publishing and channels over HTTP, with its own forms of the errors."""
    url = f"http://{cluster.nsqds[0].http_address}"

    def post(path, body=b"", **params):
        answer = requests.post(url + path, data=body, params=params, timeout=10)
        return answer.status_code, answer.text

    assert requests.get(url + "/ping", timeout=10).text == "OK"
    assert "-HA." in requests.get(url + "/info", timeout=10).json()["version"]
    assert post("/pub", b"x", topic="plain", partition="0") == (200, "OK")
    assert post("/pub", b"", topic="plain", partition="0")[0] == 406
    assert post("/pub", b"x", topic="plain", partition="9")[0] == 404
    assert post("/pub", b"x", topic="plain", partition="zero")[0] == 400
    assert post("/channel/create", topic="plain", partition="0", channel="new")[0] == 200
    assert post("/channel/create", topic="plain", partition="0", channel="new!")[0] == 400
    assert post("/channel/setorder", topic="plain", partition="0", channel="new",
                order="true")[0] == 200
    where = {"topic": "plain", "partition": "0", "channel": "new"}
    assert cluster.messages("plain", 0, "new") == []
    assert post("/channel/setoffset", b"virtual_queue:0", **where)[0] == 200
    assert cluster.messages("plain", 0, "new") == [b"x"]
    assert post("/channel/setoffset", b"special:-1", **where)[0] == 200
    assert cluster.messages("plain", 0, "new") == []
    assert post("/channel/setoffset", b"nonsense", **where)[0] == 400
