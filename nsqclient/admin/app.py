"""``create_app``: the admin page as a WSGI application; ``AdminServer``: the page over waitress.

The HTML pages are templates that scripts fill with numbers from the UI API.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from flask import Blueprint, Flask, Response, redirect, render_template, request
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter
from werkzeug.wrappers import Response as AnyResponse

from nsqclient.admin import metrics, nsqadmin_api, ui_api
from nsqclient.admin.access_control import (
    LARGEST_BODY, SAFE_METHODS, SECURITY_HEADERS, check_change, check_host, may_act, may_peek,
    user_of,
)
from nsqclient.admin.context import Context, context
from nsqclient.admin.messages import source_of_dead_letters
from nsqclient.admin.responses import check_names, error_response, response_for
from nsqclient.admin.settings import AdminSettings
from nsqclient.errors import ConfigError
from nsqclient.runtime.addresses import format_address
from nsqclient.runtime.transport import listen
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.version import __version__

logger: logging.Logger = logging.getLogger("nsqclient.admin")

_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_BIG"}


pages: Blueprint = Blueprint("pages", __name__)


def _page(template: str, title: str, **values: Any) -> Response:
    here = context()
    settings = here.settings
    html = render_template(
        template, title=title, base=settings.base_path, version=__version__,
        may_act=may_act(settings, request), may_peek=may_peek(settings, request),
        user=user_of(settings, request), has_lookupds=here.cluster.has_lookupds, **values)
    return Response(html, headers={"Cache-Control": "no-store"})


@pages.get("/")
@pages.get("/topics", endpoint="topics_too")
def topics() -> Response:
    return _page("topics.html", "Topics", here="topics")


@pages.get("/topics/<topic>")
@pages.get("/topics/<topic>/<channel>")
def subject(topic: str, channel: str = "") -> Response:
    return _page("channel.html" if channel else "topic.html",
                 f"{topic} / {channel}" if channel else topic, here="topics", topic=topic,
                 channel=channel, source=source_of_dead_letters(topic))


@pages.get("/nodes/<node>")
def node(node: str) -> Response:
    node = printable(node, LONGEST_TEXT)
    return _page("node.html", node, here="nodes", node=node)


@pages.get("/<any(nodes, lookup, producers, consumers, doctor):name>")
def plain(name: str) -> Response:
    template = "connections" if name in ("producers", "consumers") else name
    return _page(f"{template}.html", name.capitalize(), here=name)


@pages.get("/counter")
def counter() -> AnyResponse:
    """Redirect nsqadmin's message counter page to the page of all topics."""
    return redirect(f"{context().settings.base_path}/")


class _Segment(BaseConverter):
    regex = "[^/]+"


def create_app(admin: Context) -> Flask:
    """Build the application.

    The caller closes ``admin``; closing it also ends requests that wait for servers.
    Under another WSGI server use one process with threads, because rates are kept in memory.
    """
    base = admin.settings.base_path
    app = Flask("nsqclient.admin", static_url_path=f"{base}/static")
    app.url_map.converters["default"] = _Segment
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY
    admin.register(app.extensions)
    for blueprint in (nsqadmin_api.blueprint, ui_api.blueprint, metrics.blueprint, pages):
        app.register_blueprint(blueprint, url_prefix=base + (blueprint.url_prefix or ""))

    @app.before_request
    def check() -> None:
        check_host(admin.settings, request)
        names = request.view_args or {}
        check_names(names.get("topic"), names.get("channel"))
        if request.method not in SAFE_METHODS:
            check_change(request)

    @app.after_request
    def add_headers(response: Response) -> Response:
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        if logger.isEnabledFor(logging.DEBUG):  # a page sends a request every two seconds
            logger.debug("%s %s %s %s", request.remote_addr, request.method,
                         printable(request.full_path.rstrip("?")), response.status_code)
        return response

    app.register_error_handler(Exception, _error_response)
    return app


def _error_response(exc: Exception) -> Response:
    if isinstance(exc, HTTPException) and 300 <= (exc.code or 0) < 400:
        return Response(status=exc.code, headers=list(exc.get_response().headers))
    response = response_for(exc)
    if response is None and isinstance(exc, HTTPException):
        code = exc.code or 500
        response = error_response(code, _CODES.get(code, exc.name.upper().replace(" ", "_")))
    if response is None:
        logger.error("%s %s failed", printable(request.method), printable(request.path),
                     exc_info=exc)
        response = error_response(500, "INTERNAL_ERROR", "see the log of nsqadmin")
    return response


#: Maximum number of connections, in total and from one address (which may be a proxy).
MOST_CONNECTIONS, MOST_OF_ADDRESS = 500, 200
HEAD_TIMEOUT = 10.0


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress is untyped
    """A connection that tracks how long it has been waiting for the head of a request."""

    _head_since: float | None = None  # None: idle after a request

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_since = time.monotonic()

    def received(self, data: bytes) -> Any:
        found = super().received(data)
        if self.request is None or self.request.headers_finished:
            self._head_since = None
        elif self._head_since is None:
            self._head_since = time.monotonic()
        return found

    @property
    def is_late(self) -> bool:
        return self._head_since is not None and time.monotonic() - self._head_since > HEAD_TIMEOUT


class PageServer(TcpWSGIServer):  # type: ignore[misc]  # waitress is untyped
    """waitress with limits on idle clients and on connections from one address.

    ``run()`` blocks.
    """

    channel_class = Channel

    def __init__(
        self, application: Callable[..., Any], sock: socket.socket, **options: Any
    ) -> None:
        # At its own limit waitress accepts nobody, so handle_accept() closes connections earlier.
        adjustments = Adjustments(
            sockets=[sock], connection_limit=2 * MOST_CONNECTIONS, cleanup_interval=1, **options)
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(adjustments.threads)
        super().__init__(
            application, {}, True, sock, dispatcher=dispatcher, adj=adjustments,
            bind_socket=False, sockinfo=(sock.family, sock.type, sock.proto, sock.getsockname()))

    def handle_accept(self) -> None:
        super().handle_accept()
        victim = choose_victim(self.active_channels.values())
        if victim is not None:
            victim.will_close = True

    def maintenance(self, now: float) -> None:
        super().maintenance(now)
        for channel in self.active_channels.values():
            if channel.is_late:
                channel.will_close = True

    def end(self) -> None:
        """Close all connections and let ``run()`` return; ``close()`` closes the rest.

        Runs in the server's thread, since only it may change the sockets that it polls. The trigger
        stays open: whoever called it may still be writing to it.
        """
        self.trigger.del_channel()
        self.del_channel()
        wasyncore.close_all(self._map)


def choose_victim(channels: Iterable[Any]) -> Any:
    """Return the connection to close; None if there are not too many.

    It is the longest idle connection of the address with the most connections, or the newest one if
    all of them have requests.
    """
    left = [each for each in channels if not each.will_close]
    counts = Counter(each.addr[0] for each in left)
    address, count = counts.most_common(1)[0] if counts else ("", 0)
    if count <= MOST_OF_ADDRESS and len(left) <= MOST_CONNECTIONS:
        return None
    own = [each for each in left if each.addr[0] == address]
    idle = [each for each in own if not each.requests]
    return min(idle, key=lambda each: each.last_activity) if idle else own[-1]


#: Seconds that ``stop()`` waits for requests under way.
_CLOSE_TIMEOUT = 0.5
#: Options of waitress. Its body limit is higher, so that the application refuses large bodies.
_OPTIONS = {
    "ident": "nsqadmin", "threads": 24, "channel_timeout": 30,
    "asyncore_use_poll": True, "max_request_header_size": 32 * 1024,
    "max_request_body_size": 8 * LARGEST_BODY,
}


class AdminServer:
    """An admin page that listens. Lifecycle: created, ``start()``, ``stop()``; or ``with``.

    Args:
        host, port: the address to listen on; port 0 chooses a free port. On a loopback address only
            the names of loopback and ``allowed_hosts`` are accepted as Host headers.

    Raises:
        ConfigError: ``allow_actions`` without ``allowed_hosts`` on an address that is not loopback.

    Threads: any.
    """

    def __init__(
        self, settings: AdminSettings, host: str = "127.0.0.1", port: int = 4171
    ) -> None:
        if settings.allow_actions and not settings.allowed_hosts and not _is_loopback(host):
            raise ConfigError(
                f"--allow-actions on {host}: give --allowed-host for each host name by which"
                " browsers call the page; otherwise another site could act here by DNS rebinding"
            )
        self.settings: AdminSettings = replace(
            settings, allowed_hosts=_hosts(host, settings.allowed_hosts))
        self._host, self._port = host, port
        self._context: Context | None = None
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """``host:port``, after ``start()``."""
        assert self._server is not None, "not started"
        return format_address(self._host, self._server.effective_port)

    @property
    def url(self) -> str:
        return f"http://{self.address}{self.settings.base_path}/"

    def start(self) -> None:
        """Listen. Raises OSError."""
        if self._server is not None:
            raise RuntimeError("already started")
        with contextlib.ExitStack() as undo:
            admin = undo.enter_context(contextlib.closing(Context(self.settings)))
            sock = undo.enter_context(listen(self._host, self._port))
            server = PageServer(create_app(admin), sock, **_OPTIONS)
            self._host = sock.getsockname()[0]
            thread = threading.Thread(target=server.run, name="nsq-admin-http", daemon=True)
            thread.start()
            undo.pop_all()
        self._context, self._server, self._thread = admin, server, thread
        logger.info("HTTP: listening on %s", self.url)
        if not _is_loopback(self._host):
            logger.warning("every host that reaches %s can open this page: put a proxy with a login"
                           " in front of it", self.address)

    def stop(self) -> None:
        """End all requests and threads, within about two seconds. Idempotent."""
        server, self._server = self._server, None
        admin, self._context = self._context, None
        if server is None or admin is None or self._thread is None:
            return
        admin.close()
        server.task_dispatcher.shutdown(timeout=_CLOSE_TIMEOUT)
        server.trigger.pull_trigger(server.end)
        self._thread.join()
        server.close()

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
    """Return the accepted host names; empty: any."""
    if not _is_loopback(host):
        return tuple(name.lower() for name in allowed)
    own = ("localhost", "127.0.0.1", "::1", host.lower())
    return tuple(dict.fromkeys((*own, *(name.lower() for name in allowed))))
