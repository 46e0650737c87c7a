"""A small HTTP server with scripted answers that records its requests."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

#: Longest wait for ``release``, in seconds: a test that forgets it must still end.
_WAIT = 20.0


class Recorded(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Recorder(ThreadingHTTPServer):
    """Answers with ``status``, ``body`` and ``headers``; functions may choose."""

    daemon_threads = False  # so that server_close() waits for them
    request_queue_size = 128

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.body = b""
        self.headers: dict[str, str] = {}
        #: Request -> status; instead of ``status``.
        self.decide: Callable[[Recorded], int] | None = None
        #: Request -> body; instead of ``body``.
        self.reply: Callable[[Recorded], bytes] | None = None
        #: Request -> status and body; instead of all of these.
        self.answer: Callable[[Recorded], tuple[int, bytes]] | None = None
        self.requests: list[Recorded] = []
        self.release = threading.Event()
        self.release.set()
        self._is_tls = context is not None
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def address(self) -> str:
        return "127.0.0.1:%d" % self.server_address[1]

    @property
    def url(self) -> str:
        """The URL of its root, without a slash."""
        return f"http{'s' if self._is_tls else ''}://{self.address}"

    def bodies(self) -> list[bytes]:
        return [request.body for request in list(self.requests)]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away, or refuse our certificate."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5.0  # an idle connection must not keep the test from ending
    server: Recorder

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            return  # whoever sent it is gone
        request = Recorded(self.command, self.path, dict(self.headers), body)
        server = self.server
        server.requests.append(request)
        server.release.wait(_WAIT)
        if server.answer is not None:
            status, answer = server.answer(request)
        else:
            status = server.status if server.decide is None else server.decide(request)
            answer = server.body if server.reply is None else server.reply(request)
        self.send_response(status)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def recording(context: ssl.SSLContext | None = None) -> Iterator[Recorder]:
    """A running Recorder; ``context`` makes it speak TLS."""
    with Recorder(context) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.release.set()
            server.shutdown()
            thread.join(_WAIT)
