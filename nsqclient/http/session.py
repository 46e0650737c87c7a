"""``HTTPClient``: requests to one server over one ``requests`` session, and their typed errors.

Endpoints are in ``nsqd`` and ``nsqlookupd``.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import requests

from nsqclient.config import Config, build_tls_context
from nsqclient.display import counted, printable, without_password
from nsqclient.errors import (
    ConfigError, NSQHTTPResponseError, NSQHTTPError, NSQHTTPTransportError, NSQHTTPStatusError,
    as_cause,
)
from nsqclient.http.limits import TooLarge, mount_adapters, read_body
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.protocol.peer_json import (
    InvalidField, InvalidJson, JsonLimitError, JsonReader, read_json,
)
from nsqclient.runtime.deadline import Deadline, Duration, to_seconds
from nsqclient.runtime.forking import check_process, register_for_fork

logger: logging.Logger = logging.getLogger("nsqclient.http")

T = TypeVar("T")

#: The largest accepted response, in bytes: /stats of nsqd with 50,000 clients is about 40 MiB.
MAX_ANSWER_SIZE = 64 * 1024 * 1024
_MAX_REDIRECTS = 30
#: Characters of the text of a foreign error, which may repeat what the server sent.
_LONGEST_REASON = 500
#: Seconds for each step of a look whether a server that resets connections speaks NSQ's protocol.
_PROBE_TIMEOUT = 0.5
_ACCEPT = "application/vnd.nsq; version=1.0"


class Server(NamedTuple):
    """A kind of server."""

    name: str
    tcp_port: int
    http_port: int
    url: Callable[[str, str], str]  #: (address, endpoint) -> URL
    takes_secret: bool = False  #: ``auth_secret`` is sent to it


class BrokenUpload(NSQHTTPTransportError):
    """The connection ended during an upload: usually the body is too large for the server."""


class HTTPClient:
    """Requests to the HTTP API of one server; the base of NsqdHTTP and NsqlookupdHTTP.

    Args:
        address: ``host:port`` or URL.
        config: ``user_agent``; with ``tls_v1`` the ``tls_*`` options hold for an ``https``
            address, all but ``tls_server_name``, which is a name of nsqd's TCP side. Without
            ``tls_v1`` the server is verified against the authorities of ``requests``.
        connect_timeout: for the TCP connection.
        timeout: for the whole response, from the last byte of the request to the last of the
            response. All redirects together have the sum of both timeouts.
        max_answer_size: the largest response, in bytes.
        headers: sent with each request.
        bearer_token: sent as ``Authorization: Bearer``; empty: not sent; None: see the subclass.

    Raises:
        ConfigError: the address, a timeout or the size is none.
        TLSError: a file of the ``tls_*`` options is not usable.

    Every method raises an NSQHTTPError: NSQHTTPTransportError without a response,
    NSQHTTPStatusError when the server refused, NSQHTTPResponseError when the response is invalid.

    Proxies and ``~/.netrc`` of the environment are ignored. Redirects are followed for GET alone:
    a redirected POST would become a GET.

    Life: usable at once; ``close()``, or the end of ``with``, closes idle connections. In a forked
    child it opens its own connections.
    Threads: any, also several at once: each call takes a connection of the session's pool, and
    the session does not change after it was made.
    """

    _server: Server

    def __init__(
        self,
        address: str,
        config: Config | None = None,
        *,
        connect_timeout: Duration = 2.0,
        timeout: Duration = 5.0,
        max_answer_size: int = MAX_ANSWER_SIZE,
        headers: Mapping[str, str] | None = None,
        bearer_token: str | None = None,
    ) -> None:
        self._server.url(address, "")
        if max_answer_size < 1:
            raise ConfigError(f"max_answer_size must be at least 1 byte, not {max_answer_size}")
        self._max_answer_size = max_answer_size
        self.address = address
        self._config = config = Config() if config is None else config
        self._timeouts = (
            to_seconds(connect_timeout, "connect_timeout", minimum=0.001),
            to_seconds(timeout, "timeout", minimum=0.001),
        )
        if bearer_token is None and self._server.takes_secret:
            bearer_token = config.auth_secret if config.skip_lookupd_authorization else ""
        # As bytes, because a str would have to be Latin-1.
        sent = {
            "Accept": _ACCEPT, "Accept-Encoding": "gzip",
            "User-Agent": config.user_agent, **(headers or {}),
        }
        if bearer_token:
            sent["Authorization"] = f"Bearer {bearer_token}"
        self._headers = {
            name: value.encode("utf-8", "surrogateescape") for name, value in sent.items()
        }
        self._session = self._make_session()
        register_for_fork(self)

    def close(self) -> None:
        """Close idle connections. Idempotent; a later call opens new ones."""
        self._session.close()

    def _reset_after_fork(self) -> None:
        """For the library: do not use the parent's connections, in a forked child."""
        self._session = self._make_session()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {without_password(self.address)}>"

    def ping(self) -> None:
        """Return when the server is healthy.

        Raises:
            NSQHTTPStatusError: 500, with the disk error that nsqd had.
        """
        self._send("GET", "ping")

    # -- for the two clients

    def _change(
        self, endpoint: str, topic: str, channel: str | None = None, query: Mapping[str, str] = {},
    ) -> None:
        params = {**query, "topic": check_topic(topic)}
        if channel is not None:
            params["channel"] = check_channel(channel)
        self._send("POST", endpoint, params)

    def _ask(
        self,
        endpoint: str,
        read: Callable[[JsonReader], T],
        params: Mapping[str, str] | None = None,
    ) -> T:
        """GET a JSON object and read it."""
        return self._read(endpoint, self._ask_json(endpoint, params),
                          lambda data: read(JsonReader(data, "its answer")))

    def _read(self, endpoint: str, data: Any, read: Callable[[Any], T]) -> T:
        """Read received JSON; an invalid field is an NSQHTTPResponseError."""
        try:
            return read(data)
        except InvalidField as exc:
            raise self._unusable(endpoint, str(exc)) from exc

    def _unusable(self, endpoint: str, why: str) -> NSQHTTPResponseError:
        url = self._server.url(self.address, endpoint)
        return NSQHTTPResponseError(url, f"not a usable answer: {why}")

    def _ask_json(
        self, endpoint: str, params: Mapping[str, str] | None = None, may_be_empty: bool = False
    ) -> Any:
        """GET JSON; None for an empty body where that is an answer."""
        body = self._send("GET", endpoint, params)
        if may_be_empty and not body:
            return None
        try:
            return read_json(body, self._max_answer_size)
        except JsonLimitError as exc:
            raise self._unusable(endpoint, str(exc)) from exc
        except InvalidJson as exc:
            # A body that begins as JSON comes from the right port.
            is_json = body.lstrip()[:1] in (b"{", b"[")
            why = f"JSON that cannot be read: {exc}" if is_json else (
                "no JSON: is this its HTTP port?")
            raise self._unusable(endpoint, why) from exc

    def _send(
        self,
        method: str,
        endpoint: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        """Send one request; return the body of a successful response."""
        check_process()
        url = self._server.url(self.address, endpoint)
        request = self._prepare(requests.Request(method, url, self._headers, params=params,
                                                 data=body))
        deadline = Deadline(sum(self._timeouts))
        try:
            response = self._session.send(
                request, timeout=self._timeouts, allow_redirects=False, stream=True,
            )
            if method == "GET":
                response = self._follow(response, deadline)
            answer = read_body(response, self._max_answer_size)
        except TooLarge as exc:
            raise self._unusable(endpoint, str(exc)) from None
        except requests.exceptions.InvalidHeader as exc:
            raise self._unusable(endpoint, f"its headers contradict each other: {exc}") from exc
        except requests.exceptions.RequestException as exc:
            error = self._error(url, exc, len(body or b""))
            logger.debug("%s", error, exc_info=exc)
            raise error from as_cause(exc)
        except ValueError as exc:
            # A Location that is no URL or not UTF-8: requests reads it while it sends.
            raise self._unusable(endpoint, f"a header cannot be read: {exc}") from exc
        if response.status_code != 200:
            raise NSQHTTPStatusError(url, response.status_code, _message(answer))
        return answer

    def _prepare(self, request: requests.Request) -> requests.PreparedRequest:
        # Some versions of requests admit a line end at the end; http.client's error shows the
        # value.
        try:
            if any(b"\n" in value or b"\r" in value for value in self._headers.values()):
                raise requests.exceptions.InvalidHeader
            return self._session.prepare_request(request)
        except requests.exceptions.InvalidHeader:
            # "from None": the text of that exception shows the secret.
            raise NSQHTTPTransportError(
                request.url, "auth_secret, user_agent or another value has characters that no HTTP"
                " header can carry"
            ) from None
        except requests.exceptions.RequestException as exc:
            raise self._error(request.url, exc, 0) from exc

    def _follow(self, response: requests.Response, deadline: Deadline) -> requests.Response:
        """Follow redirects; all of them together have the time of one response."""
        for _ in range(_MAX_REDIRECTS):
            if response.next is None:
                return response
            if deadline.expired():
                raise requests.exceptions.ReadTimeout("redirects have taken all the time")
            # Never 0, which would mean "do not wait" to a socket.
            connect, whole = (max(0.001, deadline.at_most(each)) for each in self._timeouts)
            response = self._session.send(
                response.next, timeout=(connect, whole), allow_redirects=False, stream=True,
            )
        response.close()
        raise requests.exceptions.TooManyRedirects(f"more than {_MAX_REDIRECTS} redirects")

    def _error(
        self, url: str, exc: requests.exceptions.RequestException, sent: int
    ) -> NSQHTTPError:
        """Build the NSQHTTPError for a failure; ``sent``: bytes of the request's body."""
        if isinstance(exc, requests.exceptions.ConnectTimeout):
            return NSQHTTPTransportError(url, f"no connection within {self._timeouts[0]:g} s")
        if isinstance(exc, requests.exceptions.Timeout):
            return NSQHTTPTransportError(url, f"no whole answer within {self._timeouts[1]:g} s")
        if isinstance(exc, requests.exceptions.SSLError):
            return NSQHTTPTransportError(url, f"TLS: {printable(_innermost(exc), _LONGEST_REASON)}")
        if sent and _is_reset(exc):
            return BrokenUpload(url, f"broken in the upload of {counted(sent, 'byte')}")
        error = NSQHTTPTransportError(url, self._reason(exc))
        # A proxy whose server is not there yet resets connections too.
        error.is_lasting = "BadStatusLine" in str(exc) or (
            _is_reset(exc) and _is_tcp_port_of_nsq(url, min(self._timeouts[0], _PROBE_TIMEOUT)))
        return error

    def _reason(self, exc: requests.exceptions.RequestException) -> str:
        text = str(exc)
        server = self._server
        if "BadStatusLine" in text or "Connection aborted" in text:
            return (
                f"the answer is not HTTP: this looks like its TCP port ({server.tcp_port} by"
                f" default), not the HTTP port ({server.http_port})"
            )
        if "NameResolutionError" in text or "Name or service not known" in text:
            return "host unknown"
        if "refused" in text:
            return f"connection refused: is {server.name} running there?"
        return printable(text, _LONGEST_REASON)

    def _make_session(self) -> requests.Session:
        session = requests.Session()
        # A proxy meant for the internet must not see requests to nsqd, and ~/.netrc must not
        # replace the Authorization header.
        session.trust_env = False
        # No cookies: one call must not change the next one.
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        context = None
        if self.address.startswith("https:") and self._config.tls_v1:
            context = build_tls_context(self._config)
            session.verify = context.verify_mode is not ssl.CERT_NONE
        mount_adapters(session, context)
        return session


def _message(answer: bytes) -> str:
    """The server's error: its code, or the start of the text."""
    try:
        data = read_json(answer)
    except InvalidJson:
        data = None
    if isinstance(data, dict) and isinstance(data.get("message"), str):
        code: str = data["message"]
        port = data.get("https_port")
        return f"{code} (HTTPS is on port {port})" if isinstance(port, int) else code
    return answer[:200].decode("utf-8", "replace").strip()


def _is_tcp_port_of_nsq(url: str, timeout: float) -> bool:
    """Return whether the server of a URL rejects another protocol as nsqd and nsqlookupd do.

    They close the connection at its first four bytes, and a reset hides their answer to a request.
    """
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout) as conn:
            conn.settimeout(timeout)
            conn.sendall(b"GET ")
            return b"E_BAD_PROTOCOL" in conn.recv(64)
    except OSError:
        return False


def _innermost(exc: BaseException) -> str:
    """The text of the first cause: the outer ones repeat host and path."""
    while True:
        inner = exc.__cause__ or exc.__context__
        if inner is None:
            return str(exc)
        exc = inner


def _is_reset(exc: BaseException | None) -> bool:
    """Return whether the peer reset or closed a connection that was in use."""
    while exc is not None:
        if isinstance(exc, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)):
            return True
        exc = exc.__cause__ or exc.__context__
    return False
