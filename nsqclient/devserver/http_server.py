"""The HTTP server of the embedded nsqd and nsqlookupd: connections, routes and responses.

HTTP/1.1 with keep-alive, pipelining and lazily read bodies, one thread per client. Redirects,
the methods in 405 responses, content types, headers and ``{"message": CODE}`` errors are those
of the Go router of the real servers.
"""

from __future__ import annotations

import logging
import posixpath
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import quote

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.http_message import (
    BadRequestError,
    BodyError,
    Request,
    Response,
    parse_query,
    read_request,
)
from nsqclient.devserver.protocol.go_compat import encode_json
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.deadline import Deadline
from nsqclient.sanitize import printable

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger("nsqclient.devserver")

_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_NSQ_HEADER = (("X-Nsq-Content-Type", "nsq; version=1.0"),)
#: The bytes of an unread body that are read and dropped to keep the connection; with more left
#: it is closed. Go's figure.
MAX_UNREAD_BODY = 256 * 1024
#: The bytes of a body that are read where a request needs none: nsqd's default max-body-size.
MAX_DROPPED_BODY = 5 * 1024 * 1024
#: How long a connection stays half open after the last response, in seconds. Closing with unread
#: bytes resets it, and the client may lose the response. Go's figure.
LINGER = 0.5


class HTTPError(Exception):
    """An error response: a status and nsqd's code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class Params:
    """The query parameters of a request; the first of several counts."""

    def __init__(self, values: Mapping[str, list[str]]) -> None:
        self._values = values

    def get(self, name: str) -> str | None:
        """Return the parameter, or None."""
        values = self._values.get(name)
        return None if values is None else values[0]

    def require(self, name: str) -> str:
        """Return the parameter.

        Raises:
            HTTPError: 400 MISSING_ARG_NAME.
        """
        value = self.get(name)
        if value is None:
            raise HTTPError(400, f"MISSING_ARG_{name.upper()}")
        return value

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


def read_query(request: Request) -> Params:
    """Return the query parameters; the body stays unread.

    Raises:
        HTTPError: 400 INVALID_REQUEST.
    """
    try:
        return Params(parse_query(request.query))
    except ValueError:
        raise HTTPError(400, "INVALID_REQUEST") from None


def read_params(request: Request) -> Params:
    """Return the query parameters; the body is read and dropped.

    Raises:
        HTTPError: 400 INVALID_REQUEST, for a bad query or a broken body; 413 BODY_TOO_BIG over
            ``MAX_DROPPED_BODY``, which the real servers read to its end.
    """
    params = read_query(request)
    try:
        is_read = request.body.discard(MAX_DROPPED_BODY)
    except BodyError:
        raise HTTPError(400, "INVALID_REQUEST") from None
    if not is_read:
        raise HTTPError(413, "BODY_TOO_BIG")
    return params


def json_response(value: object) -> Response:
    """A 200 with JSON."""
    return Response(200, encode_json(value), _JSON, _NSQ_HEADER)


def tls_required_response(https_port: int) -> Response:
    """A 403 with the HTTPS port, 0 where there is none; with nsqd's spaces."""
    return Response(
        403, b'{"message": "TLS_REQUIRED", "https_port": %d}' % https_port, _JSON, _NSQ_HEADER
    )


#: Go's response to HTTP without TLS on the port of HTTPS.
_NOT_HTTPS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


def text_response(text: str) -> Response:
    """A 200 with text; an empty one has no content type."""
    return Response(200, text.encode("utf-8", "replace"), _TEXT, _NSQ_HEADER)


def empty_response() -> Response:
    """A 200 without a body."""
    return Response(200, headers=_NSQ_HEADER)


def plain_response(status: int, text: str) -> Response:
    """A response without NSQ's header, as that of /ping."""
    return Response(status, text.encode(), _TEXT)


def error_response(
    status: int, code: str, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """An error: the code as JSON."""
    return Response(status, encode_json({"message": code}), _JSON, (*headers, *_NSQ_HEADER))


#: Takes the request and, where the route ends in ``/:name``, the last part of the path.
Handler = Callable[[Request, str], Response]


class Router:
    """Finds the handler for a request; :meth:`handle` never raises.

    A route that ends in ``/:name`` matches any last part.
    """

    def __init__(self) -> None:
        self._routes: dict[str, dict[str, Handler]] = {}  # method -> path -> handler
        #: When set, the response to every request.
        self.fixed_response: Response | None = None

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Add a route."""
        self._routes.setdefault(method, {})[path] = handler

    def handle(self, request: Request) -> Response:
        """Return the response to a request."""
        if self.fixed_response is not None:
            return self.fixed_response
        try:
            return self._dispatch(request)
        except HTTPError as exc:
            return error_response(exc.status, exc.code)
        except OSError:
            raise  # the connection broke while the body was read
        except Exception:
            logger.exception("panic in HTTP handler - %s %s", printable(request.method),
                             printable(request.target))
            return error_response(500, "INTERNAL_ERROR")

    def _dispatch(self, request: Request) -> Response:
        if request.method == "OPTIONS" and request.path == "*":
            return Response(200)
        found = self._find(request.method, request.path)
        if found is not None:
            handler, part = found
            return handler(request, part)
        if request.method in self._routes and request.path != "/":
            location = self._similar_path(request.method, request.path)
            if location is not None:
                return _redirect(request, location)
        allowed = {method for method in self._routes if self._find(method, request.path)}
        if not allowed:
            return error_response(404, "NOT_FOUND")
        headers = (("Allow", ", ".join(sorted(allowed | {"OPTIONS"}))),)
        if request.method == "OPTIONS":
            return Response(200, headers=headers)
        return error_response(405, "METHOD_NOT_ALLOWED", headers)

    def _find(self, method: str, path: str) -> tuple[Handler, str] | None:
        routes = self._routes.get(method, {})
        if path in routes and "/:" not in path:
            return routes[path], ""
        parent, _, part = path.rpartition("/")
        for route, handler in routes.items():
            if part and route.partition("/:")[1] and route.partition("/:")[0] == parent:
                return handler, part
        return None

    def _similar_path(self, method: str, path: str) -> str | None:
        """Return the route that differs only in case, slashes or dots."""
        clean = posixpath.normpath("/" + path.lstrip("/"))
        parent, _, part = clean.rpartition("/")
        for route in self._routes[method]:
            fixed, is_open, _ = route.partition("/:")
            if is_open:
                if part and parent.lower() == fixed.lower():
                    return f"{fixed}/{part}"
            elif clean.lower() == route.lower():
                return route
        return None


def _redirect(request: Request, path: str) -> Response:
    # As Go quotes a path. Otherwise a line break in the path would begin another header.
    location = quote(path, safe="/$&+,:;=@", errors="surrogateescape")
    if request.query:
        location = f"{location}?{request.query}"
    headers = (("Location", location),)
    if request.method != "GET":
        return Response(307, headers=headers)
    import html  # seldom, and its table of names is long

    body = f'<a href="{html.escape(location)}">Moved Permanently</a>.\n\n'
    return Response(301, body.encode(), "text/html; charset=utf-8", headers)


class HTTPServer:
    """An HTTP server on one address, or an HTTPS server with ``tls``.

    Subclasses fill :attr:`router`.

    Life: created, :meth:`start`, :meth:`stop`.
    """

    def __init__(
        self, name: str, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        self.router = Router()
        self._acceptor = Acceptor(name, host, port, self._serve)
        self._tls = tls

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

    def _serve(self, sock: socket.socket, address: str) -> None:
        if self._tls is None:
            self._serve_requests(sock, address)
            return
        import ssl  # loaded with the context

        # A copy: wrapping takes the socket's descriptor, and the acceptor ends the original.
        with self._tls.wrap_socket(
            sock.dup(), server_side=True, do_handshake_on_connect=False
        ) as secure:
            try:
                secure.do_handshake()
            except ssl.SSLError as exc:
                logger.info("http: TLS handshake error from %s: %s", address, exc.reason)
                if exc.reason == "HTTP_REQUEST":
                    sock.sendall(_NOT_HTTPS)
                    self._linger(sock)
                return
            self._serve_requests(secure, address)

    def _serve_requests(self, sock: socket.socket, address: str) -> None:
        with sock.makefile("rb", buffering=64 * 1024) as file:
            stream = cast(BinaryIO, file)
            try:
                while self._serve_one(sock, stream, address):
                    pass
            except BadRequestError as exc:
                sock.sendall(exc.to_bytes())
                self._linger(sock)

    def _serve_one(self, sock: socket.socket, stream: BinaryIO, address: str) -> bool:
        """Serve one request; False when the connection is to be closed."""
        request = read_request(stream, lambda: sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n"))
        if request is None:
            return False
        response = self.router.handle(request)
        is_read = request.body.drain(MAX_UNREAD_BODY)
        close = request.wants_close or not is_read
        sock.sendall(response.to_bytes(request, close=close))
        _log(request, response.status, address)
        if not is_read:
            self._linger(sock)
        return not close

    def _linger(self, sock: socket.socket) -> None:
        sock.shutdown(socket.SHUT_WR)
        self._acceptor.stopping.wait(LINGER)


def _log(request: Request, status: int, address: str) -> None:
    logger.info("%d %s %s (%s)", status, printable(request.method), printable(request.target),
                address)
