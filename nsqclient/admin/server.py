"""``AdminServer``: the admin page over werkzeug's threaded server."""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import threading
import time
from dataclasses import replace
from io import BufferedIOBase
from typing import Any, cast
from urllib.parse import urlsplit

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from nsqclient.admin.app import create_app
from nsqclient.admin.context import Context
from nsqclient.admin.settings import AdminSettings
from nsqclient.display import printable
from nsqclient.errors import ConfigError
from nsqclient.runtime.transport import format_address

logger = logging.getLogger("nsqclient.admin")

#: Seconds that a browser may take over a request, and that a close waits for those under way.
_REQUEST_TIMEOUT = 30.0
_CLOSE_TIMEOUT = 0.5


#: What neither a request line nor a header may hold: RFC 9110, section 5.5.
_CONTROLS = re.compile(rb"[^\t\x20-\x7e\x80-\xff]")


class _Head:
    """The lines of a request's head as they are read."""

    def __init__(self, reader: Any, first: bytes) -> None:
        self._reader = reader
        self.has_controls = False
        self._check(first)

    def readline(self, limit: int = -1) -> bytes:
        """Read one line."""
        line: bytes = self._reader.readline(limit)
        self._check(line)
        return line

    def _check(self, line: bytes) -> None:
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        self.has_controls = self.has_controls or _CONTROLS.search(content) is not None


class _Handler(WSGIRequestHandler):
    """Quiet: a page asks every two seconds."""

    timeout = _REQUEST_TIMEOUT
    server_version = "nsqadmin"
    sys_version = ""

    def parse_request(self) -> bool:
        """Read the head of a request; one that a proxy may read in another way is refused.

        The parser takes a bare CR for the end of a header: what is one header to a proxy in front
        would be two here, and the second could be the one that names the user. Of two lengths the
        proxy may take the other one.
        """
        head = _Head(self.rfile, self.raw_requestline)
        reader, self.rfile = self.rfile, cast(BufferedIOBase, head)
        try:
            is_parsed: bool = super().parse_request()
        finally:
            self.rfile = reader
        if not is_parsed:
            return False
        why = "a control character in a header" if head.has_controls else self._why_unusable()
        if why:
            self.close_connection = True
            self.send_error(400, "Bad Request", why)
        return not why

    def _why_unusable(self) -> str:
        """Say what is wrong with the target or the length of the request; empty: nothing."""
        try:
            urlsplit(self.path)
        except ValueError:
            return "the target of the request is no URL"
        lengths = {each.strip() for each in self.headers.get_all("Content-Length", [])}
        if len(lengths) > 1:
            return "several Content-Length headers that differ"
        if not all(each.isascii() and each.isdigit() for each in lengths):
            return "Content-Length is no number"
        if lengths and "Transfer-Encoding" in self.headers:
            return "both Content-Length and Transfer-Encoding"
        return ""

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        logger.debug("%s %s %s", self.address_string(), printable(self.requestline), code)

    def log(self, type: str, message: str, *args: Any) -> None:
        logger.debug("%s %s", self.address_string(), printable(message % args if args else message))


class _Server(ThreadedWSGIServer):
    """Names its threads and knows its connections, so that a stop can end them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = threading.Lock()
        self._running: dict[threading.Thread, socket.socket] = {}  # guarded by _lock
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self._process, args=(request, client_address), name="nsq-admin-request",
            daemon=True,
        )
        with self._lock:
            self._running[thread] = request
        thread.start()

    def _process(self, request: Any, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._running[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("request of %s ended badly", client_address, exc_info=True)

    def end_requests(self) -> list[str]:
        """Wait a moment for requests, then cut their connections; return what did not end."""
        until = time.monotonic() + _CLOSE_TIMEOUT
        with self._lock:
            running = dict(self._running)
        for thread in running:
            thread.join(max(0.0, until - time.monotonic()) / 2)
        for thread, connection in running.items():
            if thread.is_alive():
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it is gone
        for thread in running:
            thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in running if thread.is_alive()]


class AdminServer:
    """An admin page that listens. Life: created, ``start()``, ``stop()``; or ``with``.

    Args:
        host, port: where to listen; 0 chooses a free port. On a loopback address the page
            answers to the names of loopback alone, unless ``allowed_hosts`` says more.

    Raises:
        ConfigError: everybody may act, on an address that is not loopback, and ``allowed_hosts``
            is empty.

    Threads: any.
    """

    def __init__(
        self, settings: AdminSettings, host: str = "127.0.0.1", port: int = 4171
    ) -> None:
        if settings.allow_actions and not settings.allowed_hosts and not _is_loopback(host):
            raise ConfigError(
                f"--allow-actions on {host}: name the hosts by which browsers call the page with"
                " --allowed-host; else a foreign page could act, through a name of its own that"
                " it points here"
            )
        self.settings = replace(settings, allowed_hosts=_hosts(host, settings.allowed_hosts))
        self._host, self._port = host, port
        self._context: Context | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """``host:port``, once it listens."""
        assert self._server is not None, "not started"
        return format_address(self._host, self._server.server_address[1])

    @property
    def url(self) -> str:
        """Of the first page."""
        return f"http://{self.address}{self.settings.base_path}/"

    def start(self) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        # Bound here: werkzeug would print a hint and end the process when the port is taken.
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        with socket.create_server((self._host, self._port), family=family, backlog=64) as sock:
            self._context = Context(self.settings)
            self._server = _Server(self._host, sock.getsockname()[1],
                                   create_app(self._context), _Handler, fd=sock.fileno())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1},
            name="nsq-admin-http", daemon=True,
        )
        self._thread.start()
        self._context.collector.prefetch()
        logger.info("HTTP: listening on %s", self.url)
        if not _is_loopback(self._host):
            logger.warning("everybody who reaches %s sees this page: put a proxy with a login in"
                           " front of it", self.address)

    def stop(self) -> None:
        """End requests, collecting and threads, within about two seconds. Idempotent."""
        server, self._server = self._server, None
        context, self._context = self._context, None
        if server is None or context is None:
            return
        server.shutdown()
        assert self._thread is not None
        self._thread.join()
        context.close()
        for name in server.end_requests():
            logger.warning("%s did not end in time", name)
        server.server_close()

    def __enter__(self) -> AdminServer:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hosts(host: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """The names by which a page that listens on a host may be called; empty: any."""
    if not _is_loopback(host):
        return tuple(name.lower() for name in allowed)
    own = ("localhost", "127.0.0.1", "::1", host.lower())
    return tuple(dict.fromkeys((*own, *(name.lower() for name in allowed))))
