"""TLS as a byte layer: Python's ssl over two buffers in memory, without a socket.

Source: client guide, "Encryption/Compression".
"""

from __future__ import annotations

import contextlib
import ssl

from nsqclient.errors import RemoteProtocolError, TLSError
from nsqclient.hints import hint_on

#: More than one TLS record, which is what one read returns at most.
_READ_SIZE = 64 * 1024


class TLSLayer:
    """One TLS connection, the client's end or the server's.

    The constructor begins the handshake, so that ``wire_output()`` has the client's greeting, and
    ``decode`` continues it. Bytes encoded during the handshake are sent after it.

    Args:
        server_name: the name in the server's certificate; None for a server.

    Raises:
        TLSError: ``server_name`` is invalid.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_name: str | None = None,
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        #: True once the handshake is complete.
        self.is_established: bool = False
        self._has_heard = False  # data arrived, so the peer accepted the handshake
        self._waiting: list[bytes] = []  # encoded during the handshake
        try:
            #: The connection's version, cipher and certificates.
            self.tls: ssl.SSLObject = context.wrap_bio(
                self._incoming, self._outgoing, server_side, server_name
            )
        except (ValueError, TypeError, ssl.SSLError) as exc:
            raise TLSError(f"cannot begin with server name {server_name!r}: {exc}") from exc
        self._shake_hands()

    def decode(self, data: bytes) -> bytes:
        """Decrypt. If valid bytes precede an invalid record, the next call raises.

        Raises:
            TLSError: the handshake failed. With TLS 1.3, the peer can refuse it instead of sending
                its first data.
            RemoteProtocolError: the bytes were altered in transit, or are not TLS.
        """
        self._incoming.write(data)
        if not self.is_established and not self._shake_hands():
            return b""
        pieces: list[bytes] = []
        try:
            while piece := self.tls.read(_READ_SIZE):
                pieces.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # close_notify: the end of the stream itself follows
        except ssl.SSLError as exc:
            if not (self._has_heard or pieces):
                raise _tls_error(exc) from exc
            if not pieces:
                raise RemoteProtocolError(f"the TLS stream is broken: {_reason(exc)}") from exc
        self._has_heard = self._has_heard or bool(pieces)
        return b"".join(pieces)

    def encode(self, data: bytes) -> bytes:
        """Encrypt; data is queued during the handshake. After a TLS error it is dropped."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # decode reports it
                self.tls.write(data)
        else:
            self._waiting.append(data)
        return self._outgoing.read()

    def has_output(self) -> bool:
        return self._outgoing.pending > 0

    def wire_output(self) -> bytes:
        return self._outgoing.read()

    def _shake_hands(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as exc:
            raise _tls_error(exc) from exc
        self.is_established = True
        for data in self._waiting:
            self.tls.write(data)
        self._waiting = []
        return True


def _tls_error(exc: ssl.SSLError) -> TLSError:
    reason = _reason(exc)
    return TLSError(reason, hint=hint_on("TLS", reason))


def _reason(exc: ssl.SSLError) -> str:
    """Return OpenSSL's text of the error, without file names and numbers."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {exc.verify_message}"
    reason: str | None = exc.reason  # None if OpenSSL gave no code
    return str(exc) if reason is None else reason.lower().replace("_", " ")
