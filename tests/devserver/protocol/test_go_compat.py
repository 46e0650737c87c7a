"""Numbers, names and JSON as nsqd reads and writes them."""

import pytest

from nsqclient.devserver.protocol.go_compat import (
    InvalidJSON, decode_json, encode_json, parse_number, quote,
)


@pytest.mark.parametrize("digits, value", [
    (b"0", 0), (b"007", 7), (b"18446744073709551615", 2**64 - 1), (b"9" * 21, None),
    (b"", None), (b"-1", None), (b"+1", None), (b" 1", None), (b"1.0", None),
    ("\u00b2".encode(), None),
])
def test_only_digits_are_a_number(digits, value):
    """Nothing else is read, and not more of them than a number of 64 bits has."""
    assert parse_number(digits) == value


@pytest.mark.parametrize("name, quoted", [
    (b"", b'""'), (b"a$b", b'"a$b"'), (b'a"b', b'"a\\"b"'),
    ("\u00e9".encode(), '"\u00e9"'.encode()),
    (b"\n\xff", b'"\\n\\\\xff"'),
])
def test_names_are_quoted(name, quoted):
    assert quote(name) == quoted


KINDS = {"name": str, "port": int, "tls": bool}


@pytest.mark.parametrize("body, fields", [
    (b'{"name": "a", "port": 1, "tls": true}', {"name": "a", "port": 1, "tls": True}),
    (b'{"port": null, "name": ""}', {"name": ""}),
    (b'{"other": [1.5, {}]}', {}),
    (b'{"name": "\xff"}', {"name": "\ufffd"}),
    (b"null", {}), (b"{}", {}),
])
def test_json_has_the_types_of_the_keys(body, fields):
    assert decode_json(body, KINDS) == fields


@pytest.mark.parametrize("body", [
    b"", b"[]", b"{", b'{"port": "1"}', b'{"port": 1.0}', b'{"port": true}',
    b'{"name": 1}', b'{"tls": 1}', b'{"port": NaN}', b"[" * 100_000,
])
def test_other_json_is_an_error(body):
    with pytest.raises(InvalidJSON):
        decode_json(body, KINDS)


def test_json_is_compact():
    """Half of a surrogate pair, which cannot be encoded, does no harm."""
    assert encode_json({"a": [1, "\u00e9\ud800"]}) == '{"a":[1,"\u00e9?"]}'.encode()
