"""The ``tls_*`` options of a Config as an SSLContext for HTTP."""

from __future__ import annotations

import ssl

from nsqclient.config import Config
from nsqclient.runtime.tls import client_context


def context_of(config: Config) -> ssl.SSLContext:
    """Return the context that the ``tls_*`` options describe.

    Raises:
        TLSError: a file cannot be used; says which.
    """
    if config.tls_config is not None:
        return config.tls_config
    return client_context(
        ca_file=config.tls_root_ca_file,
        cert=config.tls_cert,
        key=config.tls_key,
        key_password=config.tls_key_password,
        min_version=config.tls_min_version,
        verify=not config.tls_insecure_skip_verify,
    )
