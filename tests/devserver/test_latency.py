"""The window of end-to-end latencies, with a clock by hand."""

import pytest

from nsqclient.devserver.latency import LatencyWindow, summary

SECOND = 1_000_000_000


class Clock:
    def __init__(self):
        self.now = 1000 * SECOND

    def __call__(self):
        return self.now


def make(percentiles=(0.5, 0.99, 1.0)):
    clock = Clock()
    return LatencyWindow(percentiles, 10.0, clock), clock


def values(*windows):
    return [each["value"] for each in summary(windows)["percentiles"]]


def test_percentiles_are_within_one_percent():
    window, clock = make()
    for ms in range(1, 101):
        window.insert(clock.now - ms * 1_000_000)
    assert summary([window])["count"] == 100
    assert values(window) == pytest.approx([50e6, 99e6, 100e6], rel=0.01)


@pytest.mark.parametrize("seconds, count", [(4, 2), (6, 1), (11, 0)])
def test_old_latencies_leave_the_window_by_halves(seconds, count):
    """The first message leaves after one to two halves, the second with the next."""
    window, clock = make()
    window.insert(clock.now - 1)
    clock.now += 5 * SECOND
    window.insert(clock.now - 1)
    clock.now += seconds * SECOND
    assert summary([window])["count"] == count


def test_a_timestamp_in_the_future_counts_as_zero():
    """The clock was set back."""
    window, clock = make()
    window.insert(clock.now + SECOND)
    assert values(window) == [0, 0, 0]
