"""How nsqd reads numbers and writes names: the habits of Go that its error texts show.

Pure helpers of the server side; clients must not need them.
"""

from __future__ import annotations

_UINT64 = 2**64
_SHORT_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    '"': '\\"', "\\": "\\\\",
}


_DIGITS = 1000


def parse_uint64(digits: bytes) -> int | None:
    """Read ASCII digits as nsqd does: None when there is anything else, modulo 2^64.

    An empty string is 0, and what does not fit wraps around, because nsqd does not check.
    """
    if not digits:
        return 0
    if not digits.isdigit():
        return None
    value = 0
    for at in range(0, len(digits), _DIGITS):  # int() refuses thousands at once
        piece = digits[at:at + _DIGITS]
        value = (value * 10 ** len(piece) + int(piece)) % _UINT64
    return value


def as_int64(value: int) -> int:
    """Read an unsigned 64-bit number as a signed one."""
    return value - _UINT64 if value >= _UINT64 // 2 else value


def parse_milliseconds(digits: bytes) -> tuple[int, int] | None:
    """Read a delay: (the number as sent, the milliseconds nsqd makes of it); None if no number.

    nsqd multiplies to nanoseconds in 64 bits, so a huge number may come out negative or small.
    """
    number = parse_uint64(digits)
    if number is None:
        return None
    nanoseconds = as_int64(number * 1_000_000 % _UINT64)
    # floor, so that less than a millisecond under zero still counts as negative
    return number, nanoseconds // 1_000_000


def quote(name: bytes) -> bytes:
    """Write ``name`` as Go's %q does: in double quotes, with what cannot be printed escaped."""
    parts = []
    for char in name.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if char in _SHORT_ESCAPES:
            parts.append(_SHORT_ESCAPES[char])
        elif 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
            parts.append(f"\\x{code - 0xDC00:02x}")
        elif char.isprintable():
            parts.append(char)
        elif code < 0x20 or code == 0x7F:
            parts.append(f"\\x{code:02x}")
        else:
            parts.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return ('"' + "".join(parts) + '"').encode()


#: OpenSSL's words for a failed handshake -> Go's.
_TLS_REASONS = {
    "wrong version number": "tls: first record does not look like a TLS handshake",
    "http request": "tls: first record does not look like a TLS handshake",
    "packet length too long": "tls: first record does not look like a TLS handshake",
    "record layer failure": "tls: first record does not look like a TLS handshake",
    "unsupported protocol": "tls: client offered only unsupported versions",
    "no shared cipher": "tls: no cipher suite supported by both client and server",
    "peer did not return a certificate": "tls: client didn't provide a certificate",
}
_TLS_ALERTS = {
    "unknown ca": "unknown certificate authority",
    "certificate unknown": "unknown certificate",
}


def tls_reason(reason: str) -> str:
    """Say in Go's words why a TLS handshake failed, where OpenSSL's have an equal."""
    if reason in _TLS_REASONS:
        return _TLS_REASONS[reason]
    if reason.startswith("certificate verify failed"):
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    _, is_alert, alert = reason.partition(" alert ")
    if is_alert:
        return f"remote error: tls: {_TLS_ALERTS.get(alert, alert)}"
    return f"tls: {reason}"
