"""``HTTPClient``: requests to one server over an adapter of ``requests``, and their errors."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from http.client import BadStatusLine
from typing import Any, NamedTuple, TypeVar

import requests
import urllib3.exceptions
from requests.adapters import HTTPAdapter

from nsqclient.config import Config
from nsqclient.display import counted, printable, without_password
from nsqclient.errors import (
    ConfigError, NSQHTTPResponseError, NSQHTTPStatusError, NSQHTTPTransportError, as_cause,
)
from nsqclient.http.adapter import TLSAdapter, TooLarge, read_body
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
#: Longest quoted error of ``requests`` in characters; it may repeat data from the server.
_LONGEST_REASON = 500
#: Answers of nsqd and nsqlookupd on their TCP ports to another protocol.
_NSQ_ERROR = "E_BAD_PROTOCOL"
_RESETS = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)
_ACCEPT = "application/vnd.nsq; version=1.0"


class Server(NamedTuple):
    name: str
    tcp_port: int
    http_port: int
    url: Callable[[str, str], str]  #: (address, endpoint) -> URL
    takes_secret: bool = False  #: ``auth_secret`` is sent to it

    @property
    def other_port_hint(self) -> str:
        return (f"see that this is the HTTP address of an {self.name} (port {self.http_port} by"
                " default)")


class HTTPClient:
    """Requests to the HTTP API of one server; the base of NsqdHTTP and NsqlookupdHTTP.

    Args:
        address: ``host:port`` or URL.
        config: ``user_agent``, and with ``tls_v1`` the ``tls_*`` options for an ``https`` address,
            except ``tls_server_name``. Without ``tls_v1`` the authorities of ``requests`` apply.
        connect_timeout: for the TCP connection.
        timeout: for each read, and from the request to the end of the body. A server that sends its
            headers byte by byte can take longer, and delays only its caller.
        max_answer_size: the largest response, in bytes.
        headers: sent with each request.
        bearer_token: sent as ``Authorization: Bearer``; empty: not sent; None: see the subclass.

    Raises:
        ConfigError: invalid address, timeout or size.
        TLSError: a file of the ``tls_*`` options is not usable.

    Every method raises an NSQHTTPError: NSQHTTPTransportError without a response,
    NSQHTTPStatusError for an error of the server, NSQHTTPResponseError for an invalid response.
    Proxies and ``~/.netrc`` are ignored, and redirects are not followed.

    Lifecycle: usable immediately; ``close()``, or the end of ``with``, closes idle connections. A
    forked child opens its own connections. Threads: any; each call uses a connection of a pool.
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
        self._adapter = self._make_adapter()
        register_for_fork(self)

    def close(self) -> None:
        """Close idle connections. Idempotent; a later call opens new ones."""
        self._adapter.close()

    def _reset_after_fork(self) -> None:
        self._adapter = self._make_adapter()

    def _make_adapter(self) -> HTTPAdapter:
        if self.address.startswith("https:") and self._config.tls_v1:
            return TLSAdapter(self._config)
        return HTTPAdapter()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {without_password(self.address)}>"

    def ping(self) -> None:
        """Return if the server is healthy.

        Raises:
            NSQHTTPStatusError: 500, with the disk error of nsqd.
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
        return self._read(endpoint, self._ask_json(endpoint, params),
                          lambda data: read(JsonReader(data, "its answer")))

    def _read(self, endpoint: str, data: Any, read: Callable[[Any], T]) -> T:
        try:
            return read(data)
        except InvalidField as exc:
            raise self._unusable(endpoint, str(exc)) from exc

    def _unusable(self, endpoint: str, why: str) -> NSQHTTPResponseError:
        url = self._server.url(self.address, endpoint)
        return NSQHTTPResponseError(
            url, f"not a usable answer: {why}", self._server.other_port_hint)

    def _ask_json(
        self, endpoint: str, params: Mapping[str, str] | None = None, may_be_empty: bool = False
    ) -> Any:
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
        check_process()
        url = self._server.url(self.address, endpoint)
        deadline = Deadline(sum(self._timeouts))
        try:
            # The pattern of requests admits a line end behind a value.
            if any(b"\n" in value or b"\r" in value for value in self._headers.values()):
                raise requests.exceptions.InvalidHeader
            request = requests.Request(
                method, url, self._headers, params=params, data=body).prepare()
            # Unlike a Session, an adapter ignores proxies, ~/.netrc, cookies and redirects.
            response = self._adapter.send(request, stream=True, timeout=self._timeouts)
            answer = read_body(response, self._max_answer_size, deadline)
        except requests.exceptions.InvalidHeader:
            # "from None": the text of that exception shows the secret.
            raise NSQHTTPTransportError(
                url, "auth_secret, user_agent or another value has characters that no HTTP header"
                " can carry") from None
        except TooLarge as exc:
            raise self._unusable(endpoint, str(exc)) from None
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as exc:
            error = self._error(url, exc, len(body or b""))
            logger.debug("%s", error, exc_info=exc)
            raise error from as_cause(exc)
        if response.status_code != 200:
            raise NSQHTTPStatusError(url, response.status_code, _message(response, answer))
        return answer

    def _error(self, url: str, exc: Exception, sent: int) -> NSQHTTPTransportError:
        causes = list(_causes(exc))

        def is_caused_by(*kinds: type[BaseException]) -> bool:
            return any(isinstance(each, kinds) for each in causes)

        server, (connect, whole) = self._server, self._timeouts
        reason = printable(str(causes[-1]), _LONGEST_REASON)
        hint, is_lasting = server.other_port_hint, False
        if is_caused_by(requests.exceptions.ConnectTimeout):
            reason = f"no connection within {connect:g} s"
        elif is_caused_by(requests.exceptions.ReadTimeout, urllib3.exceptions.ReadTimeoutError):
            tls = f" (or no TLS handshake within {connect:g} s)" if url[:6] == "https:" else ""
            reason = f"no whole answer within {whole:g} s{tls}"
        elif is_caused_by(requests.exceptions.SSLError, urllib3.exceptions.SSLError):
            reason = f"TLS: {reason}"
            hint = "see the tls_* options, and whether the URL should begin with http://"
        elif is_caused_by(*_RESETS):
            reason = "the connection was closed before an answer"
            if sent:
                reason = f"broken in the upload of {counted(sent, 'byte')}"
                hint = "the body may be larger than nsqd's --max-msg-size or --max-body-size"
        elif is_caused_by(BadStatusLine):
            is_lasting = True
            line = next(str(each) for each in causes if isinstance(each, BadStatusLine))
            reason = f"the answer is not HTTP: {line[:100]!r}"
            if _NSQ_ERROR in line:
                reason = (f"this looks like its TCP port ({server.tcp_port} by default), not the"
                          f" HTTP port ({server.http_port})")
        elif is_caused_by(urllib3.exceptions.NameResolutionError, socket.gaierror):
            reason = "host unknown"
            hint = f"the name does not resolve here: correct the address of {server.name}"
        elif is_caused_by(ConnectionRefusedError):
            reason = f"connection refused: is {server.name} running there?"
            hint = (f"see that {server.name} runs, and that this is its --http-address"
                    f" ({server.http_port} by default)")
        error = NSQHTTPTransportError(url, reason, hint)
        error.is_lasting = is_lasting
        return error


def _message(response: requests.Response, answer: bytes) -> str:
    """Return the error code, or the start of the text."""
    if response.is_redirect:
        return f"give the address to which it redirects, {response.headers['Location']}"
    try:
        data = read_json(answer)
    except InvalidJson:
        data = None
    if isinstance(data, dict) and isinstance(data.get("message"), str):
        code: str = data["message"]
        port = data.get("https_port")
        return f"{code} (HTTPS is on port {port})" if isinstance(port, int) else code
    return answer[:200].decode("utf-8", "replace").strip()


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, also those in ``args`` and ``reason``, innermost last."""
    pending, seen = [exc], set[int]()
    while pending:
        one = pending.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
        pending += [each for each in inner if isinstance(each, BaseException)]
