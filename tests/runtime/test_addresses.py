"""Addresses and numbers as text, by value."""

import pytest

from nsqclient.errors import ConfigError
from nsqclient.runtime.addresses import format_address, parse_address, parse_uint


@pytest.mark.parametrize("address, host, port", [
    ("nsqd:4150", "nsqd", 4150), ("127.0.0.1:1", "127.0.0.1", 1), ("[::1]:65535", "::1", 65535),
    ("a.b-c:4150", "a.b-c", 4150), ("[fe80::1%eth0]:4150", "fe80::1%eth0", 4150),
])
def test_an_address_is_split_and_joined(address, host, port):
    assert parse_address(address) == (host, port)
    assert format_address(host, port) == address


@pytest.mark.parametrize("address, why", [
    ("nsqd", "no port"), (":4150", "no port"), ("nsqd:", "from 1 to 65535"),
    ("nsqd:0", "from 1 to 65535"), ("nsqd:65536", "from 1 to"), ("nsqd:-1", "from 1 to 65535"),
    ("::1:4150", "[host]:port"), ("[::1]", "[host]:port"), ("[]:4150", "no host"),
    ("http://nsqd:4151", "URL"), (b"nsqd:4150", "must be a string"), (None, "must be a string"),
])
def test_an_address_of_another_form_is_refused_with_what_it_should_be(address, why):
    with pytest.raises(ConfigError) as caught:
        parse_address(address, "nsqd_tcp_address")
    assert why in str(caught.value)
    assert str(caught.value).startswith("nsqd_tcp_address ")


@pytest.mark.parametrize("text, number", [
    ("0", 0), ("042", 42), ("65535", 65535), ("123456", None), ("", None), ("-1", None),
    ("+1", None), ("1 ", None), ("1_0", None), ("\u0661", None), ("\u00b2", None),
    ("9" * 5000, None),
])
def test_a_number_is_ascii_digits_of_limited_length(text, number):
    """Everything else is None, whatever int() makes of it."""
    assert parse_uint(text, 5) == number
