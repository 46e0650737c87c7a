"""Tests of what all pipelines read with, and of the decisions of the compaction."""

from __future__ import annotations

import pytest

from nsqclient import ConfigError
from nsqclient.spark.pipelines.compacting import by_partition, is_over, relative
from nsqclient.spark.pipelines.sources import local_path, source_options, trigger

#: 2026-01-31T12:30:00Z
NOON = 1769862600.0


def test_the_spool_stands_beside_the_checkpoint():
    """Unless another folder is given."""
    found = source_options("t", "c", "/data/cp/", {"nsqd": ["a:1", "b:2"], "tls_v1": True})
    assert found == {"topic": "t", "channel": "c", "nsqd": "a:1,b:2", "tls_v1": "true",
                     "spoolDir": "/data/cp/nsq-spool"}
    assert source_options("t", "c", "hdfs://x/cp", {"nsqd": "a:1", "spooldir": "/s"}
                          )["spooldir"] == "/s"


@pytest.mark.parametrize("checkpoint, options, words", [
    ("", {"nsqd": "a:1"}, "give a checkpoint"),
    ("s3://bucket/cp", {"nsqd": "a:1"}, "give spoolDir"),
    ("/cp", {}, "give nsqd"),
    ("/cp", {"nsqd": "a:1", "chanel": "x"}, "did you mean channel"),
])
def test_what_is_missing_is_said_before_anything_starts(checkpoint, options, words):
    """The errors are those of the data source."""
    with pytest.raises(ConfigError, match=words):
        source_options("t", "c", checkpoint, options)


def test_a_folder_may_be_a_file_url():
    """Nothing in it is an escape: Spark's own paths are read like that."""
    assert local_path("file:///a b/c#1%20/") == local_path("file:/a b/c#1%20") == "/a b/c#1%20"
    assert local_path("file:///") == local_path("/") == "/"
    assert local_path("relative/x") == "relative/x"


def test_a_trigger_is_a_time_or_what_is_available():
    """Seconds become milliseconds."""
    assert trigger(1.5, False) == {"processingTime": "1500 milliseconds"}
    assert trigger(30, True) == {"availableNow": True}
    with pytest.raises(ConfigError):
        trigger("soon", False)


def test_files_are_grouped_by_their_partition():
    """Also those that are in none."""
    files = ["file:///x/date=2026-01-31/hour=05/a", "file:///x/date=2026-01-31/hour=05/b",
             "file:///x/c"]
    assert by_partition(files) == {
        "date=2026-01-31/hour=05/": files[:2], "": files[2:]}


def test_a_file_is_named_by_its_place_in_the_archive():
    """So a plan holds when the archive is moved."""
    assert relative("file:///x y/date=1/hour=05/a.parquet", "/x y") == "date=1/hour=05/a.parquet"
    assert relative("hdfs://h/z/a.parquet", "hdfs://h/z") == "a.parquet"


@pytest.mark.parametrize("partition, over", [
    ("date=2026-01-31/hour=11/", True),
    ("date=2026-01-31/hour=12/", False),
    ("date=2026-01-30/hour=23/", True),
    ("date=2026-01-31/", False),
    ("date=2026-01-30/", True),
    ("channel=c/date=2026-02-01/hour=00/", False),
    ("date=__HIVE_DEFAULT_PARTITION__/", True),
    ("", True),
])
def test_an_hour_is_over_when_its_end_is_past(partition, over):
    """A day at its end; what has no date is always ready."""
    assert is_over(partition, NOON) is over
