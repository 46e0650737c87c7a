"""Numbers, names and JSON as Go reads and writes them."""

from __future__ import annotations

import pytest

from nsqclient.devserver.protocol.go_compat import (
    InvalidJSON,
    as_int64,
    decode_json,
    parse_milliseconds,
    parse_uint64,
    quote,
)


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
def test_digits_are_read_modulo_64_bits(digits, value):
    """Only digits are a number, nothing is 0, and larger numbers wrap around."""
    assert parse_uint64(digits) == value


def test_upper_half_of_64_bits_is_negative():
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
def test_names_are_quoted_as_in_go(name, quoted):
    """Names are quoted as Go's %q quotes them."""
    assert quote(name) == quoted


KINDS = {"name": str, "port": int, "tls": bool, "rate": int}


@pytest.mark.parametrize("body, fields", [
    (b'{"name": "a", "port": 1, "tls": true}', {"name": "a", "port": 1, "tls": True}),
    (b'{"NAME": "a", "Port": -1}', {"name": "a", "port": -1}),
    (b'{"port": 1, "PORT": 2}', {"port": 2}),
    (b'{"port": null, "name": ""}', {"name": ""}),
    (b'{"port": 1, "port": null}', {"port": 1}),
    (b'{"other": [1.5, {}]}', {}),
    ('{"port": 9223372036854775807}'.encode(), {"port": 2**63 - 1}),
    (b'{"name": "\xff"}', {"name": "\ufffd"}),
    (b"null", {}), (b"{}", {}),
])
def test_json_keys_have_any_case_and_the_last_counts(body, fields):
    """null and unknown keys set nothing."""
    assert decode_json(body, KINDS) == fields


@pytest.mark.parametrize("body", [
    b"", b"[]", b"1", b'"x"', b"{", b'{"port": "1"}', b'{"port": 1.0}', b'{"port": true}',
    b'{"name": 1}', b'{"tls": 1}', b'{"port": 9223372036854775808}', b'{"port": NaN}',
    b'{"other": NaN}', b'{"rate": 128}', b'{"rate": -129}', b'{"port": "x", "port": 1}',
    b"[" * 100_000,
])
def test_json_that_go_does_not_decode_is_an_error(body):
    """No JSON, another type, a number that does not fit."""
    with pytest.raises(InvalidJSON):
        decode_json(body, KINDS, {"rate": 128})


@pytest.mark.parametrize("sent, read", [
    (rb"a\ud800b", "a\ufffdb"), (rb"\udc00", "\ufffd"), (rb"\ud83d\ude00", "\U0001f600"),
])
def test_half_of_a_surrogate_pair_is_replaced(sent, read):
    """As Go does; it could not be encoded again in a response."""
    assert decode_json(b'{"hostname": "%s"}' % sent, {"hostname": str}) == {"hostname": read}
