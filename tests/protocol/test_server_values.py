"""How the server reads numbers and writes names."""

from __future__ import annotations

import pytest

from nsqclient.protocol.server_values import as_int64, parse_milliseconds, parse_uint64, quote


@pytest.mark.parametrize(
    "digits, value",
    [
        (b"", 0),
        (b"0", 0),
        (b"007", 7),
        (b"18446744073709551615", 2**64 - 1),
        (b"18446744073709551616", 0),
        (b"99999999999999999999999", 200376420520689663),
        pytest.param(b"0" * 5000 + b"7", 7, id="zeros"),
        pytest.param(b"9" * 5000, 2**64 - 1, id="nines"),  # -1 + 10^5000, and 2^64 divides that
        (b"-1", None),
        (b"+1", None),
        (b" 1", None),
        (b"1.0", None),
        ("²".encode(), None),
    ],
)
def test_numbers(digits, value):
    """Only digits are a number, nothing is 0, and what does not fit wraps around."""
    assert parse_uint64(digits) == value


def test_signed():
    """The upper half of the unsigned numbers is negative when read as signed."""
    assert [as_int64(n) for n in (0, 2**63 - 1, 2**63, 2**64 - 1)] == [0, 2**63 - 1, -(2**63), -1]


def test_milliseconds_overflow_as_nanoseconds():
    """A delay overflows where nsqd multiplies it to nanoseconds, not before."""
    assert parse_milliseconds(b"1500") == (1500, 1500)
    assert parse_milliseconds(b"9223372036855") == (9223372036855, -9223372036855)
    assert parse_milliseconds(b"18446744073710") == (18446744073710, 0)
    assert parse_milliseconds(b"x") is None


@pytest.mark.parametrize(
    "name, quoted",
    [
        (b"", b'""'),
        (b'a"b\\', b'"a\\"b\\\\"'),
        (b"\x01\xff", b'"\\x01\\xff"'),
        (b"\a\b\f\n\r\t\v", b'"\\a\\b\\f\\n\\r\\t\\v"'),
        (b"\x7f", b'"\\x7f"'),
        ("é€".encode(), '"é€"'.encode()),
        ("\u200b".encode(), b'"\\u200b"'),
        ("\U000e0001".encode(), b'"\\U000e0001"'),
        (b"\xe2\x82", b'"\\xe2\\x82"'),
        ("\u0085".encode(), b'"\\u0085"'),
    ],
)
def test_quote(name, quoted):
    """Names are quoted as Go's %q quotes them."""
    assert quote(name) == quoted
