"""Tests of what all pipelines read with, and of the decisions of the compaction."""

import pyspark
import pytest

import nsqclient.spark
from nsqclient import ConfigError
from nsqclient.spark.pipelines.compacting import by_partition, is_over, relative
from nsqclient.spark.pipelines.sources import local_path, read_topic, source_options, trigger

#: 2026-01-31T12:30:00Z
NOON = 1769862600.0


def test_the_log_stands_beside_the_checkpoint():
    found = source_options("t", "c", "/data/cp/", {"nsqd": ["a:1", "b:2"], "tls_v1": True})
    assert found == {"topic": "t", "channel": "c", "nsqd": "a:1,b:2", "tls_v1": "true",
                     "storage": "/data/cp/nsq-log"}
    assert source_options("t", "c", "hdfs://x/cp", {"nsqd": "a:1", "STORAGE": "/s"}
                          )["STORAGE"] == "/s"


def test_where_owners_receive_there_are_no_addresses():
    found = source_options("t", "c", "s3://bucket/cp", {"storage": "file:///mnt/nsq"}, 5)
    assert found == {"topic": "t", "channel": "c", "storage": "file:///mnt/nsq",
                     "maxTriggerDelayMs": "5000"}


def test_the_log_of_a_relative_checkpoint_is_absolute(tmp_path, monkeypatch):
    """It is in the folder in which Spark creates the checkpoint."""
    monkeypatch.chdir(tmp_path)
    found = source_options("t", "c", "cp", {"nsqd": "a:1"})
    assert found["storage"] == str(tmp_path / "cp" / "nsq-log")


@pytest.mark.parametrize("checkpoint, options, words", [
    ("", {"nsqd": "a:1"}, "give a checkpoint"),
    ("s3://bucket/cp", {"nsqd": "a:1"}, "give storage"),
    ("/cp", {}, "give nsqd"),
    ("/cp", {"storage": "hdfs://x"}, "scheme 'hdfs' is not supported"),
])
def test_a_missing_option_is_an_error_before_anything_starts(checkpoint, options, words):
    with pytest.raises(ConfigError, match=words):
        source_options("t", "c", checkpoint, options)


def test_a_folder_may_be_a_file_url():
    """Percent signs are not escapes, as in Spark's own paths."""
    assert local_path("file:///a b/c#1%20/") == local_path("file:/a b/c#1%20") == "/a b/c#1%20"
    assert local_path("file:///") == local_path("/") == "/"
    assert local_path("relative/x") == "relative/x"


def test_the_source_paces_a_query():
    """With a time in the trigger, Spark would delay full batches too."""
    assert trigger(False) == {"processingTime": "0 seconds"}
    assert trigger(True) == {"availableNow": True}
    where = "t", "c", "/cp", {"nsqd": "a:1"}
    assert source_options(*where, every=1.5)["maxTriggerDelayMs"] == "1500"
    assert "maxTriggerDelayMs" not in source_options(*where)
    own = {"nsqd": "a:1", "maxtriggerdelayms": "7"}
    assert "maxTriggerDelayMs" not in source_options("t", "c", "/cp", own, every=30)
    with pytest.raises(ConfigError):
        source_options(*where, every="soon")


def test_a_pipeline_on_an_older_pyspark_is_refused(monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    monkeypatch.setattr(nsqclient.spark, "register", lambda spark: None)
    with pytest.raises(ConfigError, match="for streaming reads 4.2"):
        read_topic(None, {})


def test_files_are_grouped_by_their_partition():
    files = ["file:///x/date=2026-01-31/hour=05/a", "file:///x/date=2026-01-31/hour=05/b",
             "file:///x/c"]
    assert by_partition(files) == {
        "date=2026-01-31/hour=05/": files[:2], "": files[2:]}


def test_a_file_is_named_by_its_place_in_the_archive():
    """So plans hold when the archive is moved."""
    assert relative("file:///x y/date=1/hour=05/a.parquet") == "date=1/hour=05/a.parquet"
    assert relative("hdfs://h/z/a.parquet") == "a.parquet"


@pytest.mark.parametrize("partition, over", [
    ("date=2026-01-31/hour=11/", True),
    ("date=2026-01-31/hour=12/", False),
    ("date=2026-01-31/", False),
    ("date=2026-01-30/", True),
    ("channel=c/date=2026-02-01/hour=00/", False),
    ("date=__HIVE_DEFAULT_PARTITION__/", True),
    ("", True),
])
def test_an_hour_is_over_when_its_end_is_past(partition, over):
    """So is a day. A partition without a date is always over."""
    assert is_over(partition, NOON) is over
