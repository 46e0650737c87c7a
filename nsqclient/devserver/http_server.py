"""The HTTP servers of the embedded nsqd and nsqlookupd: routes, and responses as the real ones'.

One thread per client; ``http_connection`` reads its requests.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, unquote

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.protocol.go_compat import encode_json
from nsqclient.display import printable
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.deadline import Deadline

if TYPE_CHECKING:
    import ssl
    from email.message import Message

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
_NSQ_HEADER = (("X-Nsq-Content-Type", "nsq; version=1.0"),)
#: The bytes of a body that are read: nsqd's default max-body-size.
MAX_BODY_SIZE = 5 * 1024 * 1024
#: Seconds that a connection stays half open after a response to an unread request. Go's value.
LINGER = 0.5


class HTTPError(Exception):
    """An error response: a status and nsqd's code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class Request(NamedTuple):
    """One request.

    ``path`` is unquoted, ``option`` is what stands for ``:option`` of the route. ``body`` is None
    if it is larger than the server reads.
    """

    method: str
    path: str
    option: str
    params: dict[str, list[str]]
    headers: Message
    body: bytes | None

    def get(self, name: str, missing: str = "") -> str:
        """Return a query parameter, the first of several."""
        return self.params.get(name, [missing])[0]

    def require(self, name: str) -> str:
        """Return a query parameter.

        Raises:
            HTTPError: 400 MISSING_ARG_NAME.
        """
        if name not in self.params:
            raise HTTPError(400, f"MISSING_ARG_{name.upper()}")
        return self.get(name)

    def topic_and_channel(self) -> tuple[str, str]:
        """Return both, checked.

        Raises:
            HTTPError: 400 with MISSING_ARG_... or INVALID_ARG_..., the topic's first.
        """
        names = []
        for what in ("topic", "channel"):
            name = self.require(what)
            if not is_valid_name(name):
                raise HTTPError(400, f"INVALID_ARG_{what.upper()}")
            names.append(name)
        return names[0], names[1]

    def read_body(self, limit: int, code: str) -> bytes:
        """Return the body.

        Raises:
            HTTPError: 413 with the code, for one of more than ``limit`` bytes.
        """
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
    """An error: the code as JSON."""
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

    Life: created, :meth:`start`, :meth:`stop`.

    Args:
        name: of the threads, after ``nsq-``.
        host, port: where it listens; port 0 takes a free one.
        routes: (method, path, handler); a path that ends in ``/:option`` matches any last part.
        tls: serve HTTPS with it.
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
        #: Set: each request is answered with a 403 and this port of HTTPS; 0: without HTTPS.
        self.https_port: int | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._acceptor.port

    @property
    def address(self) -> str:
        """``host:port``."""
        return self._acceptor.address

    def start(self) -> None:
        """Listen and serve.

        Raises:
            OSError: the port is taken or not allowed.
        """
        self._acceptor.start()

    def stop(self, deadline: Deadline | None = None) -> None:
        """Free the port and end all connections, running requests included.

        Blocks: until all threads have ended, or the deadline.
        """
        self._acceptor.stop(deadline)

    def _respond(
        self, method: str, target: str, headers: Message, body: bytes | None
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        path, _, query = target.partition("?")
        response = self.handle(Request(
            method, unquote(path), "", parse_qs(query, keep_blank_values=True), headers, body))
        found = list(response.headers)
        if response.content_type is not None and response.body:
            found.append(("Content-Type", response.content_type))
        return response.status, found, response.body

    def handle(self, request: Request) -> Response:
        """Return the response to a request; never raises."""
        if self.https_port is not None:
            # With nsqd's spaces.
            body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % self.https_port
            return Response(403, body, JSON, _NSQ_HEADER)
        methods = self._routes.get(request.path)
        if methods is None:
            parent, _, option = request.path.rpartition("/")
            methods = self._routes.get(f"{parent}/:option") if option else None
            request = request._replace(option=option)
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
        from nsqclient.devserver.http_connection import Connection

        Connection(sock, address, self._respond, self._max_body_size,
                   lambda: self._acceptor.stopping.wait(LINGER))
