"""The embedded servers' HTTP answers against the real ones': status, headers and body.

What cannot be equal is made equal first: dates, ports, times, and what depends on the machine.
"""

import http.client
import json
import re

import pytest

from nsqclient.devserver import Nsqd, Nsqlookupd
from tests.support.servers.raw_client import RawClient
from tests.support.servers.raw_socket import ask

pytestmark = pytest.mark.real

LIMITS = {"max_msg_size": 100, "max_body_size": 1000}

#: (method, target, body); each list is sent in order to a fresh server.
Request = tuple[str, str, bytes]


def _mpub(*bodies: bytes, count: int | None = None) -> bytes:
    parts = [(len(bodies) if count is None else count).to_bytes(4, "big", signed=True)]
    for body in bodies:
        parts += [len(body).to_bytes(4, "big"), body]
    return b"".join(parts)


ROUTER: list[Request] = [
    ("GET", "/ping", b""),
    ("GET", "/%70ing", b""),
    ("GET", "/", b""),
    ("GET", "/nope", b""),
    ("GET", "/put?topic=t", b""),
    ("HEAD", "/ping", b""),
    ("POST", "/ping", b""),
    ("GET", "/topic/create", b""),
]

NSQLOOKUPD: list[Request] = [
    *ROUTER,
    ("GET", "/info", b""),
    ("GET", "/topics", b""),
    ("GET", "/nodes", b""),
    ("GET", "/channels", b""),
    ("GET", "/channels?topic=t", b""),
    ("GET", "/lookup", b""),
    ("GET", "/lookup?topic=t", b""),
    ("POST", "/topic/create", b"topic=form"),
    ("POST", "/topic/create?topic=", b""),
    ("POST", "/topic/create?topic=b$d", b""),
    ("POST", "/topic/create?topic=t&topic=u", b"body"),
    ("GET", "/topics", b""),
    ("GET", "/lookup?topic=t", b""),
    ("POST", "/channel/create", b""),
    ("POST", "/channel/create?topic=v", b""),
    ("POST", "/channel/create?topic=v&channel=c%23ephemeral", b""),
    ("GET", "/channels?topic=v", b""),
    ("GET", "/lookup?topic=v", b""),
    ("POST", "/channel/delete?topic=v", b""),
    ("POST", "/channel/delete?topic=v&channel=nope", b""),
    ("POST", "/channel/delete?topic=v&channel=c%23ephemeral", b""),
    ("GET", "/channels?topic=v", b""),
    ("POST", "/topic/tombstone", b""),
    ("POST", "/topic/tombstone?topic=t", b""),
    ("POST", "/topic/tombstone?topic=t&node=nobody:1", b""),
    ("POST", "/topic/delete", b""),
    ("POST", "/topic/delete?topic=nope", b""),
    ("POST", "/topic/delete?topic=v", b""),
    ("GET", "/topics", b""),
    ("POST", "/create_topic?topic=t", b""),
]

_STATS = "/stats?format=json&include_mem=false"

NSQD: list[Request] = [
    *ROUTER,
    ("GET", _STATS, b""),
    ("GET", _STATS + "&topic=nope", b""),
    ("POST", "/pub", b""),
    ("POST", "/pub", b"x" * 101),
    ("POST", "/pub", b"hi"),
    ("POST", "/pub?topic=", b"hi"),
    ("POST", "/pub?topic=b$d", b"hi"),
    ("POST", "/pub?topic=t", b"hi"),
    ("POST", "/pub?topic=t", b"x" * 100),
    ("POST", "/pub?topic=e%23ephemeral", b"hi"),
    ("POST", "/pub?topic=d0&defer=", b"hi"),
    ("POST", "/pub?topic=d1&defer=x", b"hi"),
    ("POST", "/pub?topic=d1&defer=-1", b"hi"),
    ("POST", "/pub?topic=d1&defer=3600001", b"hi"),
    ("POST", "/pub?topic=d1&defer=0", b"hi"),
    ("GET", _STATS, b""),
    ("POST", "/mpub", b"a"),
    ("POST", "/mpub?topic=b$d", b"x" * 1001),
    ("POST", "/mpub?topic=m", b""),
    ("POST", "/mpub?topic=m", b"a\n\nb\nc"),
    ("POST", "/mpub?topic=m", b"a\n" + b"x" * 101 + b"\nb"),
    ("POST", "/mpub?topic=m", b"x\n" * 500),
    ("POST", "/mpub?topic=m", b"x\n" * 500 + b"x"),
    ("POST", "/mpub?topic=m&binary=0", _mpub(b"a")),
    ("POST", "/mpub?topic=m&binary=false", b"a"),
    ("POST", "/mpub?topic=m&binary=true", _mpub(b"a", b"bc")),
    ("POST", "/mpub?topic=m&binary=", _mpub(b"a")),
    ("POST", "/mpub?topic=m&binary=1", b""),
    ("POST", "/mpub?topic=m&binary=1", b"\0\0"),
    ("POST", "/mpub?topic=m&binary=1", _mpub()),
    ("POST", "/mpub?topic=m&binary=1", _mpub(b"a", count=-1)),
    ("POST", "/mpub?topic=m&binary=1", _mpub(b"a", count=199)),
    ("POST", "/mpub?topic=m&binary=1", _mpub(b"a", b"")),
    ("POST", "/mpub?topic=m&binary=1", _mpub(b"a", b"x" * 101)),
    ("POST", "/mpub?topic=m&binary=1", _mpub(b"a", b"bc")[:-1]),
    ("POST", "/mpub?topic=m&binary=1", _mpub(b"a") + b"more"),
    ("POST", "/mpub?topic=m&defer=1000", b"a"),
    ("GET", _STATS + "&topic=m", b""),
    ("POST", "/topic/create", b""),
    ("POST", "/topic/create?topic=t", b"body"),
    ("POST", "/topic/create?topic=new", b""),
    ("POST", "/channel/create", b""),
    ("POST", "/channel/create?topic=new", b""),
    ("POST", "/channel/create?topic=b$d&channel=c", b""),
    ("POST", "/channel/create?topic=new&channel=b$d", b""),
    ("POST", "/channel/create?topic=nope&channel=c", b""),
    ("POST", "/channel/create?topic=t&channel=c", b""),
    ("POST", "/channel/create?topic=t&channel=c", b""),
    ("POST", "/channel/create?topic=t&channel=x%23ephemeral", b""),
    ("POST", "/pub?topic=t&defer=1000000", b"later"),
    ("GET", _STATS + "&topic=t", b""),
    ("GET", _STATS + "&topic=t&include_clients=false", b""),
    ("GET", _STATS + "&topic=t&channel=c", b""),
    ("GET", _STATS + "&topic=t&channel=nope", b""),
    ("GET", _STATS + "&channel=c", b""),
    ("POST", "/topic/pause", b""),
    ("POST", "/topic/pause?topic=new", b""),
    ("POST", "/topic/unpause?topic=nope", b""),
    ("POST", "/channel/pause?topic=t&channel=c", b""),
    ("POST", "/channel/pause?topic=t&channel=nope", b""),
    ("POST", "/channel/pause?topic=nope&channel=c", b""),
    ("POST", "/channel/pause?topic=t", b""),
    ("GET", _STATS + "&topic=new", b""),
    ("POST", "/topic/unpause?topic=new", b""),
    ("POST", "/channel/unpause?topic=t&channel=c", b""),
    ("POST", "/channel/empty?topic=t&channel=nope", b""),
    ("POST", "/channel/empty?topic=t&channel=c", b""),
    ("POST", "/topic/empty", b""),
    ("POST", "/topic/empty?topic=nope", b""),
    ("POST", "/topic/empty?topic=m", b""),
    ("GET", _STATS, b""),
    ("POST", "/channel/delete?topic=t&channel=nope", b""),
    ("POST", "/channel/delete?topic=t&channel=c", b""),
    ("POST", "/topic/delete", b""),
    ("POST", "/topic/delete?topic=nope", b""),
    ("POST", "/topic/delete?topic=t", b""),
    ("GET", _STATS, b""),
    ("GET", "/config", b""),
    ("GET", "/config/", b""),
]

#: Bodies of nsqd's publishing; each on a connection of its own.
BODIES: list[bytes] = [
    b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\ninfo",
    b"Content-Length: 300000\r\n\r\n",
]

# Permitted differences of the two servers.
_VARIABLE = [
    (rb'"start_time":\d+', b'"start_time":0'),
    (rb"\(built w/[^)]*\)", b"(built w/)"),
    (rb"start_time \S+", b"start_time"),
    (rb"uptime \S+", b"uptime"),
    (rb'"remote_address":"[^"]*"', b'"remote_address":""'),
    (rb'"connect_ts":\d+', b'"connect_ts":0'),
    (rb"here:\d+ ", b"here:0 "),
    (rb"connected: \d+s", b"connected: 0s"),
    (rb"Date: [^\r]*\r\n", b""),
]

Answer = tuple[int, list[tuple[str, str]], bytes]


def exchange(connection: http.client.HTTPConnection, request: Request) -> Answer:
    """Send a request and return the answer without what varies."""
    method, target, body = request
    connection.request(method, target, body)
    response = connection.getresponse()
    data = _constant(response.read())
    headers = sorted(
        (name, value)
        for name, value in response.getheaders()
        # OPTIONS is not served, and the connection ends where a body was not read. The length of
        # the statistics depends on what was taken out.
        if name not in ("Date", "Allow", "Connection")
        and not (name == "Content-Length" and "/stats" in target)
    )
    return response.status, headers, _in_order(data)


def _constant(data: bytes) -> bytes:
    for pattern, constant in _VARIABLE:
        data = re.sub(pattern, constant, data)
    return data


def _in_order(data: bytes) -> bytes:
    """Sort the lists of names that the real one gives in random order."""
    try:
        value = json.loads(data)
    except ValueError:
        return data
    if not isinstance(value, dict):
        return data
    for name in ("topics", "channels"):
        if isinstance(value.get(name), list) and all(isinstance(x, str) for x in value[name]):
            value[name].sort()
    return json.dumps(value).encode()


def compare(real: str, embedded: str, requests: list[Request]) -> None:
    left = http.client.HTTPConnection(real, timeout=10)
    right = http.client.HTTPConnection(embedded, timeout=10)
    try:
        differences = [
            (request, expected, got)
            for request in requests
            if (expected := exchange(left, request)) != (got := exchange(right, request))
        ]
    finally:
        left.close()
        right.close()
    assert differences == []


def ask_raw(address: str, data: bytes) -> tuple[bytes, bytes]:
    """Send bytes and return the lines of the statuses, and the body."""
    answer = ask(address, data)
    return b" ".join(re.findall(rb"HTTP/1\.1 \d\d\d", answer)), answer.rpartition(b"\r\n\r\n")[2]


@pytest.fixture
def nsqds(real_nsqd):
    real = real_nsqd(**LIMITS)
    with Nsqd(**LIMITS) as embedded:
        yield real.http_address, embedded.http_address


@pytest.fixture
def nsqlookupds(real_nsqlookupd):
    real = real_nsqlookupd()
    with Nsqlookupd() as embedded:
        yield real.http_address, embedded.http_address


def test_the_embedded_nsqd_answers_requests_as_the_real_one(nsqds):
    compare(*nsqds, NSQD)


def test_the_embedded_nsqlookupd_answers_requests_as_the_real_one(nsqlookupds):
    compare(*nsqlookupds, NSQLOOKUPD)


@pytest.mark.parametrize("path", ["/pub?topic=c", "/mpub?topic=c"])
@pytest.mark.parametrize("body", BODIES)
def test_oversize_bodies_are_answered_as_by_the_real_one(nsqds, path, body):
    data = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode() + body
    assert ask_raw(nsqds[1], data) == ask_raw(nsqds[0], data)


def _identify(client: RawClient, name: str) -> None:
    body = json.dumps({"client_id": name, "hostname": "here", "user_agent": "parity/1"}).encode()
    client.ask(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body)


def test_statistics_of_clients_are_those_of_the_real_one(real_nsqd):
    real = real_nsqd()
    answers = []
    with Nsqd() as embedded:
        for nsqd in (real, embedded):
            with RawClient(nsqd.tcp_address) as consumer, RawClient(nsqd.tcp_address) as producer:
                _identify(consumer, "c1")
                _identify(producer, "p1")
                for _ in range(3):
                    producer.ask(b"PUB t\n\0\0\0\x02hi")
                consumer.subscribe("t", "c", ready=3)
                ids = [consumer.read_message()[0] for _ in range(3)]
                consumer.send(b"FIN %b\nREQ %b 600000\n" % (ids[0], ids[1]))
                # nsqd has executed the earlier commands once it answers an error.
                consumer.ask(b"FIN 0123456789abcdef\n")
                connection = http.client.HTTPConnection(nsqd.http_address, timeout=10)
                connection.request("GET", "/stats?format=json&include_mem=0")
                answers.append(_constant(connection.getresponse().read()).decode())
                connection.close()
    assert answers[1].split("\n") == answers[0].split("\n")
