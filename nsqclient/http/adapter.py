"""Extensions to ``requests`` for HTTP clients: TLS as in ``Config``, and limits of a body."""

from __future__ import annotations

import ssl
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ProtocolError

from nsqclient.config import Config, build_tls_context
from nsqclient.runtime.deadline import Deadline

_CHUNK = 64 * 1024


class TLSAdapter(HTTPAdapter):
    """HTTPS with the ``tls_*`` options of a config except ``tls_server_name``.

    No other authorities are trusted.

    Args:
        connections: maximum number of open connections to one host.

    Raises:
        TLSError: a file cannot be used.
    """

    def __init__(self, config: Config, connections: int = 10) -> None:
        self._context = build_tls_context(config)
        super().__init__(pool_maxsize=connections)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, ssl_context=self._context)

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Do nothing: the original adds its own authorities to the context."""

    def send(self, request: Any, *args: Any, **options: Any) -> requests.Response:
        options["verify"] = self._context.verify_mode is not ssl.CERT_NONE
        return super().send(request, *args, **options)


class TooLarge(Exception):
    ...


def read_body(response: requests.Response, most: int, deadline: Deadline) -> bytes:
    """Read the body of a response to a request with ``stream=True``, and release it.

    The deadline is checked after each read; a read waits up to the timeout of the request.

    Raises:
        TooLarge: it has more than ``most`` bytes, decompressed.
        requests.exceptions.ReadTimeout: it did not arrive in time.
        urllib3.exceptions.HTTPError: the connection broke, or the body cannot be decompressed.
    """
    parts, size = [], 0
    try:
        with response:
            while part := response.raw.read1(_CHUNK, decode_content=True):
                size += len(part)
                if size > most:
                    raise TooLarge(f"its answer has more than {most} bytes")
                if deadline.expired():
                    raise requests.exceptions.ReadTimeout("the body did not arrive in time")
                parts.append(part)
    except (ValueError, OverflowError) as exc:  # http.client cannot read a chunk size
        raise ProtocolError(f"the body cannot be read: {exc}", exc) from exc
    return b"".join(parts)
