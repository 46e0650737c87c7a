"""One message as an HTTP request: what nsq_to_http sends, and when it has arrived."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http.cookiejar import DefaultCookiePolicy
from urllib.parse import quote_plus, urljoin

import requests

from nsqclient.http.limits import (
    ACCEPT_ENCODING, LimitedAdapter, TooLarge, UnexpectedEncoding, read_body,
)
from nsqclient.version import __version__

_MAX_REDIRECTS = 10
#: Redirects that keep the method and the body. Behind the others a POST would become a GET, and
#: its message would be lost with a 200.
_KEEPS_BODY = (307, 308)


#: The most that is read of an answer, in bytes, so that its connection can be used again.
_MAX_ANSWER = 1024 * 1024


class Failed(Exception):
    """The destination did not take the message; the text says why.

    ``status`` is that of its answer, None where none came.
    """

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Requester:
    """Sends messages to URLs over one session.

    Args:
        is_get: GET with the message in the URL, in the place of ``%s``; else POST.
        headers: sent with each request; they go before the usual ones.
        connections: kept open to one host.
        timeouts: seconds for the connection, and for the whole answer.
        context: for ``https``; None: the authorities that ``requests`` brings count.

    Threads: any; nothing in the session changes after it was made. Proxies and ``~/.netrc`` of
    the environment have no say, as with the original.
    """

    def __init__(
        self,
        *,
        is_get: bool,
        headers: Mapping[str, str],
        connections: int,
        timeouts: tuple[float, float],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._is_get = is_get
        self._timeouts = timeouts
        self._session = session = requests.Session()
        session.trust_env = False
        session.max_redirects = _MAX_REDIRECTS
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            session.mount(scheme, LimitedAdapter(context, connections))
        session.verify = context is None or context.verify_mode is not ssl.CERT_NONE
        session.headers.clear()
        session.headers.update({
            "User-Agent": f"nsq_to_http v{__version__}", "Accept-Encoding": ACCEPT_ENCODING,
            **headers,
        })

    def send(self, url: str, body: bytes) -> None:
        """Send one message.

        Raises:
            Failed: no answer, or one that is not 200 to 299.
        """
        try:
            if self._is_get:
                response = self._session.get(
                    url.replace("%s", quote_plus(body)), timeout=self._timeouts, stream=True)
            else:
                response = self._post(url, body)
            read_body(response, _MAX_ANSWER)
        except (TooLarge, UnexpectedEncoding):
            pass  # it has answered; what more it says matters to nobody
        except (requests.exceptions.RequestException, ValueError) as exc:
            # ValueError: of a Location that is no URL or not UTF-8.
            raise Failed(f"{type(exc).__name__}: {exc}") from exc
        if not 200 <= response.status_code < 300:
            raise Failed(f"HTTP {response.status_code}", response.status_code)

    def close(self) -> None:
        """Close idle connections."""
        self._session.close()

    def _post(self, url: str, body: bytes) -> requests.Response:
        for _ in range(_MAX_REDIRECTS):
            response = self._session.post(
                url, data=body, timeout=self._timeouts, allow_redirects=False, stream=True)
            location = response.headers.get("Location")
            if response.status_code not in _KEEPS_BODY or location is None:
                return response
            response.close()
            url = urljoin(url, location)
        raise Failed(f"more than {_MAX_REDIRECTS} redirects")
