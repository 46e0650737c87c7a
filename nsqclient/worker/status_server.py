"""``serve_status``: answers probes and scrapes over HTTP: ``/live``, ``/ready``, ``/metrics``.

It answers GET without authentication, so use it only in trusted networks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

from nsqclient.errors import ConfigError
from nsqclient.runtime.addresses import format_address, parse_listen_address
from nsqclient.runtime.threads import LibraryThread
from nsqclient.runtime.transport import listen
from nsqclient.worker.loading import UsageError

logger: logging.Logger = logging.getLogger("nsqclient.worker")

#: Seconds that one read or write may take, and between two checks for shutdown.
_TIMEOUT, _POLL_INTERVAL = 5.0, 0.1
#: Seconds: a process that has reported nothing for longer is not ready.
STALE = 5.0


class Response(NamedTuple):
    status: int
    content_type: str
    body: bytes


Route = Callable[[], Response]


class ProcessState(NamedTuple):
    #: ``topic/channel`` -> (healthy, reason)
    consumers: Mapping[str, tuple[bool, str]]
    metrics: object = None  #: a snapshot of the exporter
    age: float = 0.0  #: seconds since the report


def ready_response(states: Mapping[str, ProcessState], wanted: int) -> Response:
    """Return 200 if at least ``wanted`` processes run, all have reported recently, and all
    consumers are healthy; otherwise 503.
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
    return _json(200 if is_live else 503, {"live": is_live})


def _json(status: int, value: object) -> Response:
    return Response(status, "application/json", json.dumps(value).encode() + b"\n")


@contextmanager
def serve_status(
    health_address: str, metrics_address: str,
    health: Mapping[str, Route] = MappingProxyType({}), scrape: Route | None = None,
) -> Iterator[list[str]]:
    """Answer probes and scrapes in a ``with`` block; yield lines with the addresses.

    Args:
        health_address, metrics_address: ``host:port``, may be the same; empty: not served.
        health: path -> the function that returns the answer, called on a thread of the server.
        scrape: returns the answer of ``/metrics``.

    Raises:
        UsageError: an address is malformed.
        ConfigError: the server cannot listen on an address.
    """
    wanted: dict[str, tuple[str, dict[str, Route]]] = {}
    if health_address:
        wanted[health_address] = "--health-address", dict(health)
    if metrics_address and scrape is not None:
        flag, routes = wanted.get(metrics_address, ("--metrics-address", {}))
        wanted[metrics_address] = flag, {**routes, "/metrics": scrape}
    with ExitStack() as stack:
        servers = [stack.enter_context(_Server(address, flag, routes))
                   for address, (flag, routes) in wanted.items()]
        for server in servers:  # only after every port is bound
            thread = LibraryThread(server.serve_forever, "nsq-worker-http", (_POLL_INTERVAL,))
            thread.launch()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield [f"answering {' and '.join(server.routes)} on http://{server.shown}"
               for server in servers]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, flag: str, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        try:
            host, port = parse_listen_address(address)
        except ConfigError as exc:
            raise UsageError(f"{flag} {exc}") from exc
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.socket.close()
        try:
            self.socket = listen(host, port)
        except OSError as exc:
            raise ConfigError(
                f"{flag} {address}: cannot listen there: {exc.strerror or exc};"
                " choose another port, or end what uses it") from exc
        self.shown = format_address(*self.socket.getsockname()[:2])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log at debug level: usually the client has disconnected."""
        logger.debug("status server: request from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT
    server_version, sys_version = "nsqclient", ""

    def do_GET(self) -> None:
        routes = self.server.routes
        route = routes.get(self.path.partition("?")[0])
        if route is None:
            found = _json(404, {"error": f"unknown path: use one of {', '.join(sorted(routes))}"})
        else:
            try:
                found = route()
            except Exception as exc:
                logger.exception("the status could not be collected")
                found = _json(500, {"error": type(exc).__name__})
        self.send_response(found.status)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        self.wfile.write(found.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # requests are not logged
