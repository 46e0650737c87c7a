"""The HTTP servers of the embedded nsqd and nsqlookupd: routes, and the real ones' responses.

One thread per client, which reads its requests with ``http.server``.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.protocol.commands import encode_json
from nsqclient.display import printable
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.deadline import Deadline

if TYPE_CHECKING:
    import ssl

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
_NSQ_HEADER = (("X-Nsq-Content-Type", "nsq; version=1.0"),)
#: Largest body that is read, in bytes: nsqd's default max-body-size.
MAX_BODY_SIZE = 5 * 1024 * 1024
#: Seconds that a connection stays half open after a response to an unread request. Go's value.
LINGER = 0.5


class HTTPError(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class Request(NamedTuple):
    """One request. ``body`` is None if it is larger than the server reads."""

    method: str
    path: str
    params: dict[str, list[str]]
    headers: Message
    body: bytes | None

    def get(self, name: str, missing: str = "") -> str:
        return self.params.get(name, [missing])[0]

    def require(self, name: str) -> str:
        """Return a query parameter. Raises HTTPError."""
        if name not in self.params:
            raise HTTPError(400, f"MISSING_ARG_{name.upper()}")
        return self.get(name)

    def topic_and_channel(self) -> tuple[str, str]:
        """Return both, checked. Raises HTTPError."""
        names = []
        for what in ("topic", "channel"):
            name = self.require(what)
            if not is_valid_name(name):
                raise HTTPError(400, f"INVALID_ARG_{what.upper()}")
            names.append(name)
        return names[0], names[1]

    def read_body(self, limit: int, code: str) -> bytes:
        """Return the body. Raises HTTPError with the code for more than ``limit`` bytes."""
        if self.body is None or len(self.body) > limit:
            raise HTTPError(413, code)
        return self.body


class Response(NamedTuple):
    """A response as it is sent. An empty body comes without a Content-Type."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def error_response(
    status: int, code: str, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    return Response(status, encode_json({"message": code}), JSON, (*headers, *_NSQ_HEADER))


#: Returns a Response, or the content of a 200: a text, None for an empty body, or JSON.
Handler = Callable[[Request], object]


def _response(value: object) -> Response:
    if isinstance(value, Response):
        return value
    if value is None:
        return Response(200, headers=_NSQ_HEADER)
    if isinstance(value, str):
        return Response(200, value.encode("utf-8", "replace"), TEXT, _NSQ_HEADER)
    return Response(200, encode_json(value), JSON, _NSQ_HEADER)


class HTTPServer:
    """An HTTP server on one address, or an HTTPS server with ``tls``.

    Lifecycle: created, :meth:`start`, :meth:`stop`.

    Args:
        name: of the threads, after ``nsq-``.
        routes: (method, path, handler).
        max_body_size: bytes of a body that are read; the connection ends if there are more.
    """

    def __init__(
        self, name: str, host: str, port: int, routes: list[tuple[str, str, Handler]],
        tls: ssl.SSLContext | None = None, max_body_size: int = MAX_BODY_SIZE,
    ) -> None:
        self._routes: dict[str, dict[str, Handler]] = {}  # path -> method -> handler
        for method, path, handler in routes:
            self._routes.setdefault(path, {})[method] = handler
        self._acceptor = Acceptor(name, host, port, self._serve)
        self._tls = tls
        self._max_body_size = max_body_size
        #: If set, each request gets a 403 that names this port of HTTPS; 0: there is none.
        self.https_port: int | None = None

    @property
    def port(self) -> int:
        return self._acceptor.port

    @property
    def address(self) -> str:
        return self._acceptor.address

    def start(self) -> None:
        self._acceptor.start()

    def stop(self, deadline: Deadline | None = None) -> None:
        self._acceptor.stop(deadline)

    def handle(self, request: Request) -> Response:
        """Return the response to a request; never raises."""
        if self.https_port is not None:
            # With nsqd's spaces.
            body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % self.https_port
            return Response(403, body, JSON, _NSQ_HEADER)
        methods = self._routes.get(request.path)
        if methods is None:
            return error_response(404, "NOT_FOUND")
        handler = methods.get(request.method)
        if handler is None:
            return error_response(
                405, "METHOD_NOT_ALLOWED", (("Allow", ", ".join(sorted(methods))),))
        try:
            return _response(handler(request))
        except HTTPError as exc:
            return error_response(exc.status, exc.code)
        except Exception:
            logger.exception("panic in HTTP handler - %s %s", printable(request.method),
                             printable(request.path))
            return error_response(500, "INTERNAL_ERROR")

    def _serve(self, sock: socket.socket, address: str) -> None:
        if self._tls is None:
            self._serve_requests(sock, address)
            return
        # A copy: wrapping takes the socket's descriptor, and the acceptor ends the original.
        try:
            secure = self._tls.wrap_socket(sock.dup(), server_side=True)
        except OSError as exc:
            logger.info("http: TLS handshake error from %s: %s", address, exc)
            return
        with secure:
            self._serve_requests(secure, address)

    def _serve_requests(self, sock: socket.socket, address: str) -> None:
        Connection(sock, address, self.handle, self._max_body_size,
                   lambda: self._acceptor.stopping.wait(LINGER))


class Connection(BaseHTTPRequestHandler):
    """One client; the constructor serves it to its end.

    Args:
        max_body_size: a request with a larger body gets it as None, and is the last one.
        linger: waits until the client has read the last response: closing with unread bytes resets
            the connection.
    """

    protocol_version = "HTTP/1.1"
    # An error of http.server's own, also if the client has sent no version.
    default_request_version = "HTTP/1.0"
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s"
    wbufsize = -1  # a response is one write

    def __init__(
        self, sock: socket.socket, address: str, respond: Callable[[Request], Response],
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
        path, _, query = self.path.partition("?")
        response = self._respond(Request(
            self.command, unquote(path), parse_qs(query, keep_blank_values=True), self.headers,
            body))
        self.send_response(response.status)
        for name, value in response.headers:
            self.send_header(name, value)
        if response.content_type is not None and response.body:
            self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        if body is None:
            self._is_unread = True
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _read_body(self) -> bytes | None:
        """Return the body, or None if it is too large. Raises ValueError and ConnectionError."""
        size = int(self.headers.get("content-length", "0"))
        if size < 0 or "transfer-encoding" in self.headers:
            raise ValueError("a negative Content-Length, or a body in chunks")
        if size > self._max_body_size:
            return None
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionError("the body ended early")
        return data

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        self._is_unread = True
        super().send_error(code, message, explain)

    def finish(self) -> None:
        super().finish()
        if self._is_unread:
            self.connection.shutdown(socket.SHUT_WR)
            self._linger()

    def send_response(self, code: int, message: str | None = None) -> None:
        """Begin a response; without the header Server."""
        self.log_request(code)
        self.send_response_only(code, message)
        self.send_header("Date", self.date_time_string())

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        logger.info("%d %s %s (%s)", code, printable(self.command or "-"),
                    printable(getattr(self, "path", "-")), self._address)

    def log_message(self, format: str, *args: Any) -> None:
        logger.info("http: request from %s is rejected: %s", self._address,
                    printable(format % args))


# A known path answers 405 to every other method, even to HEAD.
for _method in ("GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH"):
    setattr(Connection, f"do_{_method}", Connection._handle)
