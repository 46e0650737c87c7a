"""IDENTIFY as the server reads and answers it."""

import json

import pytest

from nsqclient.devserver.protocol.commands import ClientSettings, CommandError, ServerLimits
from nsqclient.devserver.protocol.identify import decode, negotiate

LIMITS = ServerLimits()
FRESH = ClientSettings(30_000, 60_000, 16_384, 250)


def settle(fields, limits=LIMITS, current=FRESH):
    return negotiate(decode(json.dumps(fields).encode()), current, limits)


def test_zero_keeps_and_minus_one_turns_off():
    """0 keeps what an earlier IDENTIFY set; -1 is off, and no buffer means no buffer timeout."""
    first = settle({"heartbeat_interval": 5000, "output_buffer_timeout": 100})
    second = settle({}, current=first)
    assert (second.heartbeat_interval, second.output_buffer_timeout) == (5000, 100)
    off = settle({"heartbeat_interval": -1, "output_buffer_size": -1}, current=first)
    assert (off.heartbeat_interval, off.output_buffer_size, off.output_buffer_timeout) == (0, 1, 0)


def test_both_compressions_are_an_error():
    """Only where both would be granted."""
    both = {"feature_negotiation": True, "deflate": True, "snappy": True}
    assert settle(both, ServerLimits(deflate=True)).deflate
    with pytest.raises(CommandError, match="E_IDENTIFY_FAILED cannot enable both deflate and"):
        settle(both, ServerLimits(deflate=True, snappy=True))


@pytest.mark.parametrize("asked, level", [(0, 6), (3, 3), (9, 6)])
def test_deflate_level_is_limited_by_the_server(asked, level):
    fields = {"feature_negotiation": True, "deflate": True, "deflate_level": asked}
    assert settle(fields, ServerLimits(deflate=True)).deflate_level == level
