"""One request to an auth server, as nsqd sends it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from urllib.parse import urlencode

#: Seconds to wait for the auth server: nsqd's default.
_TIMEOUT = 5.0


class AuthRequestError(Exception):
    """There is no answer, or one with another status than 200. The text may be logged."""


def fetch(address: str, query: Mapping[str, str | bytes], max_size: int) -> bytes:
    """Return the body of an auth server's answer, up to ``max_size`` bytes of it.

    Args:
        address: ``host:port`` or a URL.
        query: the parameters, with the secret.

    Blocks: up to 5 seconds without a byte.

    Raises:
        AuthRequestError: no answer, or an error.
    """
    url = address if "://" in address else f"http://{address}/auth"
    try:
        request = urllib.request.Request(
            f"{url}{'&' if '?' in url else '?'}{urlencode(query)}",
            headers={"Accept": "application/vnd.nsq; version=1.0"},
        )
        with _opener().open(request, timeout=_TIMEOUT) as answer:
            body: bytes = answer.read(max_size)
            status, reason = answer.status, answer.reason
    except urllib.error.HTTPError as exc:
        with exc:
            status, reason = exc.code, exc.reason
    except (OSError, HTTPException, ValueError) as exc:
        # Without its text, and unchained: a URL in it would show the secret.
        raise AuthRequestError(_kind(exc)) from None
    if status != 200:
        raise AuthRequestError(f"got response {status} {reason}")
    return body


def _opener() -> urllib.request.OpenerDirector:
    """Build an opener for HTTP without proxies, as in nsqd's own client.

    Not ``requests``: the secret is in the URL, and urllib3 logs URLs at DEBUG.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.UnknownHandler,
        urllib.request.HTTPRedirectHandler, urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


def _kind(exc: Exception) -> str:
    """Describe an error without the URL."""
    cause = exc.reason if isinstance(exc, urllib.error.URLError) else exc
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return type(cause).__name__ if isinstance(cause, Exception) else type(exc).__name__
