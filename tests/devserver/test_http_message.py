"""HTTP requests from bytes, whole and in pieces, and responses to bytes."""

import io
from email.utils import formatdate

import pytest

from nsqclient.devserver.http_message import (
    MAX_HEAD_SIZE,
    BadRequestError,
    BodyError,
    BodyReader,
    Response,
    http_date,
    parse_query,
    read_request,
)


def read(data: bytes, continues=None):
    """Read one request from bytes; ``continues`` collects the "100 Continue"s."""
    asked = [] if continues is None else continues
    return read_request(io.BytesIO(data), lambda: asked.append(1))


def request(*headers: str, body: bytes = b"", target: str = "/x", version: str = "1.1"):
    """Read a POST with these headers and body."""
    head = "\r\n".join([f"POST {target} HTTP/{version}", "Host: here", *headers, "", ""])
    return read(head.encode() + body)


def chunked(body: bytes):
    """Read a request with this chunked body."""
    return request("Transfer-Encoding: chunked", body=body)


def test_request_has_method_path_query_and_headers():
    """The path is unquoted, the query raw, header names are in lower case."""
    got = request("X-Y:  a b ", target="/a%20b?c=%64")
    assert (got.method, got.path, got.query, got.version) == ("POST", "/a b", "c=%64", (1, 1))
    assert got.headers == {"host": "here", "x-y": "a b"}


def test_end_of_stream_before_a_request_is_none():
    """The end of the stream before a request is no error."""
    assert read(b"") is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET /ping\r\n\r\n",
        b"GET /ping FOO\r\n\r\n",
        b"  V2PUB t\n\x00\x00\x00\x02hi",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"\r\nGET / HTTP/1.1\r\n\r\n",
        b"GET ping HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost",
        b"GET",
    ],
)
def test_invalid_head_is_400(data):
    """Other protocols and broken heads are 400 Bad Request."""
    with pytest.raises(BadRequestError, match="^400 Bad Request$"):
        read(data)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "400 Bad Request: missing required Host header"),
        (b"GET / HTTP/1.1\r\nA b: c\r\n\r\n", "400 Bad Request: invalid header name"),
        (b"GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nA: b\x00\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nA: b\r\n c\x1b\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/2.0\r\n\r\n",
         "505 HTTP Version Not Supported: unsupported protocol version"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", "501 Not Implemented"),
        (b"GET /" + b"a" * MAX_HEAD_SIZE, "431 Request Header Fields Too Large"),
    ],
)
def test_rejected_head_has_its_own_status(data, status):
    """Some heads are rejected with their own status, and the connection ends."""
    with pytest.raises(BadRequestError) as caught:
        read(data)
    assert caught.value.to_bytes().startswith(b"HTTP/1.1 " + status.encode() + b"\r\n")
    assert b"Connection: close\r\n" in caught.value.to_bytes()


def test_bare_newlines_folded_headers_and_absolute_targets_are_accepted():
    """Go accepts them too."""
    got = read(b"GET http://h/a?b HTTP/1.1\nHost: x\nA: 1\n 2\n\n")
    assert (got.path, got.query, got.headers["a"]) == ("/a", "b", "1 2")


def test_body_is_read_up_to_a_limit_and_its_length():
    """Nothing after the body is read."""
    got = request("Content-Length: 5", body=b"helloGET /")
    assert got.body.read(3) == b"hel"
    assert (got.body.read(10), got.body.at_end, got.content_length) == (b"lo", True, 5)
    assert got.body.read(10) == b""


@pytest.mark.parametrize(
    "body",
    [b"5\r\nhello\r\n0\r\n\r\n", b"2;x=y\r\nhe\r\n3\nllo\r\n0\r\nTrailer: x\r\n\r\n"],
)
def test_chunks_are_joined(body):
    """Extensions and trailers are skipped."""
    got = chunked(body)
    assert (got.body.read(100), got.body.at_end, got.content_length) == (b"hello", True, -1)


@pytest.mark.parametrize(
    "body", [b"zz\r\nhello\r\n", b"5\r\nhelloX\r\n", b"5\r\nhel", b"", b"0\r\n", b"\r\n"]
)
def test_malformed_chunks_are_an_error(body):
    """Malformed chunks and early ends raise, the second time too."""
    got = chunked(body)
    for _ in range(2):
        with pytest.raises(BodyError):
            got.body.discard(10**9)
    assert not got.body.drain(100)


@pytest.mark.parametrize(("limit", "is_read"), [(2, False), (3, True), (4, True)])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_discard_reads_a_limited_body(limit, is_read, is_chunked):
    """A body that never ends is not read to its end."""
    stream = io.BytesIO(b"3\r\nabc\r\n0\r\n\r\n" if is_chunked else b"abc")
    body = BodyReader(stream, None if is_chunked else 3)
    assert body.discard(limit) == is_read


@pytest.mark.parametrize(("count", "is_valid"), [(99, True), (100, False)])
def test_the_number_of_trailers_is_limited(count, is_valid):
    """They come after the last chunk, and are dropped."""
    body = BodyReader(io.BytesIO(b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * count + b"\r\n"), None)
    if is_valid:
        assert body.read(10) == b"x" and body.at_end
    else:
        with pytest.raises(BodyError):
            body.read(10)


def test_drain_reads_the_rest_up_to_a_limit():
    """A longer rest stays unread."""
    assert request("Content-Length: 5", body=b"hello").body.drain(5)
    assert not request("Content-Length: 5", body=b"hello").body.drain(4)
    assert chunked(b"5\r\nhello\r\n0\r\n\r\n").body.drain(5)
    assert not chunked(b"5\r\nhello\r\n0\r\n\r\n").body.drain(4)
    assert request().body.drain(0)
    assert not request("Content-Length: 5", body=b"he").body.drain(5)


def test_100_continue_is_sent_before_the_first_read():
    """It is never sent for a body that is not read."""
    data = b"PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"
    asked = []
    got = read(data, asked)
    assert (asked, got.body.drain(100)) == ([], False)
    assert (got.body.read(10), asked) == (b"hi", [1])


@pytest.mark.parametrize(
    ("version", "header", "closes"),
    [
        ("1.1", "A: b", False),
        ("1.1", "Connection: Close", True),
        ("1.0", "A: b", True),
        ("1.0", "Connection: keep-alive", False),
    ],
)
def test_version_and_connection_header_decide_on_closing(version, header, closes):
    """HTTP/1.1 keeps the connection and HTTP/1.0 closes it, unless a header says otherwise."""
    assert request(header, version=version).wants_close is closes


def test_query_values_are_unquoted_in_order():
    """Values of equal names keep their order."""
    assert parse_query("a=1&b=x%23y+z&a=2&&c") == {"a": ["1", "2"], "b": ["x#y z"], "c": [""]}


@pytest.mark.parametrize("query", ["a=%zz", "a=1;b=2", "a=%2"])
def test_invalid_query_is_an_error(query):
    """Invalid escapes and semicolons are rejected."""
    with pytest.raises(ValueError, match="bad query"):
        parse_query(query)


@pytest.mark.parametrize("seconds", [0, 951782400, 1767225599.9, 1792713600, 4102444800])
def test_a_date_is_that_of_the_email_package(seconds):
    """In the form of RFC 7231, for any weekday and month."""
    assert http_date(seconds) == formatdate(seconds, usegmt=True)


def test_response_has_date_length_and_type():
    """An empty one has no type; HEAD gets no body."""
    plain = Response(200, b"OK", "text/plain").to_bytes(request(), close=False)
    assert plain.startswith(b"HTTP/1.1 200 OK\r\nDate: ")
    assert plain.endswith(b"Content-Length: 2\r\nContent-Type: text/plain\r\n\r\nOK")
    empty = Response(200, b"", "text/plain", (("A", "b"),)).to_bytes(request(), close=True)
    assert b"Content-Type" not in empty
    assert b"\r\nA: b\r\n" in empty and b"Connection: close" in empty
    head = read(b"HEAD / HTTP/1.0\r\n\r\n")
    answer = Response(405, b"NO").to_bytes(head, close=False)
    assert answer.startswith(b"HTTP/1.0 405 Method Not Allowed")
    assert answer.endswith(b"Connection: keep-alive\r\n\r\n")
