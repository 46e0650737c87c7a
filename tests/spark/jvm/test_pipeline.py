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
    """A real nsqd with 500 messages on topic ``t``."""
    server = real_nsqd()
    publish(server, 500)
    return server


def test_a_query_that_is_stopped_ends_without_an_error(spark, nsqd, tmp_path):
    """And gives back what it has not stored; the lag is in the progress."""
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
