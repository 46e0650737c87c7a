"""Routes and answers of the HTTP APIs that nsqd and nsqlookupd have in common.

The router redirects, refuses and lists methods as the Go router of the real servers does; the
answers have their content types, their header and their ``{"message": CODE}`` errors.
"""

from __future__ import annotations

import html
import json
import logging
import posixpath
from collections.abc import Callable, Mapping
from urllib.parse import quote

from nsqclient.devserver.http_message import BodyError, Request, Response, parse_query
from nsqclient.display import printable
from nsqclient.protocol.names import is_valid_name

logger = logging.getLogger("nsqclient.devserver")

_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_NSQ_HEADER = (("X-Nsq-Content-Type", "nsq; version=1.0"),)

#: Go's encoder keeps its output safe inside HTML.
_JSON_ESCAPES = str.maketrans(
    {char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
)


class HTTPError(Exception):
    """An error answer: a status and nsqd's code for it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class Params:
    """The query parameters of a request; the first of several counts."""

    def __init__(self, values: Mapping[str, list[str]]) -> None:
        self._values = values

    def get(self, name: str) -> str | None:
        """Return the parameter, None when it is not there."""
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
    """Return the query parameters; the body is read and thrown away.

    Raises:
        HTTPError: 400 INVALID_REQUEST, for a bad query or a broken body.
    """
    params = read_query(request)
    try:
        request.body.discard()
    except BodyError:
        raise HTTPError(400, "INVALID_REQUEST") from None
    return params


def to_json(value: object) -> bytes:
    """Return compact JSON as Go writes it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_JSON_ESCAPES).encode("utf-8", "replace")


def json_answer(value: object) -> Response:
    """A 200 with JSON."""
    return Response(200, to_json(value), _JSON, _NSQ_HEADER)


def tls_required_answer() -> Response:
    """A 403 that tells of the HTTPS port, or of 0 where there is none; with nsqd's blanks."""
    return Response(
        403, b'{"message": "TLS_REQUIRED", "https_port": 0}', _JSON, _NSQ_HEADER
    )


def text_answer(text: str) -> Response:
    """A 200 with text; an empty one has no content type."""
    return Response(200, text.encode("utf-8", "replace"), _TEXT, _NSQ_HEADER)


def empty_answer() -> Response:
    """A 200 that says nothing but yes."""
    return Response(200, headers=_NSQ_HEADER)


def plain_answer(status: int, text: str) -> Response:
    """An answer without NSQ's header, as /ping gives it."""
    return Response(status, text.encode(), _TEXT)


def error_answer(
    status: int, code: str, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """An error: the code as JSON."""
    return Response(status, to_json({"message": code}), _JSON, (*headers, *_NSQ_HEADER))


#: Takes the request and what the path's last part was, where the route ends in ``/:name``.
Handler = Callable[[Request, str], Response]


class Router:
    """Finds the handler for a request; :meth:`handle` never raises.

    A path that ends in ``/:name`` takes any one further part.
    """

    def __init__(self) -> None:
        self._routes: dict[str, dict[str, Handler]] = {}  # method -> path -> handler
        #: When set, the answer to every request.
        self.refusal: Response | None = None

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Add a route."""
        self._routes.setdefault(method, {})[path] = handler

    def handle(self, request: Request) -> Response:
        """Answer a request."""
        if self.refusal is not None:
            return self.refusal
        try:
            return self._dispatch(request)
        except HTTPError as exc:
            return error_answer(exc.status, exc.code)
        except OSError:
            raise  # the connection broke while the body was read
        except Exception:
            logger.exception("panic in HTTP handler - %s %s", printable(request.method),
                             printable(request.target))
            return error_answer(500, "INTERNAL_ERROR")

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
            return error_answer(404, "NOT_FOUND")
        headers = (("Allow", ", ".join(sorted(allowed | {"OPTIONS"}))),)
        if request.method == "OPTIONS":
            return Response(200, headers=headers)
        return error_answer(405, "METHOD_NOT_ALLOWED", headers)

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
        """The route that differs only in case, slashes or dots."""
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
    # As Go quotes a path. Without it a line break in the path would begin another header.
    location = quote(path, safe="/$&+,:;=@", errors="surrogateescape")
    if request.query:
        location = f"{location}?{request.query}"
    headers = (("Location", location),)
    if request.method != "GET":
        return Response(307, headers=headers)
    body = f'<a href="{html.escape(location)}">Moved Permanently</a>.\n\n'
    return Response(301, body.encode(), "text/html; charset=utf-8", headers)
