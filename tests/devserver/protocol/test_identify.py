"""IDENTIFY as the server reads and answers it."""

from __future__ import annotations

import json

import pytest

from nsqclient.devserver.protocol.commands import ClientSettings, CommandError, ServerLimits
from nsqclient.devserver.protocol.identify import decode, negotiate, response

LIMITS = ServerLimits()
FRESH = ClientSettings(30_000, 60_000, 16_384, 250)


def settle(fields, limits=LIMITS, current=FRESH):
    return negotiate(decode(json.dumps(fields).encode()), current, limits)


@pytest.mark.parametrize(
    "body",
    [
        b"{nope", b"[]", b"3", b'"x"', b"{} {}", b"\xff\xfe", b"NaN", b'{"client_id":NaN}',
        b'{"heartbeat_interval":"x"}', b'{"heartbeat_interval":1000.5}',
        b'{"heartbeat_interval":1e3}', b'{"heartbeat_interval":true}',
        b'{"client_id":1}', b'{"deflate":1}', b'{"snappy":{}}', b"[" * 100_000,
    ],
)
def test_body_that_go_does_not_decode_is_an_error(body):
    """All such bodies get the same error."""
    with pytest.raises(CommandError) as caught:
        decode(body)
    assert (caught.value.code, caught.value.text) == (
        "E_BAD_BODY", b"IDENTIFY failed to decode JSON body"
    )


def test_null_and_unknown_keys_set_nothing():
    """A body that is null sets nothing, too."""
    assert decode(b"null") == {}
    assert decode(b'{"client_id":"b","hostname":null,"short_id":[1]}') == {"client_id": "b"}
    assert decode(b'{"client_id":"\xff"}') == {"client_id": "\ufffd"}


@pytest.mark.parametrize(
    "field, text, good, bad",
    [
        ("heartbeat_interval", "heartbeat interval", [-1, 0, 1000, 60000], [-2, 999, 60001]),
        ("output_buffer_size", "output buffer size", [-1, 0, 64, 65536], [-2, 63, 65537]),
        ("output_buffer_timeout", "output buffer timeout", [-1, 0, 25, 30000], [-2, 24, 30001]),
        ("sample_rate", "sample rate", [0, 1, 99], [-1, 100]),
        ("msg_timeout", "msg timeout", [0, 1000, 900000], [-1, 999, 900001]),
    ],
)
def test_value_out_of_range_is_an_error(field, text, good, bad):
    """Each setting has nsqd's range and nsqd's error text."""
    for value in good:
        settle({field: value})
    for value in bad:
        with pytest.raises(CommandError, match=rf"IDENTIFY {text} \({value}\) is invalid"):
            settle({field: value})


def test_zero_keeps_and_minus_one_turns_off():
    """0 keeps what an earlier IDENTIFY set; -1 is off, and no buffer means no buffer timeout."""
    first = settle({"heartbeat_interval": 5000, "output_buffer_timeout": 100})
    second = settle({}, current=first)
    assert (second.heartbeat_interval, second.output_buffer_timeout) == (5000, 100)
    off = settle({"heartbeat_interval": -1, "output_buffer_size": -1}, current=first)
    assert (off.heartbeat_interval, off.output_buffer_size, off.output_buffer_timeout) == (0, 1, 0)


def test_response_without_feature_negotiation_is_ok():
    """Such a client gets no JSON, and no feature is granted."""
    settings = settle({"snappy": True, "tls_v1": True}, ServerLimits(snappy=True, tls=True))
    assert response(settings, LIMITS) == b"OK"
    assert not settings.snappy and not settings.tls


def test_response_is_nsqds_json_byte_for_byte():
    """The JSON has the released nsqd's keys in its order, without spaces."""
    settings = settle({"feature_negotiation": True, "deflate": True, "msg_timeout": 2000})
    assert response(settings, LIMITS) == (
        b'{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":2000,'
        b'"tls_v1":false,"deflate":false,"deflate_level":6,"max_deflate_level":6,"snappy":false,'
        b'"sample_rate":0,"auth_required":false,"output_buffer_size":16384,'
        b'"output_buffer_timeout":250}'
    )


def test_both_compressions_are_an_error():
    """Only where both would be granted."""
    both = {"feature_negotiation": True, "deflate": True, "snappy": True}
    assert settle(both, ServerLimits(deflate=True)).deflate
    with pytest.raises(CommandError, match="E_IDENTIFY_FAILED cannot enable both deflate and"):
        settle(both, ServerLimits(deflate=True, snappy=True))


@pytest.mark.parametrize("asked, level", [(0, 6), (3, 3), (9, 6)])
def test_deflate_level_is_limited_by_the_server(asked, level):
    """The level asked for is granted up to the server's limit; 6 when none is asked."""
    fields = {"feature_negotiation": True, "deflate": True, "deflate_level": asked}
    assert settle(fields, ServerLimits(deflate=True)).deflate_level == level
