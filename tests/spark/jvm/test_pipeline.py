"""The data source as users meet it: Spark's own calls, on a real nsqd."""

from __future__ import annotations

import io

import pytest

import nsqclient.spark
from nsqclient.errors import ConfigError
from nsqclient.http.nsqd import NsqdHTTP
from tests.spark.logs import publish
from tests.spark.failures import with_failure
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def nsqd(real_nsqd):
    """A real nsqd with 500 messages on topic ``t``."""
    server = real_nsqd()
    publish(server, 500)
    return server


def options(nsqd, tmp_path, **more):
    """What a query needs."""
    return {"topic": "t", "channel": "c", "nsqd": nsqd.tcp_address,
            "nsqdHttp": nsqd.http_address, "storage": str(tmp_path / "the log"), **more}


def to_parquet(spark, nsqd, tmp_path, change=lambda frame: frame, **more):
    """Write all that is there to Parquet, and end; return the query."""
    frame = spark.readStream.format("nsq").options(**options(nsqd, tmp_path, **more)).load()
    query = (
        change(frame).writeStream.format("parquet").trigger(availableNow=True)
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )
    assert query.awaitTermination(120)
    return query


def written(spark, tmp_path):
    """Every body that was committed, sorted as numbers."""
    rows = spark.read.parquet(str(tmp_path / "out")).select("body").collect()
    return sorted(int(bytes(row.body)) for row in rows)


def test_available_now_reads_all_and_goes_on_next_time(spark, nsqd, tmp_path):
    """Found by Spark itself; two runs on one checkpoint; the lag is in the progress."""
    query = to_parquet(spark, nsqd, tmp_path)
    assert written(spark, tmp_path) == list(range(500))
    lag = next(p for p in query.recentProgress if p["numInputRows"])["sources"][0]["latestOffset"]
    assert '"waiting"' in str(lag).replace("'", '"')
    publish(nsqd, 100, 500)
    to_parquet(spark, nsqd, tmp_path)
    assert written(spark, tmp_path) == list(range(600))
    stats = nsqd.stats("t", "c")
    assert (stats["depth"], stats["in_flight_count"]) == (0, 0)


@pytest.mark.long
def test_a_checkpoint_that_lost_its_last_batch_is_followed(spark, nsqd, tmp_path):
    """Power failed before it was on disk, nor was the list of the sink: the batch is read again."""
    to_parquet(spark, nsqd, tmp_path)
    publish(nsqd, 100, 500)
    to_parquet(spark, nsqd, tmp_path)
    for folder in ("checkpoint/offsets", "checkpoint/commits", "out/_spark_metadata"):
        for name in ("1", ".1.crc"):
            (tmp_path / folder / name).unlink(missing_ok=True)
    to_parquet(spark, nsqd, tmp_path)
    assert written(spark, tmp_path) == list(range(600))


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_task_that_fails_reads_the_same_again(spark, nsqd, tmp_path, when):
    """Before it has read its rows, or after."""
    marker = str(tmp_path / "marker")
    to_parquet(spark, nsqd, tmp_path, lambda frame: with_failure(frame, marker, when))
    assert written(spark, tmp_path) == list(range(500))


def test_a_query_that_is_stopped_ends_without_an_error(spark, nsqd, tmp_path):
    """And gives back what it has not stored."""
    nsqclient.spark.register(spark)
    lines = io.StringIO()
    printer = nsqclient.spark.print_progress(spark, lines)
    frame = spark.readStream.format("nsq").options(**options(nsqd, tmp_path)).load()
    query = frame.writeStream.format("noop").option(
        "checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: sum(p["numInputRows"] for p in query.recentProgress) == 500, 120)
        wait_until(lambda: "500 rows in" in lines.getvalue(), 20, "the progress was printed")
    finally:
        query.stop()
        spark.streams.removeListener(printer)
    assert query.exception() is None
    wait_until(lambda: nsqd.stats("t", "c")["client_count"] == 0, 20, "it has disconnected")
    assert nsqd.stats("t", "c")["in_flight_count"] == 0


def test_a_peek_and_a_drain_are_snapshots(spark, nsqd, tmp_path):
    """Each action on one DataFrame sees the same rows."""
    source = spark.read.format("nsq")
    texts = options(nsqd, tmp_path, channel="p", maxMessages="50")
    del texts["storage"]
    peek = source.options(**texts).load()
    assert peek.count() == 50
    assert peek.union(peek).select("message_id").distinct().count() == 50
    more = {"channel": "p", "mode": "drain", "maxMessages": "0"}
    drained = source.options(**options(nsqd, tmp_path, **more)).load()
    assert drained.count() == 500 and drained.select("body").distinct().count() == 500


def test_nothing_is_published_for_a_table(spark, nsqd):
    """NSQ keeps none: saveAsTable and CREATE TABLE are refused, and a temporary view works."""
    nsqclient.spark.register(spark)
    where = {"nsqd": nsqd.tcp_address, "topic": "new"}
    frame = spark.createDataFrame([(b"x",)], "body binary")
    writer = frame.write.format("nsq").mode("append").options(**where)
    for save in (writer.saveAsTable, frame.write.options(**where).format("NSQ").saveAsTable):
        with pytest.raises(ConfigError, match="saveAsTable does not work with nsq"):
            save("letters")
    options = f"OPTIONS (nsqd '{nsqd.tcp_address}', topic 't', channel 'c', mode 'peek')"
    with pytest.raises(Exception, match="write CREATE TEMPORARY VIEW name USING nsq"):
        spark.sql(f"CREATE TABLE letters USING nsq {options}")
    with pytest.raises(Exception, match="INSERT and CREATE TABLE"):
        spark.sql(f"CREATE TABLE letters USING nsq {options} AS SELECT binary('x') AS body")
    spark.sql(f"CREATE TEMPORARY VIEW letters USING nsq {options}")
    assert spark.sql("SELECT body FROM letters LIMIT 1").count() == 1
    with NsqdHTTP(nsqd.http_address) as client:
        assert [topic.name for topic in client.stats().topics] == ["t"]
