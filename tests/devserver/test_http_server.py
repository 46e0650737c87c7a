"""Routes by value; additions to http.server over a socket."""

from email.message import Message

import pytest

from nsqclient.devserver.http_server import HTTPError, HTTPServer, Request, Response
from tests.support.servers.raw_socket import ask, connect, read_all, read_exactly


def refuse(_request: Request) -> Response:
    raise HTTPError(413, "MSG_TOO_BIG")


ROUTES = [
    ("GET", "/ping", lambda request: "pong"),
    ("POST", "/ping", lambda request: "pong"),
    ("POST", "/echo", lambda request: request.read_body(100, "BIG").decode()),
    ("GET", "/refuse", refuse),
    ("GET", "/bug", lambda request: str(1 // 0)),
]


@pytest.fixture
def server(leak_guard):
    """A server that says pong, and reads bodies up to 1000 bytes."""
    server = HTTPServer("test-http", "127.0.0.1", 0, ROUTES, max_body_size=1000)
    server.start()
    yield server
    server.stop()


def make_request(method: str, path: str, **params: list[str]) -> Request:
    return Request(method, path, params, Message(), b"")


@pytest.mark.parametrize(("method", "path", "status", "body"), [
    ("GET", "/ping", 200, b"pong"),
    *[("GET", path, 404, b'{"message":"NOT_FOUND"}') for path in ("/nope", "/ping/")],
    ("HEAD", "/ping", 405, b'{"message":"METHOD_NOT_ALLOWED"}'),
    ("GET", "/refuse", 413, b'{"message":"MSG_TOO_BIG"}'),
    ("GET", "/bug", 500, b'{"message":"INTERNAL_ERROR"}'),
])
def test_a_path_finds_its_handler(server, caplog, method, path, status, body):
    answer = server.handle(make_request(method, path))
    assert (answer.status, answer.body) == (status, body)
    assert ("ZeroDivisionError" in caplog.text) == (status == 500)
    if status == 405:
        assert dict(answer.headers)["Allow"] == "GET, POST"


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


CLOSING = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_pipelined_requests_are_answered_in_order(server):
    answer = ask(server.address, post("/echo", b"one") + post("/ping", b"unread") + CLOSING)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b"one") < answer.index(b"pong") < answer.rindex(b"pong")


def test_a_body_over_the_limit_is_not_read(server):
    answer = ask(server.address, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nConnection: close\r\n" in answer and answer.endswith(b'{"message":"BIG"}')


def test_100_continue_precedes_a_body_that_is_read(server):
    with connect(server.address) as sock:
        data = post("/echo", b"hello", "Expect: 100-continue")
        sock.sendall(data[:-5])
        assert read_exactly(sock, 25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(data[-5:])
        assert read_exactly(sock, 15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("data", [
    b"  V2SUB t c\n", b"\x16\x03\x01 x\r\n", b"G@T /ping HTTP/1.1\r\n\r\n",
    b"POST /ping HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /ping HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
])
def test_what_is_no_request_gets_an_error_and_the_end(server, data):
    answer = ask(server.address, data)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert b"Connection: close\r\n" in answer


def test_stop_ends_incomplete_requests(server):
    """A client that never sends the rest does not delay stop."""
    with connect(server.address) as head, connect(server.address) as body:
        head.sendall(b"  V2")
        body.sendall(post("/echo", b"hello")[:-5])
        server.stop()
        assert read_all(head) == read_all(body) == b""
