"""``StatusServer``: answers probes and scrapes over HTTP: ``/live``, ``/ready``, ``/metrics``.

Also the states of several processes as one answer. For a network of machines that are trusted: it
has no login, and answers GET only.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, NamedTuple

from nsqclient.errors import ConfigError
from nsqclient.runtime.addresses import parse_address
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.threads import LibraryThread
from nsqclient.worker.errors import UsageError

logger: logging.Logger = logging.getLogger("nsqclient.worker")

#: Seconds that a client has for its request.
_TIMEOUT = 5.0
#: Seconds: a process that has reported nothing for longer is not ready.
STALE = 5.0


#: The answer while the system has no thread left: a probe needs some answer.
_NO_THREAD = (b"HTTP/1.0 500 Internal Server Error\r\nContent-Type: application/json\r\n"
              b"Connection: close\r\n\r\n{\"error\": \"no thread can be started\"}\n")


class Response(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes


class ProcessState(NamedTuple):
    """What one process of a worker said last."""

    #: ``topic/channel`` -> (healthy, reason)
    consumers: Mapping[str, tuple[bool, str]]
    metrics: object = None  #: a snapshot of the exporter
    age: float = 0.0  #: seconds since it was said


def ready_response(states: Mapping[str, ProcessState], wanted: int) -> Response:
    """Return 200 when ``wanted`` processes are there and all their consumers healthy, else 503.

    The body is JSON with the reason for each consumer of each process.
    """
    shown: dict[str, Any] = {}
    is_ready = len(states) >= wanted
    for name, state in states.items():
        reasons = {place: reason for place, (_, reason) in state.consumers.items()}
        if state.age > STALE:
            reasons = {"process": f"it has not reported for {state.age:.0f} s"}
            is_ready = False
        elif not state.consumers:
            reasons = {"process": "starting"}
            is_ready = False
        elif not all(healthy for healthy, _ in state.consumers.values()):
            is_ready = False
        shown[name] = reasons
    body = {"ready": is_ready, "processes": shown}
    if len(states) < wanted:
        body["reason"] = f"{len(states)} of {wanted} processes run"
    return _json(200 if is_ready else 503, body)


def live_response(is_live: bool = True) -> Response:
    """Return 200 for a process that works, else 503."""
    return _json(200 if is_live else 503, {"live": is_live})


def _json(status: int, value: object) -> Response:
    return Response(status, "application/json", json.dumps(value).encode() + b"\n")


class StatusServer:
    """Listens on one address from its creation on.

    Args:
        address: ``host:port``; port 0 for any.
        flag: how an error calls the address, such as ``--health-address``.
        routes: path -> what makes the answer, called on a thread of the server's.

    Life: created (it listens), ``start()``, ``close()``. Threads: any.

    Raises:
        UsageError: the address is malformed.
        ConfigError: it cannot be listened on.
    """

    def __init__(
        self, address: str, flag: str, routes: Mapping[str, Callable[[], Response]]
    ) -> None:
        try:
            host, port = parse_address(address, flag, lowest_port=0)
        except ConfigError as exc:
            raise UsageError(str(exc)) from exc

        class Handler(_Handler):
            pass

        Handler.routes = dict(routes)
        try:
            self._server = _Server((host, port), Handler)
        except OSError as exc:
            raise ConfigError(
                f"{flag} {address}: cannot listen there: {exc.strerror or exc};"
                " choose another port, or end what uses it") from exc
        self._thread = LibraryThread(
            lambda: self._server.serve_forever(poll_interval=0.1), "nsq-worker-http")
        self._is_started = False
        bound = self._server.server_address
        #: ``host:port`` that it listens on.
        shown = f"[{bound[0]!s}]" if ":" in host else f"{bound[0]!s}"
        self.address: str = f"{shown}:{bound[1]}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.launch()
        self._is_started = True

    def close(self) -> None:
        """Answer no more. Idempotent. Blocks: a fraction of a second."""
        if self._is_started:
            self._server.shutdown()
            self._thread.join()
            self._is_started = False
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._lines = LineLimit(logger)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """For the server: bind, without asking for the name of this machine."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """For the server: answer in a thread of its own, or 500 where none can be started."""
        try:
            super().process_request(request, client_address)
        except RuntimeError as exc:
            logger.log(self._lines.level(logging.WARNING),
                       "status server: request from %s failed: %s", client_address[0], exc)
            try:
                request.sendall(_NO_THREAD)
            finally:
                self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """For the server: a client that goes away is no error of ours."""
        logger.debug("status server: request from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    routes: Mapping[str, Callable[[], Response]] = {}
    timeout = _TIMEOUT
    server_version, sys_version = "nsqclient", ""

    def do_GET(self) -> None:
        """For the server: answer one request."""
        route = self.routes.get(self.path.partition("?")[0])
        if route is None:
            found = _json(404, {"error": f"there are {', '.join(sorted(self.routes))}"})
        else:
            try:
                found = route()
            except Exception as exc:
                logger.exception("the status of the worker could not be collected")
                found = _json(500, {"error": type(exc).__name__})
        self.send_response(found.status)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        self.wfile.write(found.body)

    def log_message(self, format: str, *args: Any) -> None:
        """For the server: requests are not logged."""
