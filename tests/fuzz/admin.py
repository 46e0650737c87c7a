"""Mutated requests to the admin page: none may cause an internal error.

``python -m tests.fuzz admin`` sends them to a page with every right, on an embedded
nsqlookupd and two nsqds. A request is built of methods, paths, queries, headers and bodies that the
page knows, some of them mutated; every fourth one is then mutated as bytes.
"""

import json
import random
import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from nsqclient.admin import AdminSettings
from nsqclient.admin.app import AdminServer
from nsqclient.devserver import Nsqd, Nsqlookupd
from tests.fuzz.streams import mutate, mutate_json
from tests.support.waiting import wait_until

#: Seconds for one answer; a mutated peek may take ten.
_TIMEOUT = 60.0

_METHODS = (b"GET", b"GET", b"GET", b"POST", b"POST", b"DELETE", b"PUT", b"HEAD", b"OPTIONS", b"X")
_PATHS = tuple(path.encode() for path in (
    "/", "/topics", "/topics/events", "/topics/events/c", "/nodes", "/nodes/{node}", "/lookup",
    "/producers", "/counter", "/ping", "/metrics", "/static/style.css", "/api/topics",
    "/api/topics/events", "/api/topics/events/c", "/api/nodes", "/api/nodes/{node}",
    "/api/counter", "/api/live/topics", "/api/live/topics/events", "/api/live/topics/events/c",
    "/api/live/nodes", "/api/live/nodes/{node}", "/api/live/lookup", "/api/live/producers",
    "/api/live/publish", "/api/live/peek", "/api/live/bulk", "/api/live/replay",
    "/api/live/doctor", "/api/live/consumers", "/consumers", "/doctor",
    "/config/nsqlookupd_http_addresses", "/config/x",
    "/topics/%ff%00", "/nodes/%ed%a0%80", "/api/topics/..%2f..", "/api/nodes/[::1]:1",
))
_QUERIES = (
    b"", b"", b"?since=1", b"?inactive=true", b"?since=" + b"9" * 5000, b"?since=-1&since=%ff",
)
_BODIES = (
    b'{"topic": "events", "channel": "c", "node": "{node}"}', b'{"topic": "made"}',
    b'{"action": "pause"}', b'{"action": "unpause", "node": "{node}"}', b'{"action": "empty"}',
    b'{"topic": "events", "body": "x", "encoding": "text", "node": "{node}", "defer": 0.5}',
    b'{"topic": "events", "body": "eA==", "encoding": "base64"}',
    b'{"topic": "events", "count": 1, "seconds": 0.01}',
    b'{"topic": "events", "channel": "c", "count": 1, "seconds": 0.01}',
    b'{"action": "pause", "topics": ["events", "made"]}',
    b'{"action": "empty", "topic": "events", "channels": ["c"]}',
    b'{"topic": "events", "channel": "c", "rate": 1000}',
    b'["127.0.0.1:1"]', b'["{lookupd}"]', b"",
)
_HEADERS = (
    b"Host: localhost", b"Host: [::1", b"Host: a]b:x", b"Origin: http://localhost",
    b"Origin: http://[", b"Origin: null", b"Sec-Fetch-Site: cross-site", b"Accept: text/html",
    b"Content-Type: application/json; charset=x", b"Content-Type: text/plain",
    b"Authorization: Basic \xff\xfe", b"Authorization: Basic dTpw", b"X-Forwarded-User: \xff",
    b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked",
    b"Cookie: a=b; \xff", b"X-Forwarded-For: x", b"If-None-Match: \x01", b"Range: bytes=9-1",
)


@contextmanager
def page() -> Iterator[tuple[tuple[str, int], dict[bytes, bytes]]]:
    """An admin page with every right; its address, and what stands for the names in braces."""
    with ExitStack() as stack:
        lookupd = stack.enter_context(Nsqlookupd())
        nsqds = [stack.enter_context(Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]))
                 for _ in range(2)]
        nsqds[0].publish("events", b"x")
        settings = AdminSettings(
            lookupd_http_addresses=(lookupd.http_address,), allow_actions=True, allow_peek=True)
        server = stack.enter_context(AdminServer(settings, port=0))
        host, port = server.url.split("//")[1].strip("/").split(":")
        wait_until(lambda: b"events" in ask((host, int(port)), _plain(b"/api/topics")))
        yield (host, int(port)), {
            b"{node}": nsqds[0].http_address.encode(),
            b"{lookupd}": lookupd.http_address.encode(),
        }


def _plain(path: bytes, method: bytes = b"GET", body: bytes = b"") -> bytes:
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type:" \
        b" application/json\r\nContent-Length: %d\r\n\r\n%s" % (method, path, len(body), body)


def _filled(text: bytes, names: dict[bytes, bytes]) -> bytes:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def build(rng: random.Random, names: dict[bytes, bytes]) -> bytes:
    path = _filled(rng.choice(_PATHS), names) + rng.choice(_QUERIES)
    body = _filled(rng.choice(_BODIES), names)
    if rng.random() < 0.3:
        path = b"/" + mutate(path[1:], rng).replace(b" ", b"%20").replace(b"\n", b"")
    if rng.random() < 0.6:
        body = rng.choice((mutate, mutate_json, mutate_json))(body, rng)
    headers = [b"Host: localhost", b"Connection: close", b"Content-Type: application/json",
               b"Content-Length: %d" % len(body)]
    for _ in range(rng.randrange(3)):
        header = rng.choice(_HEADERS)
        headers.insert(0, mutate(header, rng) if rng.random() < 0.5 else header)
    request = b" ".join((rng.choice(_METHODS), path, b"HTTP/1.1"))
    data = b"\r\n".join((request, *headers, b"", body))
    return mutate(data, rng) if rng.random() < 0.25 else data


def ask(address: tuple[str, int], data: bytes) -> bytes:
    """Send bytes and no more; return the response."""
    answer = b""
    with socket.create_connection(address, _TIMEOUT) as conn:
        try:
            conn.sendall(data)
            conn.shutdown(socket.SHUT_WR)
            while part := conn.recv(65536):
                answer += part
        except TimeoutError:
            raise
        except OSError:
            pass  # it has answered before it had read everything
    return answer


def fuzz(count: int, seed: int) -> Counter[str]:
    """Send ``count`` requests; return how often each status came.

    Raises:
        AssertionError: one was 500, or JSON that a browser does not read.
    """
    rng = random.Random(f"{seed} admin")
    seen: Counter[str] = Counter()
    with page() as (address, names):
        for number in range(count):
            if number % 50 == 0:  # a request may have set other ones
                ask(address, _plain(b"/config/nsqlookupd_http_addresses", b"PUT",
                                    b'["%s"]' % names[b"{lookupd}"]))
            data = build(rng, names)
            answer = ask(address, data)
            # A mutated first line may ask for the HTTP without a status of 1991.
            status = answer[9:12].decode() if answer.startswith(b"HTTP/") else "none"
            seen[status] += 1
            assert status != "500" and b"INTERNAL_ERROR" not in answer, f"{data!r}: {answer!r:.999}"
            if status == "200" and b"application/json" in answer and b"\r\n\r\n{" in answer:
                json.loads(_body(answer), parse_constant=_refuse)
    return seen


def _body(answer: bytes) -> bytes:
    """The body of the first answer: what follows a mutated length is another request."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    found = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return rest[:int(found[1])] if found else rest


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")
