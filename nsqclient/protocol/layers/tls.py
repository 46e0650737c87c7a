"""TLS as a byte layer: Python's own TLS over two buffers in memory, without a socket.

Source: client guide, "Encryption/Compression".
"""

from __future__ import annotations

import contextlib
import ssl

from nsqclient.errors import RemoteProtocolError, TLSError

#: More than one TLS record, which is what one read returns at most.
_READ_SIZE = 64 * 1024


class TLSLayer:
    """One TLS connection, the client's end or the server's.

    Life: the handshake begins when it is made (a client's greeting is in ``wire_output()`` at
    once) and goes on with every ``decode``. What is encoded before it is over, goes out after
    it.

    Args:
        context: certificates and rules.
        server_side: whether this is the server's end.
        server_name: the name that the server's certificate must be for; None for a server.

    Raises:
        TLSError: the server's name is no name.
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
        #: Whether the handshake is over.
        self.is_established: bool = False
        self._has_heard = False  # something came through, so the peer is content with us
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
        """Decrypt. A fault behind decrypted bytes is raised by the next call.

        Raises:
            TLSError: the handshake failed, or the peer refused it afterwards. TLS 1.3 reports a
                missing certificate in place of the first data.
            RemoteProtocolError: later, the bytes were changed on their way, or are not TLS.
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
                raise TLSError(_reason(exc)) from exc
            if not pieces:
                raise RemoteProtocolError(f"the TLS stream is broken: {_reason(exc)}") from exc
        self._has_heard = self._has_heard or bool(pieces)
        return b"".join(pieces)

    def encode(self, data: bytes) -> bytes:
        """Encrypt; during the handshake, keep for later. After a fault nothing comes out."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # decode reports it
                self.tls.write(data)
        else:
            self._waiting.append(data)
        return self._outgoing.read()

    def has_output(self) -> bool:
        """Return whether a message of TLS itself, or what waited for the handshake, is ready."""
        return self._outgoing.pending > 0

    def wire_output(self) -> bytes:
        """Return these messages."""
        return self._outgoing.read()

    def _shake_hands(self) -> bool:
        """Go on with the handshake; True when it is over."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as exc:
            raise TLSError(_reason(exc)) from exc
        self.is_established = True
        for data in self._waiting:
            self.tls.write(data)
        self._waiting = []
        return True


def _reason(exc: ssl.SSLError) -> str:
    """Say what went wrong in the words of OpenSSL, without its file names and numbers."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {exc.verify_message}"
    reason: str | None = exc.reason  # missing where OpenSSL gave no code
    return str(exc) if reason is None else reason.lower().replace("_", " ")
