"""Limits of a response: its size, and the time until all of it has arrived.

``requests`` has a timeout for each read alone: a server that sends a byte now and then would block
the caller forever. It also reads the bodies of redirects, however long they are.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from http.client import HTTPResponse
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, InvalidHeader, ReadTimeoutError

_CHUNK = 64 * 1024


class TooLarge(Exception):
    """The response has, or may have, more bytes than the caller accepts."""


class TotalTimeoutAdapter(HTTPAdapter):
    """Connects for a ``requests`` session; its read timeout is for the whole response.

    The body of a redirect is not read, and its connection is closed.

    Args:
        context: for ``https``: only its certificate authorities are trusted. None: those of
            ``requests``.
        connections: how many are kept open to one host.
    """

    def __init__(self, context: ssl.SSLContext | None = None, connections: int = 10) -> None:
        self._context = context
        super().__init__(pool_maxsize=connections)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Called by ``requests``."""
        if self._context is not None:
            options["ssl_context"] = self._context
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> Any:
        """Called by ``requests``."""
        response = super().send(request, *args, **options)
        if response.is_redirect:
            response.raw.close()
        return response

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Called by ``requests``."""
        # The original adds the authorities of requests to those of the context.
        if self._context is None:
            check: Any = super().cert_verify
            check(conn, url, verify, cert)


def mount_adapters(session: requests.Session, context: ssl.SSLContext | None = None) -> None:
    """Use ``TotalTimeoutAdapter`` for every URL of a session; ``context`` is for ``https``."""
    session.mount("http://", TotalTimeoutAdapter())
    session.mount("https://", TotalTimeoutAdapter(context))


def read_body(response: requests.Response, most: int) -> bytes:
    """Read the body of a response to a request with ``stream=True``, and release it.

    Raises:
        TooLarge: it has more than ``most`` bytes, decompressed. urllib3 decompresses only a part
            at once, save with Brotli before 1.2: that encoding was not requested, and is refused.
        requests.exceptions.Timeout: it did not arrive in time.
        requests.exceptions.RequestException: the connection broke.
    """
    parts, size = [], 0
    encodings = response.headers.get("Content-Encoding", "").lower().split(",")
    try:
        if "br" in map(str.strip, encodings):
            raise TooLarge("its answer has the Content-Encoding br, which was not requested")
        for part in response.iter_content(_CHUNK):
            size += len(part)
            if size > most:
                raise TooLarge(f"its answer has more than {most} bytes")
            parts.append(part)
    except requests.exceptions.ConnectionError as exc:
        if any(isinstance(arg, ReadTimeoutError) for arg in exc.args):
            raise requests.exceptions.ReadTimeout(*exc.args) from exc
        raise
    finally:
        response.close()
    return b"".join(parts)


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline: the socket's timeout, counted from now."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        seconds = sock.gettimeout()
        self._until = None if seconds is None else time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._until is not None:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedReader(sock))

    def begin(self) -> None:
        super().begin()
        lengths = ",".join(self.headers.get_all("Content-Length", [])).split(",")
        if len({length.strip() for length in lengths}) > 1:
            # urllib3 detects this too, but then nothing closes the socket.
            raise InvalidHeader(f"several values of Content-Length: {', '.join(lengths)!r:.100}")


class _Connection(HTTPConnection):
    response_class = _Response


class _TLSConnection(HTTPSConnection):
    response_class = _Response

    def connect(self) -> None:
        try:
            super().connect()
        except TimeoutError as exc:
            # urllib3 takes the handshake for a part of the response.
            raise ConnectTimeoutError(self, "the TLS handshake timed out") from exc


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection
