"""HTTP/1.x requests from a stream, and responses as bytes.

It accepts, rejects and answers what Go's net/http does, as far as clients of nsqd notice. Reads
from any binary file, so that it is tested without a socket.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote_to_bytes

#: Request line and headers together, as in Go.
MAX_HEAD_SIZE = 1024 * 1024
#: The longest size line of a chunk.
_MAX_CHUNK_LINE = 4096
#: The most lines after the last chunk.
_MOST_TRAILERS = 100
_READ_SIZE = 64 * 1024

#: Bytes that the value of a header must not have, a bare CR too: RFC 9110, section 5.5.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadRequestError(Exception):
    """The bytes are no HTTP request; ``status`` and ``text`` make the last response."""

    def __init__(self, status: str = "400 Bad Request", text: str | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.text = status if text is None else text

    def to_bytes(self) -> bytes:
        """Return the response that Go writes before it closes."""
        return (
            f"HTTP/1.1 {self.status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Connection: close\r\n\r\n{self.text}"
        ).encode()


class BodyError(Exception):
    """The body ended early, or its chunks are malformed."""


class BodyReader:
    """The body of one request, read only as far as the handler asks.

    Args:
        stream: the bytes; nothing past the body is read.
        length: Content-Length; None for a chunked body.
        send_continue: called before the first read when the client waits for "100 Continue".
    """

    def __init__(
        self, stream: BinaryIO, length: int | None, send_continue: Callable[[], None] | None = None
    ) -> None:
        self._stream = stream
        self._send_continue = send_continue
        self._is_chunked = length is None
        self._left = length or 0  # of the body, or of the current chunk
        self._broken = False
        self.at_end = length == 0

    def read(self, limit: int) -> bytes:
        """Return what is left of the body, at most ``limit`` bytes.

        Raises:
            BodyError: the stream ended, or the chunks are malformed.
        """
        parts = []
        while limit > 0:
            part = self._read_some(min(limit, _READ_SIZE))
            if not part:
                break
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)

    def discard(self, limit: int) -> bool:
        """Read the rest and drop it; False where it has more than ``limit`` bytes.

        Raises:
            BodyError: as in :meth:`read`.
        """
        if not self._is_chunked and self._left > limit:
            return False
        while limit >= 0:
            data = self._read_some(_READ_SIZE)
            if not data:
                return True
            limit -= len(data)
        return False

    def drain(self, limit: int) -> bool:
        """Read the rest if it is at most ``limit`` bytes; return whether the end was reached.

        A client that still waits for "100 Continue" has not sent it, and is not asked to.
        """
        if self.at_end:
            return True
        if self._broken or self._send_continue is not None:
            return False
        if not self._is_chunked and self._left > limit:
            return False
        try:
            while limit > 0 and not self.at_end:
                limit -= len(self._read_some(min(limit, _READ_SIZE)))
            # The end of a chunked body is known once its last line was read.
            return self.at_end or not self._read_some(1)
        except BodyError:
            return False

    def _read_some(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes, none at the end."""
        if self._broken:
            raise BodyError("the body is broken")
        if self._send_continue is not None:
            send_continue, self._send_continue = self._send_continue, None
            send_continue()
        try:
            if self._is_chunked and self._left == 0 and not self.at_end:
                self._next_chunk()
            if self.at_end:
                return b""
            data = self._stream.read(min(size, self._left))
            if not data:
                raise BodyError("the body ended early")
            self._left -= len(data)
            if self._left == 0:
                if self._is_chunked:
                    self._read_line(b"")
                else:
                    self.at_end = True
            return data
        except BodyError:
            self._broken = True
            raise

    def _next_chunk(self) -> None:
        line = self._read_line().partition(b";")[0].strip(b" \t")
        if not re.fullmatch(rb"[0-9a-fA-F]{1,16}", line):
            raise BodyError("malformed chunk size")
        self._left = int(line, 16)
        if self._left == 0:
            for _ in range(_MOST_TRAILERS):
                if not self._read_line():
                    self.at_end = True
                    return
            raise BodyError("too many trailers")

    def _read_line(self, expected: bytes | None = None) -> bytes:
        line = self._stream.readline(_MAX_CHUNK_LINE)
        if not line.endswith(b"\n"):
            raise BodyError("the body ended early")
        line = line.rstrip(b"\r\n")
        if expected is not None and line != expected:
            raise BodyError("malformed chunk")
        return line


@dataclass
class Request:
    """One request; the body is still to be read.

    ``target`` is as sent, ``path`` unquoted, ``query`` as sent, header names in lower case.
    """

    method: str
    target: str
    path: str
    query: str
    version: tuple[int, int]
    headers: dict[str, str]
    content_length: int  # -1 when the body is chunked
    body: BodyReader

    @property
    def wants_close(self) -> bool:
        """Whether the connection ends with this request."""
        options = {part.strip().lower() for part in self.headers.get("connection", "").split(",")}
        return "close" in options or (self.version < (1, 1) and "keep-alive" not in options)


def read_request(stream: BinaryIO, send_continue: Callable[[], None]) -> Request | None:
    """Read the head of the next request; None at the end of the stream.

    Raises:
        BadRequestError: it is no HTTP request.
    """
    lines = _Lines(stream)
    first = lines.next()
    if first is None:
        return None
    method, _, rest = first.partition(" ")
    target, _, protocol = rest.partition(" ")
    version = _parse_version(protocol)
    if not _TOKEN.fullmatch(method):
        raise BadRequestError
    path, query = _split_target(target)
    headers = _read_headers(lines)
    if version >= (2, 0):
        raise BadRequestError("505 HTTP Version Not Supported: unsupported protocol version")
    if version >= (1, 1) and "host" not in headers:
        raise BadRequestError("400 Bad Request: missing required Host header")
    encoding = headers.get("transfer-encoding")
    if encoding is not None and encoding.lower() != "chunked":
        raise BadRequestError("501 Not Implemented", "Unsupported transfer encoding")
    length = None if encoding is not None else _parse_length(headers.get("content-length", "0"))
    expects = headers.get("expect", "").lower() == "100-continue" and version >= (1, 1)
    body = BodyReader(stream, length, send_continue if expects and length != 0 else None)
    return Request(
        method, target, path, query, version, headers, -1 if length is None else length, body
    )


class _Lines:
    """The lines of one head, limited as a whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = MAX_HEAD_SIZE

    def next(self) -> str | None:
        """Return a line without its end; None when the stream ended."""
        line = self._stream.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise BadRequestError("431 Request Header Fields Too Large")
        if not line:
            return None
        if not line.endswith(b"\n"):
            raise BadRequestError
        return line[:-1].removesuffix(b"\r").decode("latin-1")


def _read_headers(lines: _Lines) -> dict[str, str]:
    headers: dict[str, str] = {}
    name = ""
    while True:
        line = lines.next()
        if line is None:
            raise BadRequestError
        if not line:
            return headers
        if line[0] in " \t" and name:
            if _CONTROL.search(line):
                raise BadRequestError
            headers[name] += " " + line.strip(" \t")
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequestError
        if not _TOKEN.fullmatch(name):
            raise BadRequestError("400 Bad Request: invalid header name")
        name, value = name.lower(), value.strip(" \t")
        if _CONTROL.search(value):
            raise BadRequestError
        if name == "content-length" and headers.get(name, value) != value:
            raise BadRequestError
        headers.setdefault(name, value)


def _parse_version(protocol: str) -> tuple[int, int]:
    found = re.fullmatch(r"HTTP/([0-9])\.([0-9])", protocol)
    if found is None:
        raise BadRequestError
    return int(found[1]), int(found[2])


def _parse_length(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise BadRequestError
    return int(text)


def _split_target(target: str) -> tuple[str, str]:
    """Return the unquoted path and the raw query of a request target."""
    if target != "*" and not target.startswith("/"):
        # The absolute form that a proxy would get: scheme://host/path
        found = re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*(.*)", target)
        if found is None:
            raise BadRequestError
        target = found[1]
    path, _, query = target.partition("?")
    if _PERCENT.search(path) or any(char <= " " or char == "\x7f" for char in target):
        raise BadRequestError
    return _unquote(path), query


def _unquote(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1")).decode("utf-8", "surrogateescape")


def parse_query(query: str) -> dict[str, list[str]]:
    """Parse a raw query as Go does.

    Raises:
        ValueError: a bad percent escape or a semicolon.
    """
    params: dict[str, list[str]] = {}
    for part in query.split("&"):
        if ";" in part or _PERCENT.search(part):
            raise ValueError(f"bad query {part!r}")
        if part:
            key, _, value = part.replace("+", " ").partition("=")
            params.setdefault(_unquote(key), []).append(_unquote(value))
    return params


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(seconds: float) -> str:
    """Format a time since the epoch for the Date header, in English whatever the locale.

    As ``email.utils.formatdate``, which loads a quarter of the email package for it.
    """
    year, month, day, hour, minute, second, weekday, *_ = time.gmtime(seconds)
    return (f"{_DAYS[weekday]}, {day:02d} {_MONTHS[month - 1]} {year:04d}"
            f" {hour:02d}:{minute:02d}:{second:02d} GMT")


class Response(NamedTuple):
    """The response of a handler. An empty body has no Content-Type."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def to_bytes(self, request: Request, *, close: bool) -> bytes:
        """Build the response; with ``close`` the connection ends with it."""
        version = "1.1" if request.version >= (1, 1) else "1.0"
        lines = [f"HTTP/{version} {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines += [f"Date: {http_date(time.time())}", f"Content-Length: {len(self.body)}"]
        if self.content_type is not None and self.body:
            lines.append(f"Content-Type: {self.content_type}")
        if close and version == "1.1":
            lines.append("Connection: close")
        if not close and version == "1.0":
            lines.append("Connection: keep-alive")
        head = "\r\n".join(lines) + "\r\n\r\n"
        return head.encode("latin-1", "replace") + (b"" if request.method == "HEAD" else self.body)
