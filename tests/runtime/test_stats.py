"""The histogram: what falls where."""

from nsqclient.runtime.stats import Histogram
from tests.support.processes import start_threads


def test_a_value_counts_in_the_bucket_whose_bound_it_does_not_pass():
    histogram = Histogram([1.0, 2.0])
    histogram.observe(0.5, 1.0, 1.5, 2.0)
    histogram.observe(99.0)
    snapshot = histogram.snapshot()
    assert (snapshot.counts, snapshot.cumulative()) == ((2, 2, 1), [2, 4, 5])
    assert (snapshot.count, snapshot.sum) == (5, 104.0)


def test_threads_lose_no_value():
    histogram = Histogram()
    for thread in start_threads(4, lambda: [histogram.observe(0.001) for _ in range(2000)]):
        thread.join()
    assert histogram.snapshot().count == 8000
