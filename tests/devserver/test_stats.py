"""nsqd's /stats by value: the order of keys."""

import pytest

from nsqclient.devserver import stats


def build(topics=None, producers=None, include_memory=False):
    """The answer for these."""
    numbers = {"topics": topics, "producers": producers}
    return stats.build(numbers, "OK", 1000.5, include_memory)


def test_keys_are_in_nsqds_order():
    """Memory precedes the producers, and only when asked for."""
    assert list(build(include_memory=True)) == [
        "version", "health", "start_time", "topics", "memory", "producers"
    ]
    assert "memory" not in build()


@pytest.mark.parametrize("producers", [None, []])
def test_no_producers_are_null(producers):
    """null where no client has published."""
    assert build(producers=producers)["producers"] is None
