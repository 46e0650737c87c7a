"""JSON as Go reads it into a structure."""

from __future__ import annotations

import pytest

from nsqclient.protocol.go_json import NotDecodable, decode

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
def test_what_it_reads(body, fields):
    """Keys in any case, the last one counts, null and unknown keys set nothing."""
    assert decode(body, KINDS) == fields


@pytest.mark.parametrize("body", [
    b"", b"[]", b"1", b'"x"', b"{", b'{"port": "1"}', b'{"port": 1.0}', b'{"port": true}',
    b'{"name": 1}', b'{"tls": 1}', b'{"port": 9223372036854775808}', b'{"port": NaN}',
    b'{"other": NaN}', b'{"rate": 128}', b'{"rate": -129}', b'{"port": "x", "port": 1}',
    b"[" * 100_000,
])
def test_what_it_refuses(body):
    """Go would not decode it: no JSON, another type, a number that does not fit."""
    with pytest.raises(NotDecodable):
        decode(body, KINDS, {"rate": 128})


@pytest.mark.parametrize("sent, read", [
    (rb"a\ud800b", "a\ufffdb"), (rb"\udc00", "\ufffd"), (rb"\ud83d\ude00", "\U0001f600"),
])
def test_half_of_a_surrogate_pair_is_replaced(sent, read):
    """As Go does; it could not be handed on in an answer of ours."""
    assert decode(b'{"hostname": "%s"}' % sent, {"hostname": str}) == {"hostname": read}
