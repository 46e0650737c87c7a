"""TLS and compression of one client: putting the layers on, and what /stats says of them.

No socket: the layers belong to the protocol core, which is fed by the session.
"""

from __future__ import annotations

import ssl
import time
from typing import Any

from nsqclient.protocol.deflate import DeflateLayer
from nsqclient.protocol.server import ServerProtocol
from nsqclient.protocol.server_identify import ClientSettings
from nsqclient.protocol.snappy_layer import SnappyLayer
from nsqclient.protocol.tls import TLSLayer
from nsqclient.protocol.wire import OK

#: Seconds that a TLS handshake may take: nsqd's.
HANDSHAKE_TIMEOUT = 5.0

#: OpenSSL's name of a cipher suite -> the name under which nsqd knows it; it knows no others.
_SUITES = {
    "AES128-SHA": "TLS_RSA_WITH_AES_128_CBC_SHA",
    "AES256-SHA": "TLS_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-ECDSA-AES128-SHA": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "ECDHE-ECDSA-AES256-SHA": "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-AES128-SHA": "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "ECDHE-RSA-AES256-SHA": "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
}


class Upgrades:
    """The layers of one client. ``context`` is None where the server has no certificate."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._tls: TLSLayer | None = None
        self._due = float("inf")

    def apply(self, core: ServerProtocol, settings: ClientSettings) -> None:
        """Put on what IDENTIFY granted, in nsqd's order, with an OK inside each layer.

        The OKs wait in the TLS layer until its handshake is over.
        """
        if settings.tls and self._context is not None:
            self._due = time.monotonic() + HANDSHAKE_TIMEOUT
            self._tls = TLSLayer(self._context, server_side=True)
            core.start_layer(self._tls)
            core.respond(OK)
        if settings.snappy:
            core.start_layer(SnappyLayer())
            core.respond(OK)
        if settings.deflate:
            core.start_layer(DeflateLayer(settings.deflate_level))
            core.respond(OK)

    @property
    def is_secure(self) -> bool:
        """Whether the client speaks TLS."""
        return self._tls is not None and self._tls.is_established

    def handshake_due(self) -> float:
        """When the TLS handshake must be over, on the monotonic clock; endless if it is."""
        return float("inf") if self._tls is None or self._tls.is_established else self._due

    def common_name(self) -> str:
        """Return the name in the client's certificate; empty without one."""
        certificate = self._tls.tls.getpeercert() if self._tls and self.is_secure else None
        if not certificate:
            return ""
        fields: Any = certificate.get("subject", ())  # ((("commonName", "x"),), ...)
        return next((value for field in fields for key, value in field if key == "commonName"), "")

    def stats(self) -> dict[str, Any]:
        """Return the keys of /stats that tell of TLS."""
        version = suite = ""
        if self._tls is not None and self.is_secure:
            version = (self._tls.tls.version() or "").replace("TLSv", "TLS")
            suite = self._suite()
        return {
            "tls": self.is_secure,
            "tls_cipher_suite": suite,
            "tls_version": "TLS1.0" if version == "TLS1" else version,
            "tls_negotiated_protocol": "",
            # Always true in nsqd, whose Go has retired the field.
            "tls_negotiated_protocol_is_mutual": self.is_secure,
        }

    def _suite(self) -> str:
        assert self._tls is not None and self._context is not None
        cipher = self._tls.tls.cipher()
        name = "" if cipher is None else cipher[0]
        if name in _SUITES:
            return _SUITES[name]
        numbers = {each["name"]: each["id"] & 0xFFFF for each in self._context.get_ciphers()}
        return f"Unknown {numbers.get(name, 0)}"
