"""Puts an SSLContext of ours into a ``requests`` session."""

from __future__ import annotations

import ssl
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from nsqclient.config import Config
from nsqclient.runtime.tls import client_context


class _ContextAdapter(HTTPAdapter):
    """Connects with one SSLContext, whose authorities are the only ones that count."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, ssl_context=self._context)

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        # The original adds the authorities that requests brings to those of the context.
        pass


def mount_tls(session: requests.Session, config: Config) -> None:
    """Make a session use the ``tls_*`` options for ``https``.

    Raises:
        TLSError: a file cannot be used; says which.
    """
    context = config.tls_config
    if context is None:
        context = client_context(
            ca_file=config.tls_root_ca_file,
            cert=config.tls_cert,
            key=config.tls_key,
            min_version=config.tls_min_version,
            verify=not config.tls_insecure_skip_verify,
        )
    session.verify = context.verify_mode is not ssl.CERT_NONE
    session.mount("https://", _ContextAdapter(context))
