"""Serves a router over HTTP/1.1: keep-alive, pipelining, lazy bodies, one thread per client."""

from __future__ import annotations

import logging
import socket
from typing import BinaryIO, cast

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.http_message import BadRequestError, Request, read_request
from nsqclient.devserver.http_router import Router
from nsqclient.display import printable
from nsqclient.runtime.deadline import Deadline

logger = logging.getLogger("nsqclient.devserver")

#: How much of a body that the handler did not read is swallowed to keep the connection, in
#: bytes; with more left it is closed. Go's figure.
MAX_UNREAD_BODY = 256 * 1024
#: How long a connection stays half open after the last answer, in seconds. Closing with unread
#: bytes resets it, and the reset may overtake the answer. Go's figure.
LINGER = 0.5


class HTTPServer:
    """An HTTP server on one address. Subclasses fill :attr:`router`.

    Life: created, :meth:`start`, :meth:`stop`.
    """

    def __init__(self, name: str, host: str, port: int) -> None:
        self.router = Router()
        self._acceptor = Acceptor(name, host, port, self._serve)

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
        with sock.makefile("rb", buffering=64 * 1024) as file:
            stream = cast(BinaryIO, file)
            try:
                while self._serve_one(sock, stream, address):
                    pass
            except BadRequestError as exc:
                sock.sendall(exc.to_bytes())
                self._linger(sock)

    def _serve_one(self, sock: socket.socket, stream: BinaryIO, address: str) -> bool:
        """Answer one request; False when the connection is to be closed."""
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
