"""How long committed segments are kept: a time, counted from the commit."""

from nsqclient.spark.shards.retention import Retention


def test_a_segment_expires_some_time_after_its_commit():
    """Not after it was written: Spark may be far behind, and its own files are the younger ones."""
    retention = Retention(10.0)
    retention.committed(3, 100.0)
    retention.committed(7, 105.0)
    assert [retention.expired(now) for now in (109.9, 110.0, 114.0, 115.0, 200.0)] == [
        0, 3, 3, 7, 7]


def test_without_a_time_a_segment_expires_with_its_commit():
    retention = Retention(0.0)
    retention.committed(3, 100.0)
    assert retention.expired(100.0) == 3


def test_the_memory_is_bounded_whatever_the_time():
    """A commit that comes soon after the last one expires together with it, a little later."""
    retention = Retention(1000.0)
    for number in range(1, 100_001):
        retention.committed(number, number / 100)
    assert len(retention._commits) <= 1100
    assert 49_700 <= retention.expired(1500.0) <= 50_000
