"""Builds TLS contexts from file names; knows nothing of NSQ. Clients verify by default.

The files are read each time, so a certificate that was renewed counts from the next connection.
"""

from __future__ import annotations

import ssl
import warnings
from pathlib import Path
from typing import Any

from nsqclient.errors import TLSError

#: What TLS versions are called in options.
VERSIONS = {
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the ssl module has no name for.
_NO_CHECK_TIME = 0x200000
#: OpenSSL's SSL_OP_NO_RX_CERTIFICATE_COMPRESSION, from 3.2 on: a compressed certificate comes in
#: a message of another type. Older versions ignore it.
_NO_COMPRESSED_CERTIFICATE = 1 << 33
_HANDSHAKE = 22  # content type of a TLS record
_CERTIFICATE = 11  # type of a handshake message


def client_context(
    *,
    ca_file: str = "",
    cert: str = "",
    key: str = "",
    key_password: str = "",
    min_version: str = "tls1.2",
    verify: bool = True,
) -> ssl.SSLContext:
    """Build a client's context.

    Args:
        ca_file: PEM file of the authorities to trust; empty: those of the system.
        cert, key: PEM files of the client's certificate, or both empty.
        key_password: of a key that is encrypted.
        min_version: ``tls1.2`` or ``tls1.3``.
        verify: check the server's certificate and its name.

    Raises:
        TLSError: a file cannot be used; says which.
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
    any_client_certificate: bool = False,
    min_version: str = "tls1.2",
) -> ssl.SSLContext:
    """Build a server's context.

    Args:
        cert, key: PEM files of the server's certificate.
        key_password: of a key that is encrypted.
        ca_file: PEM file of the authorities that clients' certificates are checked against;
            empty: those of the system.
        verify_clients: demand a certificate of each client, of these authorities.
        any_client_certificate: demand a certificate, of any authority and any age. Only its usage
            is checked: it must not exclude TLS clients.
        min_version: ``tls1.0`` and ``tls1.1`` also enable the old ciphers that they need.

    Raises:
        TLSError: a file cannot be used; says which.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    lowest = VERSIONS[min_version]
    if lowest < ssl.TLSVersion.TLSv1_2:
        # OpenSSL has the old versions at its lowest level of security only.
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the old versions; asked for
        context.minimum_version = lowest
    _load_certificate(context, cert, key, key_password)
    if ca_file:
        _load_authorities(context, ca_file)
    elif verify_clients:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    if verify_clients or any_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    if any_client_certificate:
        _trust_any_certificate(context)
    return context


def _trust_any_certificate(context: ssl.SSLContext) -> None:
    """Trust the certificate of each client as soon as it is received.

    The ssl module cannot demand a certificate without verifying it, and has no callback to
    verify with. Its callback for protocol messages sees the certificate before OpenSSL does, and
    makes it an authority. The proof that the client has the key is checked all the same.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
    context.options |= ssl.Options(_NO_COMPRESSED_CERTIFICATE)

    def on_message(
        _connection: Any, direction: str, version: int, content: int, kind: int, data: bytes
    ) -> None:
        if (direction, content, kind) == ("read", _HANDSHAKE, _CERTIFICATE):
            certificate = first_certificate(data, version >= ssl.TLSVersion.TLSv1_3)
            if certificate:
                context.load_verify_locations(cadata=certificate)

    # Private, and the same in every version from 3.8 on.
    context._msg_callback = on_message  # type: ignore[attr-defined]


def first_certificate(message: bytes, has_context: bool) -> bytes:
    """Return the first certificate, as DER, of a Certificate message; empty when it has none.

    ::

        [1 B type][3 B size] [1 B size of a context][context] [3 B size][3 B size][certificate]...
                             ^ has_context: TLS 1.3
    """
    at = 4
    if has_context:
        at += 1 + message[at]
    at += 3  # of the list
    size = int.from_bytes(message[at:at + 3], "big")
    return message[at + 3:at + 3 + size]


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError, TypeError) as exc:  # ssl.SSLError is the first; NUL in a name
        raise TLSError(f"cannot use the authorities in {path!r}: {_why(exc)}") from exc


def _load_certificate(
    context: ssl.SSLContext, cert: str, key: str, key_password: str
) -> None:
    for path in (cert, key):  # OpenSSL does not say which of the two it could not read
        try:
            Path(path).read_bytes()
        except (OSError, ValueError) as exc:
            raise TLSError(f"cannot read {path!r}: {_why(exc)}") from exc
    was_asked = False

    def give_password() -> bytes:
        # Without a password as well: OpenSSL itself would ask at the terminal.
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
