"""Numbers, JSON and IDENTIFY as nsqd reads and writes them; the rest is in the error table."""

import pytest

from nsqclient.devserver.protocol.commands import ClientSettings, ServerLimits
from nsqclient.devserver.protocol.commands import (
    decode_identify, encode_json, negotiate, parse_number,
)

FRESH = ClientSettings(30_000, 60_000, 16_384, 250)


def settle(current=FRESH, **fields):
    return negotiate(decode_identify(encode_json(fields)), current, ServerLimits())


def test_zero_keeps_and_minus_one_turns_off():
    first = settle(heartbeat_interval=5000, output_buffer_timeout=100)
    second = settle(first)
    assert (second.heartbeat_interval, second.output_buffer_timeout) == (5000, 100)
    off = settle(first, heartbeat_interval=-1, output_buffer_size=-1)
    assert (off.heartbeat_interval, off.output_buffer_size, off.output_buffer_timeout) == (0, 1, 0)


@pytest.mark.parametrize("digits, value", [
    (b"0", 0), (b"007", 7), (b"18446744073709551615", 2**64 - 1), (b"9" * 21, None),
    (b"", None), (b"-1", None), (b"+1", None), (b" 1", None), (b"1.0", None),
    ("\u00b2".encode(), None),
])
def test_only_digits_are_a_number(digits, value):
    """Nothing else is read, and not more of them than a number of 64 bits has."""
    assert parse_number(digits) == value


def test_json_is_compact():
    """Half of a surrogate pair, which cannot be encoded, does no harm."""
    assert encode_json({"a": [1, "\u00e9\ud800"]}) == '{"a":[1,"\u00e9?"]}'.encode()
