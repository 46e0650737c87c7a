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


class Producer:
    def __init__(self, address: str) -> None:
        self.sock = connect(address)
        body = NSQD.to_json()
        hello = MAGIC_V1 + b"IDENTIFY\n" + struct.pack(">i", len(body)) + body
        self.lookupd = json.loads(self.say(hello))

    @property
    def address(self) -> str:
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    def say(self, data: bytes) -> bytes:
        self.sock.sendall(data)
        (size,) = struct.unpack(">i", read_exactly(self.sock, 4))
        return read_exactly(self.sock, size)


@pytest.fixture
def lookupd(leak_guard):
    with Nsqlookupd() as lookupd:
        yield lookupd


@pytest.fixture
def producer(lookupd):
    producer = Producer(lookupd.tcp_address)
    with producer.sock:
        yield producer


@pytest.fixture
def get(lookupd):
    return lambda path: requests.get(f"http://{lookupd.http_address}{path}", timeout=10)


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


def test_drop_producers_disconnects_every_nsqd(lookupd, producer, get):
    producer.say(b"REGISTER t\n")
    lookupd.drop_producers()
    assert read_all(producer.sock) == b""
    wait_until(lambda: get("/nodes").json() == {"producers": []})


def test_negative_body_size_ends_only_the_connection(lookupd, get):
    """The real nsqlookupd crashes."""
    answer = ask(lookupd.tcp_address, MAGIC_V1 + b"IDENTIFY\n\xff\xff\xff\xff")
    assert answer[4:] == b"E_BAD_BODY IDENTIFY invalid body size -1"
    assert get("/ping").text == "OK"


def test_http_port_in_use_frees_the_tcp_port(lookupd):
    port = int(lookupd.http_address.rpartition(":")[2])
    other = Nsqlookupd(http_port=port)
    with pytest.raises(OSError, match="cannot listen on"):
        other.start()
    other.stop()
