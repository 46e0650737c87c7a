"""Durations as Go prints them."""

import pytest

from nsqclient.runtime.deadline import parse_duration
from nsqclient.runtime.go_duration import format_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1, "1s"),
        (2.5, "2.5s"),
        (59.999, "59.999s"),
        (60, "1m0s"),
        (90.5, "1m30.5s"),
        (3600, "1h0m0s"),
        (5400, "1h30m0s"),
        (360000, "100h0m0s"),
        (0.25, "250ms"),
        (0.0015, "1.5ms"),
        (0.000025, "25\u00b5s"),
        (0.0000000005, "0.5ns"),
        (-1.5, "-1.5s"),
    ],
)
def test_what_go_prints(seconds, text):
    """Hours, minutes and seconds from a second on, one small unit below."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize("text", ["1h30m0s", "250ms", "2m0.5s", "15s"])
def test_what_is_read_is_printed(text):
    """Reading a duration and printing it again changes nothing."""
    assert format_duration(parse_duration(text)) == text
