"""StartPosition: the words on the wire, and what is refused."""

from datetime import datetime, timezone

import pytest

from nsqclient import ConfigError, StartPosition


@pytest.mark.parametrize(("start", "text"), [
    (StartPosition.offset(0), "virtual_queue:0"),
    (StartPosition.offset(2**63 - 1), "virtual_queue:9223372036854775807"),
    (StartPosition.timestamp(1795000000), "timestamp:1795000000"),
    (StartPosition.timestamp(1795000000.9), "timestamp:1795000000"),
    (StartPosition.timestamp(datetime(2026, 1, 1, tzinfo=timezone.utc)), "timestamp:1767225600"),
    (StartPosition.count(0), "msgcount:1"),
    (StartPosition.count(7), "msgcount:8"),
    (StartPosition.end(), "special:-1"),
])
def test_each_position_has_its_words_on_the_wire(start, text):
    assert str(start) == text
    assert StartPosition.parse(text) == start


@pytest.mark.parametrize(("make", "hint"), [
    (lambda: StartPosition.offset(-1), "from 0, not -1"),
    (lambda: StartPosition.offset(2**63), "from 0"),
    (lambda: StartPosition.offset(True), "whole number"),
    (lambda: StartPosition.count("7"), "whole number"),
    (lambda: StartPosition.timestamp(1795000000000), "seconds since the epoch, not milliseconds"),
    (lambda: StartPosition.timestamp(float("nan")), "seconds since the epoch"),
    (lambda: StartPosition.timestamp("yesterday"), "or a datetime"),
    (lambda: StartPosition.timestamp(-1), "seconds since the epoch"),
    (lambda: StartPosition.timestamp(datetime(2026, 1, 1)), "time zone"),
    (lambda: StartPosition("special", 5), "from 0"),
    (lambda: StartPosition("beginning", 0), r"offset\(\)"),
])
def test_what_is_no_position_is_refused(make, hint):
    """nsqd would refuse it too, after the connection was made."""
    with pytest.raises(ConfigError, match=hint):
        make()


@pytest.mark.parametrize("text", [
    "", "virtual_queue", "virtual_queue:", "virtual_queue:x", "virtual_queue:-2", "special:0",
    "offset:1", "msgcount:" + "9" * 5000, "timestamp:1:2", "msgcount:-1",
])
def test_other_words_are_refused(text):
    with pytest.raises(ConfigError, match="start position"):
        StartPosition.parse(text)
