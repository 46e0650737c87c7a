"""The histogram: what falls where."""

from __future__ import annotations

import pytest

from nsqclient.runtime.histogram import Histogram
from tests.support.processes import start_threads


def test_a_value_counts_in_the_bucket_whose_bound_it_does_not_pass():
    """A bound belongs to its bucket; what passes all bounds is in the last one."""
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        histogram.observe(value)
    snapshot = histogram.snapshot()
    assert (snapshot.counts, snapshot.cumulative()) == ((2, 2, 1), [2, 4, 5])
    assert (snapshot.count, snapshot.sum) == (5, 104.0)


@pytest.mark.parametrize(("part", "bound"), [(0.0, 1.0), (0.5, 1.0), (0.6, 2.0), (1.0, 2.0)])
def test_quantile_is_the_bound_of_a_bucket(part, bound):
    """At most one bucket too high; beyond all bounds it is the last one."""
    histogram = Histogram([1.0, 2.0, 3.0])
    assert histogram.snapshot().quantile(part) == 0.0
    for value in (0.5, 0.6, 1.5, 1.6):
        histogram.observe(value)
    assert histogram.snapshot().quantile(part) == bound
    histogram = Histogram([1.0])
    histogram.observe(5.0)
    assert histogram.snapshot().quantile(0.99) == 1.0


def test_since_is_what_came_between():
    """Two snapshots have a difference."""
    histogram = Histogram([1.0])
    histogram.observe(0.5)
    before = histogram.snapshot()
    histogram.observe(0.5)
    histogram.observe(3.0)
    since = histogram.snapshot().since(before)
    assert (since.counts, since.sum) == ((1, 1), 3.5)


def test_threads_lose_no_value():
    """Every value counts."""
    histogram = Histogram()
    for thread in start_threads(4, lambda: [histogram.observe(0.001) for _ in range(2000)]):
        thread.join()
    assert histogram.snapshot().count == 8000
