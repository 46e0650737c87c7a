"""One client of an HTTP server of ours: ``http.server``, with bodies of a limited size.

The module is loaded with the first request: ``http.server`` takes 30 ms and 5 MB.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any

from nsqclient.display import printable

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

#: The longest size line of a chunk, and the longest trailer.
_MAX_CHUNK_LINE = 4096


Respond = Callable[
    [str, str, Message, "bytes | None"], tuple[int, Iterable[tuple[str, str]], bytes]]


class Connection(BaseHTTPRequestHandler):
    """One client; the constructor serves it to its end.

    Args:
        respond: called with method, target, headers and body of each request; returns status,
            headers and body of the response.
        max_body_size: a request with a larger body gets it as None, and is the last one.
        linger: waits while the client reads the last response, if it may still send: closing
            with unread bytes resets the connection, and the response may be lost.
    """

    protocol_version = "HTTP/1.1"
    # An error of http.server's own, also if the client has sent no version.
    default_request_version = "HTTP/1.0"
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s"
    wbufsize = -1  # a response is one write

    def __init__(
        self, sock: socket.socket, address: str, respond: Respond,
        max_body_size: int, linger: Callable[[], object],
    ) -> None:
        self._address = address
        self._respond = respond
        self._max_body_size = max_body_size
        self._linger = linger
        self._is_unread = False  # the client may still send
        super().__init__(sock, address, None)  # type: ignore[arg-type] # none of socketserver's

    def _handle(self) -> None:
        try:
            body = self._read_body()
        except ValueError:
            self.send_error(400)
            return
        status, headers, content = self._respond(self.command, self.path, self.headers, body)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        if body is None:
            self._is_unread = True
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    # -- the body

    def handle_expect_100(self) -> bool:
        """Send "100 Continue" only with the first read: a body that is too large is not asked for.
        """
        return True

    def _read_body(self) -> bytes | None:
        """Return the body, or None if it is too large.

        Raises:
            ValueError: its length is not a number, or its chunks are malformed.
            ConnectionError: it ended early.
        """
        is_chunked = "transfer-encoding" in self.headers
        size = 0 if is_chunked else int(self.headers.get("content-length", "0"))
        if size < 0:
            raise ValueError("a negative Content-Length")
        if size > self._max_body_size:
            return None
        if self.headers.get("expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()
        return self._read_chunks() if is_chunked else self._read(size)

    def _read_chunks(self) -> bytes | None:
        parts, left = [], self._max_body_size
        while True:
            size = int(self.rfile.readline(_MAX_CHUNK_LINE).partition(b";")[0], 16)
            if size == 0:
                break
            left -= size
            if size < 0 or left < 0:
                return None
            parts.append(self._read(size))
            if self._read(2) != b"\r\n":
                raise ValueError("a malformed chunk")
        while self.rfile.readline(_MAX_CHUNK_LINE).strip():
            pass  # trailers
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionError("the body ended early")
        return data

    # -- the end

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Answer 400 to a malformed request, and close the connection."""
        self._is_unread = True
        super().send_error(code, message, explain)

    def finish(self) -> None:
        """Send the pending output; give the client the time to read it."""
        super().finish()
        if self._is_unread:
            self.connection.shutdown(socket.SHUT_WR)
            self._linger()

    # -- the log, and the headers of the real servers

    def send_response(self, code: int, message: str | None = None) -> None:
        """Begin a response; without the header Server."""
        self.log_request(code)
        self.send_response_only(code, message)
        self.send_header("Date", self.date_time_string())

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log a request as nsqd does."""
        logger.info("%d %s %s (%s)", code, printable(self.command or "-"),
                    printable(getattr(self, "path", "-")), self._address)

    def log_message(self, format: str, *args: Any) -> None:
        """Log why a request is rejected."""
        logger.info("http: request from %s is rejected: %s", self._address,
                    printable(format % args))


# A known path answers 405 to the others, as the real servers do, even to HEAD.
for _method in ("GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH"):
    setattr(Connection, f"do_{_method}", Connection._handle)
