"""HTTP/1.1 over a socket: keep-alive, pipelining, bodies nobody read, other protocols."""

import pytest

from nsqclient.devserver.http_router import text_answer
from nsqclient.devserver.http_server import MAX_UNREAD_BODY, HTTPServer
from tests.support.raw import ask, connect, read_all, read_exactly


@pytest.fixture
def server(leak_guard):
    """A server that says pong, and one route that reads its body."""
    server = HTTPServer("test-http", "127.0.0.1", 0)
    server.router.add("GET", "/ping", lambda request, part: text_answer("pong"))
    server.router.add("POST", "/ping", lambda request, part: text_answer("pong"))
    server.router.add(
        "POST", "/echo", lambda request, part: text_answer(request.body.read(100).decode())
    )
    server.start()
    yield server
    server.stop()


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A POST in bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


CLOSING = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_requests_may_be_pipelined(server):
    """Requests sent together are answered in order; an unread body is skipped."""
    answer = ask(server.address, post("/echo", b"one") + post("/ping", b"unread") + CLOSING)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b"one") < answer.index(b"pong") < answer.rindex(b"pong")


def test_http_1_0_closes(server):
    """HTTP/1.0 is answered in kind, and the connection ends."""
    assert ask(server.address, b"GET /ping HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200 OK\r\n")


def test_a_big_unread_body_closes(server):
    """With too much of a body left the answer says close, and the connection ends."""
    with connect(server.address) as sock:
        head = f"POST /ping HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_UNREAD_BODY + 1}\r\n\r\n"
        sock.sendall(head.encode())
        answer = sock.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


def test_100_continue(server):
    """A client that waits is told to go on when its body is wanted."""
    with connect(server.address) as sock:
        data = post("/echo", b"hello", "Expect: 100-continue")
        sock.sendall(data[:-5])
        assert read_exactly(sock, 25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(data[-5:])
        assert read_exactly(sock, 15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("data", [b"  V2SUB t c\n", b"\x16\x03\x01\r\n", b"GET /ping\r\n\r\n"])
def test_other_protocols_get_400(server, data):
    """nsqd's TCP protocol, TLS and HTTP/0.9 are told what this is, and closed."""
    answer = ask(server.address, data)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"\r\n\r\n400 Bad Request")


def test_magic_alone_waits_for_more(server):
    """Four bytes are no request yet: nothing is said, and stop still ends it."""
    with connect(server.address) as sock:
        sock.sendall(b"  V2")
        server.stop()
        assert read_all(sock) == b""


def test_stop_ends_a_request_in_the_middle(server):
    """A client that never sends its body does not hold up stop."""
    with connect(server.address) as sock:
        sock.sendall(post("/echo", b"hello")[:-5])
        server.stop()


def test_a_client_that_leaves_early(server, caplog):
    """A client that goes in the middle of its body costs nothing but its own connection."""
    with connect(server.address) as sock:
        sock.sendall(post("/echo", b"hello")[:-5])
    assert b"pong" in ask(server.address, CLOSING)
