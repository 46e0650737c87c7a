"""How Go reads numbers and JSON, quotes names, and describes a TLS handshake that failed.

nsqd's behaviour and error texts follow from it, so the embedded servers copy it. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_UINT64 = 2**64
_SHORT_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    '"': '\\"', "\\": "\\\\",
}
_DIGITS = 1000  # int() rejects more than 4,300 at once


def parse_uint64(digits: bytes) -> int | None:
    """Read ASCII digits as nsqd does; None when there is anything else.

    An empty string is 0, and a number over 64 bits wraps around: nsqd does not check.
    """
    if not digits:
        return 0
    if not digits.isdigit():
        return None
    value = 0
    for at in range(0, len(digits), _DIGITS):
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


#: OpenSSL's reason for a failed handshake -> Go's.
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
    """Translate OpenSSL's reason for a failed TLS handshake into Go's, where there is one."""
    if reason in _TLS_REASONS:
        return _TLS_REASONS[reason]
    if reason.startswith("certificate verify failed"):
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    _, is_alert, alert = reason.partition(" alert ")
    if is_alert:
        return f"remote error: tls: {_TLS_ALERTS.get(alert, alert)}"
    return f"tls: {reason}"


class InvalidJSON(Exception):
    """Go does not decode it."""


class _Pairs(list[tuple[str, Any]]):
    """The pairs of a JSON object: differs from an array, and keeps repeated keys."""


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def decode_json(
    body: bytes, kinds: Mapping[str, type], limits: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Read an object: keys in any case, the last one counts, null and unknown keys set nothing.

    Args:
        kinds: key -> str, int or bool; no float is taken for an integer.
        limits: integers from which on a number does not fit, per key; else those of 64 bits.

    Raises:
        InvalidJSON: not JSON, not an object, or a value of a wrong type.
    """
    try:
        parsed = json.loads(
            body.decode("utf-8", "replace"),
            object_pairs_hook=_Pairs,
            parse_constant=_reject_constant,
        )
    except (ValueError, RecursionError):
        raise InvalidJSON from None
    if parsed is None:
        return {}
    if not isinstance(parsed, _Pairs):
        raise InvalidJSON
    fields: dict[str, Any] = {}
    for key, value in parsed:
        name = key.casefold()  # as Go does, which also finds an s in U+017F
        kind = kinds.get(name)
        if kind is None or value is None:
            continue
        if type(value) is not kind:  # exact: a bool is no int here
            raise InvalidJSON
        limit = 2**63 if limits is None else limits.get(name, 2**63)
        if isinstance(value, int) and not -limit <= value < limit:
            raise InvalidJSON
        fields[name] = _replace_surrogates(value) if isinstance(value, str) else value
    return fields


def _replace_surrogates(text: str) -> str:
    """Replace half of a surrogate pair by U+FFFD, as Go does: it cannot be encoded again."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode_json(value: object) -> bytes:
    """Return compact JSON."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")
