"""The data source as users meet it: Spark's own calls, on a real nsqd."""

import io

import pytest

import nsqclient.spark
from nsqclient.errors import ConfigError
from nsqclient.http.nsqd import NsqdHTTP
from tests.spark.logs import publish
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def nsqd(real_nsqd):
    server = real_nsqd()
    publish(server, 500)
    return server


def test_a_query_that_is_stopped_ends_without_an_error(spark, nsqd, tmp_path):
    """It requeues messages that it has not stored. Its progress shows the lag."""
    nsqclient.spark.register(spark)
    lines = io.StringIO()
    printer = nsqclient.spark.print_progress(spark, lines)
    frame = spark.readStream.format("nsq").options(
        topic="t", channel="c", nsqd=nsqd.tcp_address, nsqdHttp=nsqd.http_address,
        storage=str(tmp_path / "the log")).load()
    query = frame.writeStream.format("noop").option(
        "checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: sum(p["numInputRows"] for p in query.recentProgress) == 500, 120)
        wait_until(lambda: "500 rows in" in lines.getvalue(), 20, "the progress was printed")
        assert ", lag: depth " in lines.getvalue()
    finally:
        query.stop()
        spark.streams.removeListener(printer)
    assert query.exception() is None
    wait_until(lambda: nsqd.stats("t", "c")["client_count"] == 0, 20, "it has disconnected")
    assert nsqd.stats("t", "c")["in_flight_count"] == 0


def test_nothing_is_published_for_a_table(spark, nsqd):
    """NSQ keeps none: saveAsTable and CREATE TABLE are refused, and a temporary view works."""
    nsqclient.spark.register(spark)
    where = {"nsqd": nsqd.tcp_address, "topic": "new"}
    frame = spark.createDataFrame([(b"x",)], "body binary")
    writer = frame.write.format("nsq").mode("append").options(**where)
    with pytest.raises(ConfigError, match="writeTo does not work with nsq"):
        frame.writeTo("letters").using("nsq").options(**where).create()
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


def test_rows_are_read_with_either_type_of_timestamps(spark, nsqd):
    """spark.sql.timestampType decides what TIMESTAMP means."""
    nsqclient.spark.register(spark)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = spark.read.format("nsq").options(
            topic="t", channel="look#ephemeral", nsqd=nsqd.tcp_address, maxMessages="5",
            nsqdHttp=nsqd.http_address).load()
        assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"
        publish(nsqd, 5)
        assert all(row.timestamp.timestamp() * 1e9 - row.timestamp_ns < 1e6
                   for row in frame.collect())
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_a_checkpoint_of_another_topic_ends_the_query_with_that_in_the_first_line(
    spark, nsqd, tmp_path
):
    """Otherwise the query would continue in the wrong log, and skip messages there."""

    def run(topic):
        query = spark.readStream.format("nsq").options(
            topic=topic, channel="c", nsqd=nsqd.tcp_address, nsqdHttp=nsqd.http_address,
            storage=str(tmp_path / "log")).load().writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    nsqclient.spark.register(spark)
    run("t")
    publish(nsqd, 10, topic="other")
    with pytest.raises(Exception, match="STREAM_FAILED") as failed:
        run("other")
    first, *_ = str(failed.value).splitlines()
    assert first.endswith(": nsqclient.spark.errors.LogMismatchError: log other/c: the checkpoint"
                          " belongs to t/c: use a new checkpoint folder for each topic and channel")


@pytest.mark.long
def test_large_messages_fit_into_a_small_heap_with_all_defaults(spark, real_nsqd, tmp_path):
    """The heap has 1 GiB, and Parquet's writer keeps 100 rows before it checks their size."""
    server = real_nsqd()
    publish(server, 300, size=1024 * 1024 - 100)
    nsqclient.spark.register(spark)
    query = spark.readStream.format("nsq").options(
        topic="t", channel="c", nsqd=server.tcp_address, nsqdHttp=server.http_address,
        storage=str(tmp_path / "log")).load().writeStream.format("parquet").option(
        "path", str(tmp_path / "out")).option(
        "checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).select("message_id").distinct().count() == 300
