"""Routing and answers, compared with what the Go router was seen to do."""

import io

import pytest

from nsqclient.devserver.http_message import Response, read_request
from nsqclient.devserver.http_router import (
    HTTPError,
    Router,
    empty_answer,
    json_answer,
    read_params,
    text_answer,
    to_json,
)


@pytest.fixture
def router():
    """A router with an open route, and handlers that say who they are."""
    router = Router()
    router.add("GET", "/ping", lambda request, part: text_answer("ping"))
    router.add("POST", "/topic/create", lambda request, part: empty_answer())
    router.add("GET", "/config/:opt", lambda request, part: text_answer(part))
    router.add("PUT", "/config/:opt", lambda request, part: text_answer("put"))
    return router


def make_request(method: str, target: str, body: bytes = b"", *headers: str):
    """A request as it comes from a client."""
    lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    head = "\r\n".join([*lines, "", ""])
    return read_request(io.BytesIO(head.encode() + body), lambda: None)


def ask(router: Router, method: str, target: str) -> Response:
    """Let the router answer."""
    return router.handle(make_request(method, target))


def test_routes(router):
    """A path finds its handler; an open route hands over the last part."""
    assert ask(router, "GET", "/ping?x=y").body == b"ping"
    assert ask(router, "GET", "/config/a%62").body == b"ab"
    assert ask(router, "PUT", "/config/ab").body == b"put"


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
def test_redirects(router, method, target, status, location):
    """A path that is nearly right is redirected, with its query."""
    answer = ask(router, method, target)
    assert (answer.status, dict(answer.headers)["Location"]) == (status, location)


@pytest.mark.parametrize("target", ["/", "/nope", "/config", "/config/", "/config/a/b", "/:opt"])
def test_not_found(router, target):
    """Unknown paths are 404."""
    answer = ask(router, "GET", target)
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
def test_method_not_allowed(router, method, target, allow):
    """A known path with another method is 405 and says what is allowed."""
    answer = ask(router, method, target)
    assert (answer.status, answer.body) == (405, b'{"message":"METHOD_NOT_ALLOWED"}')
    assert dict(answer.headers)["Allow"] == allow


def test_options(router):
    """OPTIONS lists the methods of a path, and knows no unknown path."""
    answer = ask(router, "OPTIONS", "/ping")
    assert (answer.status, answer.headers) == (200, (("Allow", "GET, OPTIONS"),))
    assert ask(router, "OPTIONS", "*").status == 200
    assert ask(router, "OPTIONS", "/nope").status == 404


def test_errors_of_handlers(router, caplog):
    """An HTTPError becomes its answer, a bug INTERNAL_ERROR and a line in the log."""

    def refuse(_request, _part):
        raise HTTPError(413, "MSG_TOO_BIG")

    router.add("GET", "/refuse", refuse)
    router.add("GET", "/bug", lambda request, part: text_answer(1 / 0))
    answer = ask(router, "GET", "/refuse")
    assert (answer.status, answer.body) == (413, b'{"message":"MSG_TOO_BIG"}')
    answer = ask(router, "GET", "/bug")
    assert (answer.status, answer.body) == (500, b'{"message":"INTERNAL_ERROR"}')
    assert "ZeroDivisionError" in caplog.text


def test_what_marks_an_nsq_answer():
    """Answers carry NSQ's header; JSON and text have their types, nothing has none."""
    for answer in (json_answer({}), text_answer("x"), empty_answer()):
        assert ("X-Nsq-Content-Type", "nsq; version=1.0") in answer.headers
    assert json_answer({}).content_type == "application/json; charset=utf-8"
    assert empty_answer().content_type is None


def test_json_is_as_go_writes_it():
    """Compact, not ASCII only, and safe inside HTML."""
    assert to_json({"a": [1, "é<&>\u2028"]}) == (
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
    """The first of several counts, and a form in the body is thrown away."""
    request = make_request("POST", "/?topic=a&topic=b&channel=c", b"topic=form")
    assert read_params(request).topic_and_channel() == ("a", "c")
    assert request.body.at_end
    assert read_params(request).get("node") is None
