"""The two forms of /mpub's body, by value."""

import io

import pytest

from nsqclient.devserver.http_message import BodyReader
from nsqclient.devserver.http_router import HTTPError
from nsqclient.devserver.mpub_body import read_binary, read_lines

MAX_MSG, MAX_BODY = 10, 50


def body(data: bytes) -> BodyReader:
    """A body of known length."""
    return BodyReader(io.BytesIO(data), len(data))


def broken() -> BodyReader:
    """A body that ends early."""
    return BodyReader(io.BytesIO(b"ab"), 20)


def binary(*messages: bytes, count: int | None = None) -> bytes:
    """MPUB's binary form."""
    parts = [(len(messages) if count is None else count).to_bytes(4, "big", signed=True)]
    for message in messages:
        parts += [len(message).to_bytes(4, "big"), message]
    return b"".join(parts)


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"a", [b"a"]),
        (b"a\n\nb\r\nc\n", [b"a", b"b\r", b"c"]),
        (b"x" * 10, [b"x" * 10]),
        (b"xxxx\n" * 10, [b"xxxx"] * 10),
    ],
)
def test_lines(data, messages):
    """Each line is a message; empty ones are dropped, the last needs no newline."""
    assert read_lines(body(data), MAX_MSG, MAX_BODY) == messages


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"a\n" + b"x" * 11, "MSG_TOO_BIG"),
        (b"xxxx\n" * 10 + b"x", "BODY_TOO_BIG"),
        (b"xxxx\n" * 10 + b"\n", "BODY_TOO_BIG"),
        (b"x" * 11 + b"\n" + b"x\n" * 40, "MSG_TOO_BIG"),
    ],
)
def test_lines_that_are_too_much(data, code):
    """A line or a body over its limit is refused, whichever is met first."""
    with pytest.raises(HTTPError) as caught:
        read_lines(body(data), MAX_MSG, MAX_BODY)
    assert (caught.value.status, caught.value.code) == (413, code)


def test_lines_of_a_broken_body():
    """A body that ends early is an internal error, as in nsqd."""
    with pytest.raises(HTTPError, match="INTERNAL_ERROR"):
        read_lines(broken(), MAX_MSG, MAX_BODY)


def test_binary():
    """Count, then size and message for each; what follows is ignored."""
    assert read_binary(body(binary(b"a", b"b\nc")), MAX_MSG, MAX_BODY) == [b"a", b"b\nc"]
    assert read_binary(body(binary(b"a") + b"more"), MAX_MSG, MAX_BODY) == [b"a"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "BAD_BODY"),
        (b"\0\0", "BAD_BODY"),
        (binary(), "BAD_BODY"),
        (binary(b"a", count=-1), "BAD_BODY"),
        (binary(b"a", count=10), "BAD_BODY"),
        (binary(b"a", count=2), "BAD_MESSAGE"),
        (binary(b"a", b""), "BAD_MESSAGE"),
        (binary(b"a", b"x" * 11), "BAD_MESSAGE"),
        (binary(b"a", b"bc")[:-1], "BAD_MESSAGE"),
    ],
)
def test_binary_that_is_wrong(data, code):
    """A bad count is BAD_BODY, everything after it BAD_MESSAGE."""
    with pytest.raises(HTTPError) as caught:
        read_binary(body(data), MAX_MSG, MAX_BODY)
    assert (caught.value.status, caught.value.code) == (413, code)


def test_binary_of_a_broken_body():
    """A body that ends early is a bad count."""
    with pytest.raises(HTTPError, match="BAD_BODY"):
        read_binary(broken(), MAX_MSG, MAX_BODY)
