"""Tests of the write side and the pipelines, on Spark and the embedded nsqd."""

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from nsqclient import ConfigError
from nsqclient.devserver import Nsqd
from nsqclient.spark.pipelines import archive, compact, replay, stream
from nsqclient.spark.pipelines.sources import open_session

HOUR = 3600.0
COUNT = 200


@pytest.fixture
def nsqd():
    with Nsqd() as server:
        server.publish_many("t", [b"%04d" % number for number in range(COUNT)])
        yield server


def source(nsqd, folder, name="c"):
    return {
        "topic": "t", "channel": name, "checkpoint": str(folder / f"checkpoint {name}"),
        "nsqd": nsqd.tcp_address, "nsqdHttp": nsqd.http_address, "available_now": True,
    }


def bodies(nsqd, topic):
    return sorted(message.body for message in nsqd.messages(topic))


def even_or_fail(body):
    """Keep even numbers, drop odd ones, fail on one."""
    if body == b"0007":
        raise ValueError("not seven")
    return body if int(body) % 2 == 0 else None


def test_an_archive_goes_on_where_it_was_and_is_compacted(spark, nsqd, tmp_path):
    out, large = str(tmp_path / "the archive"), str(tmp_path / "large ones")
    for _ in range(2):
        archive(spark, path=out, **source(nsqd, tmp_path)).awaitTermination()
        nsqd.publish_many("t", [b"more"])
    assert spark.read.parquet(out).count() == COUNT + 1
    later = spark.read.parquet(out).selectExpr("max(timestamp_ns) / 1e9").first()[0] + 2 * HOUR
    assert compact(spark, out, large, older_than=2 * HOUR, now=later).partitions == 0
    done = compact(spark, out, large, older_than=0, now=later)
    assert done.files_before == 2 and done.files_after == done.partitions
    assert compact(spark, out, large, older_than=0, now=later).partitions == 0
    assert spark.read.parquet(large).select("body").distinct().count() == COUNT + 1
    assert spark.read.parquet(large).count() == COUNT + 1


@pytest.mark.long
def test_an_archive_whose_driver_was_killed_in_its_first_write_goes_on(
    spark, nsqd, tmp_path, monkeypatch
):
    """Spark leaves a temporary file, and would then refuse the checkpoint."""
    arguments = source(nsqd, tmp_path)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    left = Path(arguments["checkpoint"]) / "offsets" / ".0.an-id.tmp"
    left.parent.mkdir(parents=True)
    left.touch()
    with pytest.raises(Exception, match="should be empty on batch 0"):
        archive(spark, path=str(tmp_path / "out"), **arguments).awaitTermination()
    settings = open_session("nsqclient tests", "local[2,4]").conf  # as the commands set them
    try:
        archive(spark, path=str(tmp_path / "out"), **arguments).awaitTermination()
    finally:
        settings.unset("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart")
    assert spark.read.parquet(str(tmp_path / "out")).count() == COUNT


def test_an_archive_without_a_batch_is_nothing_to_compact(spark, tmp_path):
    """The query has created the folder, and ended before its first commit."""
    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    assert compact(spark, str(tmp_path / "out"), str(tmp_path / "large")).partitions == 0


def test_what_is_kept_is_replayed_into_files_and_into_a_topic(spark, nsqd, tmp_path):
    """By offsets. An existing folder is refused."""
    arguments, out = source(nsqd, tmp_path), str(tmp_path / "out")
    archive(spark, path=out, **arguments).awaitTermination()
    log = {"storage": f"{arguments['checkpoint']}/nsq-log", "topic": arguments["topic"],
           "channel": arguments["channel"]}
    files = str(tmp_path / "replayed")
    done = replay(spark, path=files, startingOffsets="earliest", **log)
    assert set(done.start.values()) == {0} and done.messages == COUNT
    rows = spark.read.parquet(files)
    assert rows.select("body").distinct().count() == COUNT and "hour" in rows.columns
    for path in (out, files):
        with pytest.raises(ConfigError, match="is there already"):
            replay(spark, path=path, **log)
    done = replay(spark, sink_topic="again", sink_options={
        "nsqd": nsqd.tcp_address}, startingTimestamp=0, **log)
    assert done.messages == COUNT == len(bodies(nsqd, "again"))


def test_a_plan_that_was_not_carried_out_is_carried_out_first(spark, tmp_path):
    """After a crash between the plan and the renames, each file has its place once."""
    out, large = tmp_path / "out", tmp_path / "large"
    spark.range(3).write.parquet(str(out))
    compact(spark, str(out), str(large))
    plan = next((large / "_compacted").glob("*.done"))
    run = plan.stem
    work = large / "_work" / run
    work.mkdir(parents=True)
    made = next(large.glob("compact-*.parquet"))
    moves = plan.read_text()
    name = moves.split(f"_work/{run}/")[1].split('"')[0]
    made.rename(work / name)
    plan.rename(plan.with_suffix(".plan"))
    assert compact(spark, str(out), str(large)).partitions == 0
    assert made.exists() and spark.read.parquet(str(large)).count() == 3


def test_a_stream_maps_bodies_and_sets_failures_aside(spark, nsqd, tmp_path):
    stream(spark, map_body=even_or_fail, sink_topic="even", dead_letter_topic="dead",
           **source(nsqd, tmp_path)).awaitTermination()
    assert len(bodies(nsqd, "even")) == COUNT // 2
    assert bodies(nsqd, "dead") == [b"0007"]


@pytest.mark.long
def test_an_archive_maps_bodies_and_writes_failures(spark, nsqd, tmp_path):
    query = archive(spark, path=str(tmp_path / "out"), map_body=even_or_fail, files_per_batch=1,
                    dead_letter_path=str(tmp_path / "dead"), **source(nsqd, tmp_path))
    query.awaitTermination()
    [file] = (tmp_path / "dead").glob("*.jsonl")
    assert file.name.startswith(f"{query.id}-000000-") and file.stat().st_mode & 0o777 == 0o600
    [row] = spark.read.json(str(tmp_path / "dead")).collect()
    assert (row.body, row.error, row.nsqd) == ("0007", "ValueError: not seven", nsqd.tcp_address)
    assert spark.read.parquet(str(tmp_path / "out")).count() == COUNT // 2


@pytest.mark.long
def test_a_row_that_sql_fails_on_is_found_and_set_aside(spark, nsqd, tmp_path):
    nsqd.publish_many("t", [b"no number"])
    stream(spark, transform="SELECT string(int(string(body)) + 1) AS body FROM messages",
           sink_topic="next", dead_letter_topic="dead", **source(nsqd, tmp_path)
           ).awaitTermination()
    assert set(bodies(nsqd, "next")) == {b"%d" % number for number in range(1, COUNT + 1)}
    assert bodies(nsqd, "dead") == [b"no number"]


@pytest.mark.parametrize("arguments, words", [
    ({}, "one of transform, map_body and for_each_batch"),
    ({"transform": "SELEC", "sink_topic": "o"}, "the transform is invalid"),
    ({"transform": "SELECT nsqd FROM messages", "sink_topic": "o"}, "no column 'body'"),
    ({"transform": "SELECT body FROM messages"}, "give the option topic"),
    ({"transform": "SELECT body FROM messages", "sink_topic": "t"}, "into itself without end"),
    ({"map_body": bytes}, "needs a sink_topic"),
    ({"for_each_batch": print, "sink_topic": "o"}, "publishes by itself"),
])
def test_an_invalid_stream_is_rejected_at_once(spark, tmp_path, arguments, words):
    with pytest.raises(ConfigError, match=words):
        stream(spark, topic="t", channel="c", checkpoint=str(tmp_path), nsqd="127.0.0.1:1",
               **arguments)


@pytest.mark.parametrize("arguments, words", [
    ({"format": "csv"}, "use parquet, delta, orc, json"),
    ({"partition_by": ["day"]}, "cannot partition by 'day'"),
    ({"path": ""}, "give a path"),
    ({"files_per_batch": -1}, "must not be negative"),
    ({"map_body": bytes, "dead_letter_topic": "t"}, "into itself without end"),
])
def test_an_invalid_archive_is_rejected_at_once(tmp_path, arguments, words):
    with pytest.raises(ConfigError, match=words):
        archive(None, **{"topic": "t", "channel": "c", "path": "/x", "nsqd": "127.0.0.1:1",
                         "checkpoint": str(tmp_path), **arguments})


def test_delta_without_its_package_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install delta-spark"):
        archive(None, topic="t", channel="c", path="/x", nsqd="127.0.0.1:1",
                checkpoint=str(tmp_path), format="delta")
