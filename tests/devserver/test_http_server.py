"""Routes and responses by value, compared with the Go router; then HTTP/1.1 over a socket."""

import io

import pytest

from nsqclient.devserver.http_message import Response, read_request
from nsqclient.devserver.http_server import (
    MAX_UNREAD_BODY,
    HTTPError,
    HTTPServer,
    Router,
    empty_response,
    json_response,
    read_params,
    text_response,
)
from nsqclient.devserver.protocol.go_compat import encode_json
from tests.support.servers.raw_socket import ask, connect, read_all, read_exactly


@pytest.fixture
def router():
    """A router with an open route, and handlers that name themselves."""
    router = Router()
    router.add("GET", "/ping", lambda request, part: text_response("ping"))
    router.add("POST", "/topic/create", lambda request, part: empty_response())
    router.add("GET", "/config/:opt", lambda request, part: text_response(part))
    router.add("PUT", "/config/:opt", lambda request, part: text_response("put"))
    return router


def make_request(method: str, target: str, body: bytes = b"", *headers: str):
    """A request as it comes from a client."""
    lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    head = "\r\n".join([*lines, "", ""])
    return read_request(io.BytesIO(head.encode() + body), lambda: None)


def route(router: Router, method: str, target: str) -> Response:
    """The response of the router."""
    return router.handle(make_request(method, target))


def test_path_finds_its_handler(router):
    """An open route passes the last part of the path."""
    assert route(router, "GET", "/ping?x=y").body == b"ping"
    assert route(router, "GET", "/config/a%62").body == b"ab"
    assert route(router, "PUT", "/config/ab").body == b"put"


@pytest.mark.parametrize(
    ("method", "target", "status", "location"),
    [
        ("GET", "/ping/", 301, "/ping"),
        ("GET", "/PING?a=b", 301, "/ping?a=b"),
        ("GET", "//ping", 301, "/ping"),
        ("GET", "/x/../ping", 301, "/ping"),
        ("GET", "/config/x/", 301, "/config/x"),
        ("POST", "/Topic/create", 307, "/topic/create"),
        # Real: Location: /config/a%0D%0AX-Evil:%201, and nothing else is unquoted either
        ("GET", "/CONFIG/a%0d%0aX-Evil:%201?b=%0d", 301, "/config/a%0D%0AX-Evil:%201?b=%0d"),
        ("GET", "/CONFIG/%ff%C3%a9%00%22|^~$&+,;=@", 301, "/config/%FF%C3%A9%00%22%7C%5E~$&+,;=@"),
    ],
)
def test_similar_path_is_redirected(router, method, target, status, location):
    """A path that differs in case, slashes or dots is redirected, with its query."""
    answer = route(router, method, target)
    assert (answer.status, dict(answer.headers)["Location"]) == (status, location)


@pytest.mark.parametrize("target", ["/", "/nope", "/config", "/config/", "/config/a/b", "/:opt"])
def test_unknown_path_is_404(router, target):
    """Unknown paths are 404."""
    answer = route(router, "GET", target)
    assert (answer.status, answer.body) == (404, b'{"message":"NOT_FOUND"}')


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("HEAD", "/ping", "GET, OPTIONS"),
        ("POST", "/ping", "GET, OPTIONS"),
        ("GET", "/topic/create", "OPTIONS, POST"),
        ("POST", "/config/x", "GET, OPTIONS, PUT"),
    ],
)
def test_other_method_is_405_with_the_allowed_ones(router, method, target, allow):
    """A known path with another method lists the allowed methods."""
    answer = route(router, method, target)
    assert (answer.status, answer.body) == (405, b'{"message":"METHOD_NOT_ALLOWED"}')
    assert dict(answer.headers)["Allow"] == allow


def test_options_lists_the_methods_of_a_path(router):
    """An unknown path is 404 for OPTIONS too."""
    answer = route(router, "OPTIONS", "/ping")
    assert (answer.status, answer.headers) == (200, (("Allow", "GET, OPTIONS"),))
    assert route(router, "OPTIONS", "*").status == 200
    assert route(router, "OPTIONS", "/nope").status == 404


def test_exception_of_a_handler_becomes_a_response(router, caplog):
    """An HTTPError has its status; another exception is 500 INTERNAL_ERROR, and is logged."""

    def refuse(_request, _part):
        raise HTTPError(413, "MSG_TOO_BIG")

    router.add("GET", "/refuse", refuse)
    router.add("GET", "/bug", lambda request, part: text_response(1 / 0))
    answer = route(router, "GET", "/refuse")
    assert (answer.status, answer.body) == (413, b'{"message":"MSG_TOO_BIG"}')
    answer = route(router, "GET", "/bug")
    assert (answer.status, answer.body) == (500, b'{"message":"INTERNAL_ERROR"}')
    assert "ZeroDivisionError" in caplog.text


def test_responses_have_nsq_header_and_content_type():
    """JSON and text have their types; an empty response has none."""
    for answer in (json_response({}), text_response("x"), empty_response()):
        assert ("X-Nsq-Content-Type", "nsq; version=1.0") in answer.headers
    assert json_response({}).content_type == "application/json; charset=utf-8"
    assert empty_response().content_type is None


def test_json_is_as_go_writes_it():
    """Compact, not ASCII only, and safe inside HTML."""
    assert encode_json({"a": [1, "é<&>\u2028"]}) == (
        '{"a":[1,"é\\u003c\\u0026\\u003e\\u2028"]}'.encode()
    )


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MISSING_ARG_TOPIC"),
        ("topic=", "INVALID_ARG_TOPIC"),
        ("topic=t%0a", "INVALID_ARG_TOPIC"),
        ("topic=t", "MISSING_ARG_CHANNEL"),
        ("topic=t&channel=b$d", "INVALID_ARG_CHANNEL"),
        ("topic=%zz", "INVALID_REQUEST"),
    ],
)
def test_topic_and_channel_are_checked_in_order(query, code):
    """The topic is missing, then invalid; then the channel."""
    with pytest.raises(HTTPError) as caught:
        read_params(make_request("POST", f"/?{query}")).topic_and_channel()
    assert (caught.value.status, caught.value.code) == (400, code)


def test_params_come_from_the_query_alone():
    """The first value of a name counts, and a form in the body is dropped."""
    request = make_request("POST", "/?topic=a&topic=b&channel=c", b"topic=form")
    assert read_params(request).topic_and_channel() == ("a", "c")
    assert request.body.at_end
    assert read_params(request).get("node") is None


@pytest.fixture
def server(leak_guard):
    """A server that says pong, and one route that reads its body."""
    server = HTTPServer("test-http", "127.0.0.1", 0)
    server.router.add("GET", "/ping", lambda request, part: text_response("pong"))
    server.router.add("POST", "/ping", lambda request, part: text_response("pong"))
    server.router.add(
        "POST", "/echo", lambda request, part: text_response(request.body.read(100).decode())
    )
    server.start()
    yield server
    server.stop()


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A POST in bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


CLOSING = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_pipelined_requests_are_answered_in_order(server):
    """An unread body is skipped."""
    answer = ask(server.address, post("/echo", b"one") + post("/ping", b"unread") + CLOSING)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b"one") < answer.index(b"pong") < answer.rindex(b"pong")


def test_http_1_0_response_closes_the_connection(server):
    """HTTP/1.0 is answered with HTTP/1.0, and the connection ends."""
    assert ask(server.address, b"GET /ping HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200 OK\r\n")


def test_large_unread_body_closes_the_connection(server):
    """The response says close."""
    with connect(server.address) as sock:
        head = f"POST /ping HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_UNREAD_BODY + 1}\r\n\r\n"
        sock.sendall(head.encode())
        answer = sock.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


def test_100_continue_precedes_a_body_that_is_read(server):
    """A client that waits gets 100 Continue when the handler reads the body."""
    with connect(server.address) as sock:
        data = post("/echo", b"hello", "Expect: 100-continue")
        sock.sendall(data[:-5])
        assert read_exactly(sock, 25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(data[-5:])
        assert read_exactly(sock, 15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("data", [b"  V2SUB t c\n", b"\x16\x03\x01\r\n", b"GET /ping\r\n\r\n"])
def test_other_protocols_get_400(server, data):
    """nsqd's TCP protocol, TLS and HTTP/0.9 get 400, and the connection ends."""
    answer = ask(server.address, data)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"\r\n\r\n400 Bad Request")


def test_incomplete_request_gets_no_response(server):
    """Four bytes are no request; stop ends the connection."""
    with connect(server.address) as sock:
        sock.sendall(b"  V2")
        server.stop()
        assert read_all(sock) == b""


def test_stop_ends_a_request_in_the_middle(server):
    """A client that never sends its body does not delay stop."""
    with connect(server.address) as sock:
        sock.sendall(post("/echo", b"hello")[:-5])
        server.stop()


def test_client_that_disconnects_early_does_not_affect_others(server, caplog):
    """A client that closes in the middle of its body ends only its own connection."""
    with connect(server.address) as sock:
        sock.sendall(post("/echo", b"hello")[:-5])
    assert b"pong" in ask(server.address, CLOSING)
