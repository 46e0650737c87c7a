"""The numbers of a producer."""

from nsqclient.errors import PublishNotSentError, PublishUnknownError
from nsqclient.producer.stats import Statistics


def snapshot(statistics):
    return statistics.snapshot(pending=0, connected=[], known=["a:1"], connections={"a:1": 2})


def test_all_counters_begin_at_zero():
    stats = snapshot(Statistics())
    assert (stats.published, stats.bytes, stats.latency_p50, stats.latency_p99) == (0, 0, 0.0, 0.0)
    assert (stats.connected, stats.known) == ([], ["a:1"])


def test_counts_and_latencies():
    statistics = Statistics()
    for n in range(100):
        statistics.recent.append((2, 10, n / 100))
    statistics.count_failure(PublishNotSentError("no nsqd"), 3)
    statistics.count_failure(PublishUnknownError("lost"))
    statistics.count_retried(4)
    stats = snapshot(statistics)
    assert (stats.published, stats.bytes) == (200, 1000)
    assert (stats.rejected, stats.unknown, stats.retried) == (3, 1, 4)
    assert (stats.latency_p50, stats.latency_p99) == (0.5, 0.99)


def test_the_summary_looks_back_a_limited_way():
    statistics = Statistics()
    for latency in [9.0] * 2000 + [1.0] * 2000:
        statistics.recent.append((1, 1, latency))
    assert snapshot(statistics).latency_p99 == 1.0
