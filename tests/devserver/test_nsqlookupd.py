"""The embedded nsqlookupd over its two ports."""

import json
import socket
import struct

import pytest
import requests

from nsqclient.devserver.nsqlookupd import Nsqlookupd
from nsqclient.devserver.protocol.lookupd import MAGIC_V1, Identity
from tests.support.servers.raw_socket import ask, connect, read_all, read_exactly
from tests.support.waiting import wait_until

NSQD = Identity("10.0.0.1", "there", 4151, 4150, "1.3.0")


class Clock:
    """A clock that tests turn."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Producer:
    """An nsqd as nsqlookupd sees it."""

    def __init__(self, address: str) -> None:
        self.sock = connect(address)
        body = NSQD.to_json()
        hello = MAGIC_V1 + b"IDENTIFY\n" + struct.pack(">i", len(body)) + body
        self.lookupd = json.loads(self.say(hello))

    @property
    def address(self) -> str:
        """How nsqlookupd calls it."""
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    def say(self, data: bytes) -> bytes:
        """Send a command and return the answer."""
        self.sock.sendall(data)
        (size,) = struct.unpack(">i", read_exactly(self.sock, 4))
        return read_exactly(self.sock, size)


@pytest.fixture
def clock():
    """The clock of the server."""
    return Clock()


@pytest.fixture
def lookupd(leak_guard, clock):
    """A running nsqlookupd."""
    with Nsqlookupd(clock=clock) as lookupd:
        yield lookupd


@pytest.fixture
def producer(lookupd):
    """A producer that has identified itself."""
    producer = Producer(lookupd.tcp_address)
    with producer.sock:
        yield producer


@pytest.fixture
def get(lookupd):
    """GET a path of the HTTP API."""
    return lambda path: requests.get(f"http://{lookupd.http_address}{path}", timeout=10)


@pytest.fixture
def post(lookupd):
    """POST to a path of the HTTP API."""
    return lambda path: requests.post(f"http://{lookupd.http_address}{path}", timeout=10)


def test_identify_response_has_the_ports(lookupd, producer):
    """nsqd gets the address for HTTP requests."""
    peer = producer.lookupd
    assert f"{peer['broadcast_address']}:{peer['http_port']}" == lookupd.http_address
    assert f"{peer['broadcast_address']}:{peer['tcp_port']}" == lookupd.tcp_address
    assert (peer["version"], peer["hostname"]) == ("1.3.0", socket.gethostname())


def test_a_registered_producer_is_found(producer, get):
    """After the OK of REGISTER the producer is in /lookup, /nodes, /topics and /channels."""
    assert producer.say(b"REGISTER t c\n") == b"OK"
    facts = {"remote_address": producer.address, "hostname": "there",
             "broadcast_address": "10.0.0.1", "tcp_port": 4150, "http_port": 4151,
             "version": "1.3.0"}
    assert get("/lookup?topic=t").json() == {"channels": ["c"], "producers": [facts]}
    assert get("/nodes").json() == {
        "producers": [facts | {"tombstones": [False], "topics": ["t"]}]
    }
    assert get("/topics").json() == {"topics": ["t"]}
    assert get("/channels?topic=t").json() == {"channels": ["c"]}


def test_unregister_removes_the_producer(producer, get):
    """After the OK of UNREGISTER the producer is gone and the topic stays."""
    producer.say(b"REGISTER t#ephemeral\n")
    producer.say(b"REGISTER t\n")
    producer.say(b"UNREGISTER t\n")
    producer.say(b"UNREGISTER t#ephemeral\n")
    assert get("/lookup?topic=t").json() == {"channels": [], "producers": []}
    assert get("/topics").json() == {"topics": ["t"]}


def test_a_closed_connection_drops_the_producer(producer, get):
    """An nsqd that disconnects is not found."""
    producer.say(b"REGISTER t c\n")
    producer.sock.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: get("/lookup?topic=t").json() == {"channels": ["c"], "producers": []})
    assert get("/nodes").json() == {"producers": []}


def test_drop_producers_disconnects_every_nsqd(lookupd, producer, get):
    """A test may disconnect every nsqd."""
    producer.say(b"REGISTER t\n")
    lookupd.drop_producers()
    assert read_all(producer.sock) == b""
    wait_until(lambda: get("/nodes").json() == {"producers": []})


def test_ping_keeps_a_producer_active(producer, clock, get):
    """A producer that was silent too long is hidden until its next PING."""
    producer.say(b"REGISTER t\n")
    clock.now += 301
    assert get("/lookup?topic=t").json()["producers"] == []
    producer.say(b"PING\n")
    assert len(get("/lookup?topic=t").json()["producers"]) == 1


def test_a_tombstone_hides_a_producer_until_it_expires(producer, clock, get, post):
    """A tombstoned producer is hidden from /lookup, marked in /nodes, and comes back."""
    producer.say(b"REGISTER t\n")
    assert post("/topic/tombstone?topic=t&node=10.0.0.1:4151").status_code == 200
    assert get("/lookup?topic=t").json()["producers"] == []
    assert get("/nodes").json()["producers"][0]["tombstones"] == [True]
    clock.now += 45
    assert len(get("/lookup?topic=t").json()["producers"]) == 1


def test_topics_and_channels_are_created_and_deleted_over_http(get, post):
    """They need no producer; deleting a topic deletes its channels."""
    assert post("/channel/create?topic=t&channel=c").content == b""
    assert post("/topic/create?topic=u").status_code == 200
    assert get("/topics").json() == {"topics": ["t", "u"]}
    assert post("/channel/delete?topic=t&channel=c").status_code == 200
    assert post("/channel/delete?topic=t&channel=c").text == '{"message":"CHANNEL_NOT_FOUND"}'
    for _ in range(2):
        assert post("/topic/delete?topic=t").status_code == 200
    assert get("/lookup?topic=t").text == '{"message":"TOPIC_NOT_FOUND"}'


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/topic/create", "MISSING_ARG_TOPIC"),
        ("/topic/create?topic=b$d", "INVALID_ARG_TOPIC"),
        ("/topic/delete", "MISSING_ARG_TOPIC"),
        ("/topic/tombstone?topic=t", "MISSING_ARG_NODE"),
        ("/channel/create?topic=t", "MISSING_ARG_CHANNEL"),
        ("/channel/delete?topic=t&channel=%20", "INVALID_ARG_CHANNEL"),
    ],
)
def test_missing_and_invalid_arguments_are_400(post, path, code):
    """The codes are nsqlookupd's."""
    answer = post(path)
    assert (answer.status_code, answer.json()) == (400, {"message": code})


def test_ping_and_info_answer(get):
    """As nsqlookupd's."""
    assert (get("/ping").text, get("/info").text) == ("OK", '{"version":"1.3.0"}')


def test_http_on_the_tcp_port_gets_an_error(lookupd):
    """A browser on the TCP port gets the protocol's error, and the connection ends."""
    answer = ask(lookupd.tcp_address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer == b"\x00\x00\x00\x0eE_BAD_PROTOCOL"


@pytest.mark.parametrize(("data", "answer"), [
    (b"FOO\n", b"E_INVALID invalid command FOO"),
    (b"\n", b"E_INVALID invalid command "),
    (b"REGISTER t\n", b"E_INVALID client must IDENTIFY"),
    (b"UNREGISTER t\n", b"E_INVALID client must IDENTIFY"),
    (b"PING\nFOO\n", b"OK\x00\x00\x00\x1dE_INVALID invalid command FOO"),
])
def test_a_command_out_of_order_ends_the_connection(lookupd, data, answer):
    """The texts are nsqlookupd's; only PING needs no IDENTIFY."""
    assert ask(lookupd.tcp_address, MAGIC_V1 + data)[4:] == answer


def test_a_second_identify_ends_the_connection(producer):
    """An nsqd identifies itself once."""
    assert producer.say(b"IDENTIFY\n") == b"E_INVALID cannot IDENTIFY again"


def test_negative_body_size_ends_only_the_connection(lookupd, get):
    """The real nsqlookupd crashes."""
    answer = ask(lookupd.tcp_address, MAGIC_V1 + b"IDENTIFY\n\xff\xff\xff\xff")
    assert answer[4:] == b"E_BAD_BODY IDENTIFY invalid body size -1"
    assert get("/ping").text == "OK"


def test_http_port_in_use_frees_the_tcp_port(lookupd):
    """When one port is in use, the other one is closed."""
    port = int(lookupd.http_address.rpartition(":")[2])
    other = Nsqlookupd(http_port=port)
    with pytest.raises(OSError, match="cannot listen on"):
        other.start()
    other.stop()


def test_broadcast_address_is_sent_to_nsqd():
    """nsqd gets the address that was asked for."""
    with Nsqlookupd(broadcast_address="outside") as lookupd:
        producer = Producer(lookupd.tcp_address)
        with producer.sock:
            assert producer.lookupd["broadcast_address"] == "outside"
