"""Durations and deadlines."""

import threading
from datetime import timedelta

import pytest

from nsqclient.errors import ConfigError
from nsqclient.runtime import deadline as module
from nsqclient.runtime.deadline import (
    Deadline, format_duration, parse_duration, to_seconds,
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves: set ``clock.now``."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(module.time, "monotonic", lambda: Clock.now)
    return Clock


@pytest.mark.parametrize("value, seconds", [
    (0, 0.0), (2, 2.0), (0.25, 0.25), (timedelta(minutes=1, milliseconds=5), 60.005),
])
def test_numbers_and_timedeltas_become_seconds(value, seconds):
    result = to_seconds(value, "timeout")
    assert (result, type(result)) == (seconds, float)


@pytest.mark.parametrize("value, why", [
    *((value, "a number of seconds or a timedelta") for value in (None, "1", True, [1])),
    *((value, "finite") for value in (float("nan"), float("inf"), 10**400)),
    *((value, "must be at most 1e[+]15 s") for value in (1.1e15, -1e306, 10**300)),
    *((value, "must be at least 0 s") for value in (-0.001, timedelta(seconds=-1))),
])
def test_what_is_no_duration_is_refused(value, why):
    """Nor is a duration that no clock can hold: its sum with the time would be no number."""
    with pytest.raises(ConfigError, match=f"^timeout .*{why}"):
        to_seconds(value, "timeout")


def test_the_shortest_and_the_longest_duration_are_accepted():
    assert to_seconds(1e15, "timeout") == 1e15
    assert to_seconds(-1, "timeout", minimum=-1.0) == -1.0


@pytest.mark.parametrize("text, seconds", [
    ("0", 0.0), ("-0", 0.0), ("+0", 0.0), ("0s", 0.0), ("300ms", 0.3), ("1.5s", 1.5),
    ("1h30m", 5400.0), ("2m3.5s", 123.5), ("-1s", -1.0), ("+1s", 1.0), (".5s", 0.5),
    ("1.s", 1.0), ("100us", 1e-4), ("100\u00b5s", 1e-4), ("100\u03bcs", 1e-4), ("5ns", 5e-9),
    ("1m1m", 120.0),
])
def test_go_durations_are_read(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [
    "", "-", "1", "1.5", "s", ".s", "1 s", " 1s", "1s ", "1x", "--1s", "1e3s", "1s1", "1..5s",
    "inf", "nan", "1S", "\u0661s", "1d",
    pytest.param("9" * 100_000, id="digits"), pytest.param("1." + "9" * 100_000, id="fraction"),
])
def test_other_text_is_no_go_duration(text):
    with pytest.raises(ConfigError, match="is not a duration: write it as in 300ms"):
        parse_duration(text)


def test_a_deadline_counts_down_and_expires(clock):
    deadline = Deadline(5.0)
    assert (deadline.remaining(), deadline.expired()) == (5.0, False)
    clock.now += 4.5
    assert (deadline.remaining(), deadline.expired()) == (0.5, False)
    assert (deadline.at_most(1.0), deadline.at_most(0.25)) == (0.5, 0.25)
    clock.now += 0.5
    assert (deadline.remaining(), deadline.expired(), deadline.at_most(1.0)) == (0.0, True, 0.0)
    clock.now += 100
    assert deadline.remaining() == 0.0
    assert deadline.timeout == 5.0


def test_a_deadline_without_limit_never_expires(clock):
    deadline = Deadline(None)
    clock.now += 1e9
    assert (deadline.remaining(), deadline.expired(), deadline.at_most(3.0)) == (None, False, 3.0)
    assert repr(deadline) == "<Deadline None s, None s left>"


def test_longer_than_the_system_can_wait():
    assert Deadline(timedelta.max.total_seconds()).remaining() is None
    assert Deadline(threading.TIMEOUT_MAX).remaining() is not None


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0s"), (1, "1s"), (2.5, "2.5s"), (59.999, "59.999s"), (60, "1m0s"), (90.5, "1m30.5s"),
    (5400, "1h30m0s"), (360000, "100h0m0s"), (0.25, "250ms"), (0.0015, "1.5ms"),
    (0.000025, "25\u00b5s"), (0.0000000005, "0.5ns"), (-1.5, "-1.5s"),
])
def test_a_duration_is_written_as_go_does(seconds, text):
    assert format_duration(seconds) == text
