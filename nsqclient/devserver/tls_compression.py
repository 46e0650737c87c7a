"""TLS and compression of one client: starting the negotiated layers, and their part of /stats.

The libraries of a layer are loaded with its first use, so that a server starts without them.
No socket: the layers belong to the protocol core, which the session feeds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nsqclient.devserver.protocol.commands import ClientSettings
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.protocol.frames import OK

if TYPE_CHECKING:
    import ssl

    from nsqclient.protocol.layers.tls import TLSLayer

#: Seconds that a TLS handshake may take: nsqd's.
HANDSHAKE_TIMEOUT = 5.0


class NegotiatedLayers:
    """The layers of one client; ``context`` is None for a server without a certificate."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._tls: TLSLayer | None = None
        self._due = float("inf")

    def apply(self, core: ServerProtocol, settings: ClientSettings) -> None:
        """Start the layers that IDENTIFY granted, in nsqd's order, with an OK inside each.

        The OKs wait in the TLS layer until its handshake is over.
        """
        if settings.tls and self._context is not None:
            from nsqclient.protocol.layers.tls import TLSLayer

            self._due = time.monotonic() + HANDSHAKE_TIMEOUT
            self._tls = TLSLayer(self._context, server_side=True)
            core.start_layer(self._tls)
            core.respond(OK)
        if settings.snappy:
            from nsqclient.protocol.layers.snappy import SnappyLayer

            core.start_layer(SnappyLayer())
            core.respond(OK)
        if settings.deflate:
            from nsqclient.protocol.layers.deflate import DeflateLayer

            core.start_layer(DeflateLayer(settings.deflate_level))
            core.respond(OK)

    @property
    def is_secure(self) -> bool:
        """Whether the client uses TLS."""
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
        """Return the keys of /stats about TLS."""
        version = suite = ""
        if self._tls is not None and self.is_secure:
            version = (self._tls.tls.version() or "").replace("TLSv", "TLS")
            suite = (self._tls.tls.cipher() or ("",))[0]
        return {
            "tls": self.is_secure,
            "tls_cipher_suite": suite,
            "tls_version": "TLS1.0" if version == "TLS1" else version,
            "tls_negotiated_protocol": "",
            # Always true in nsqd, whose Go has retired the field.
            "tls_negotiated_protocol_is_mutual": self.is_secure,
        }
