"""Builds TLS contexts from file names. Clients verify by default.

The files are read for each context, so the next connection uses a renewed certificate.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from nsqclient.errors import TLSError

#: TLS versions by their names in options.
VERSIONS = {
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}


def client_context(
    *,
    ca_file: str = "",
    cert: str = "",
    key: str = "",
    key_password: str = "",
    min_version: str = "tls1.2",
    verify: bool = True,
) -> ssl.SSLContext:
    """Build a client's context. Raises TLSError, which names the file that cannot be used.

    Args:
        ca_file: PEM file of trusted authorities; empty: the system's.
        cert, key: PEM files of the client's certificate, or both empty.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = VERSIONS[min_version]
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file:
        _load_authorities(context, ca_file)
    else:
        context.load_default_certs()
    if cert:
        _load_certificate(context, cert, key, key_password)
    return context


def server_context(
    *,
    cert: str,
    key: str,
    key_password: str = "",
    ca_file: str = "",
    verify_clients: bool = False,
    min_version: str = "tls1.2",
) -> ssl.SSLContext:
    """Build a server's context. Raises TLSError, which names the file that cannot be used.

    Args:
        ca_file: PEM file of the authorities for clients' certificates; empty: the system's.
        verify_clients: require a certificate from each client.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[min_version]
    _load_certificate(context, cert, key, key_password)
    if ca_file:
        _load_authorities(context, ca_file)
    elif verify_clients:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    if verify_clients:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError, TypeError) as exc:  # OSError includes SSLError; NUL: ValueError
        raise TLSError(f"cannot use the authorities in {path!r}: {_why(exc)}") from exc


def _load_certificate(
    context: ssl.SSLContext, cert: str, key: str, key_password: str
) -> None:
    for path in (cert, key):  # OpenSSL does not name the file that it cannot read
        try:
            Path(path).read_bytes()
        except (OSError, ValueError) as exc:
            raise TLSError(f"cannot read {path!r}: {_why(exc)}") from exc
    was_asked = False

    def give_password() -> bytes:
        # Also set without a password; otherwise OpenSSL would prompt on the terminal.
        nonlocal was_asked
        was_asked = True
        if not key_password:
            raise ValueError(
                "the key is encrypted: set tls_key_password_file, or pass a ready SSLContext")
        return key_password.encode("utf-8", "surrogateescape")

    try:
        context.load_cert_chain(cert, key, give_password)
    except (OSError, ValueError) as exc:
        reason = _why(exc)
        if was_asked and key_password and "mismatch" not in reason:
            reason = "wrong password"
        raise TLSError(f"cannot use certificate {cert!r} with key {key!r}: {reason}") from exc


def _why(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError) and exc.reason:
        return exc.reason.lower().replace("_", " ")
    return getattr(exc, "strerror", None) or str(exc)
