"""Features that work on every PySpark from 4.1 on, on a real nsqd, and the errors of older ones.

``tox -e spark41`` runs this on 4.1. On the version of the other tests these show that it works, so
that tests marked ``long`` repeat them.
"""

import json
import shutil

import pytest

import nsqclient.spark
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real

COUNT = 1000


@pytest.fixture
def nsqd(real_nsqd):
    return real_nsqd()


@pytest.fixture
def where(nsqd, tmp_path):
    return {"nsqd": nsqd.tcp_address, "nsqdHttp": nsqd.http_address, "topic": "t", "channel": "c",
            "storage": str(tmp_path / "log")}


def write(spark, nsqd):
    nsqclient.spark.register(spark)
    spark.range(COUNT).selectExpr("cast(id AS string) AS body").write.format("nsq").mode(
        "append").options(nsqd=nsqd.tcp_address, topic="t").save()
    nsqd.post("/channel/create", topic="t", channel="c")
    wait_until(lambda: nsqd.stats("t", "c")["depth"] == COUNT, 30, "the channel has all")


@pytest.mark.long
def test_the_sink_a_peek_and_a_drain_work(spark, nsqd, where):
    """Each reads every row once. A peek leaves all messages, and a drain finishes all."""
    write(spark, nsqd)
    storage = where.pop("storage")
    source = spark.read.format("nsq").options(**where, storage="")
    peek = source.option("maxMessages", "100").load()
    assert peek.union(peek).select("body").distinct().count() == 100
    wait_until(lambda: nsqd.stats("t", "c")["depth"] == COUNT, 30, "all went back")
    drained = source.options(mode="drain", maxMessages="0", storage=storage).load()
    assert drained.count() == COUNT == drained.select("body").distinct().count()
    assert drained.where("body IS NULL").count() == 0
    assert nsqd.stats("t", "c")["depth"] == 0 == nsqd.stats("t", "c")["in_flight_count"]


@pytest.mark.long
def test_the_streaming_sink_works(spark, nsqd, tmp_path):
    """A batch that runs again publishes again, but writes no second file of dead letters."""
    nsqclient.spark.register(spark)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("one\n\ntwo\n")
    nsqd.post("/topic/create", topic="lines")
    nsqd.post("/channel/create", topic="lines", channel="c")
    lines = spark.readStream.format("text").load(str(tmp_path / "in")).selectExpr(
        "value AS body", "named_struct('size', length(value), 'at', DATE'2026-01-31') AS about")
    for depth in (2, 4):
        query = lines.writeStream.format("nsq").options(
            nsqd=nsqd.tcp_address, topic="lines", emptyBodies="dead_letter",
            deadLetterPath=str(tmp_path / "dead")).option(
            "checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        wait_until(lambda: nsqd.stats("lines", "c")["depth"] == depth, 30, "both are there")
        shutil.rmtree(tmp_path / "checkpoint" / "commits")
    [file] = (tmp_path / "dead").glob(f"{query.id}-000000-*.jsonl")
    assert json.loads(file.read_text()) == {
        "topic": "lines", "partition": 0, "error": "body is empty",
        "row": {"body": "", "about": {"size": 0, "at": "2026-01-31"}}}


@pytest.mark.long
def test_a_streaming_read_works_or_says_what_it_needs(spark, nsqd, where, tmp_path):
    """The error on 4.1 ends with one clear line."""
    import pyspark

    write(spark, nsqd)
    query = spark.readStream.format("nsq").options(**where).load().writeStream.format(
        "parquet").option("checkpointLocation", str(tmp_path / "checkpoint")).option(
        "path", str(tmp_path / "out")).trigger(availableNow=True).start()
    if not pyspark.__version__.startswith("4.1."):
        query.awaitTermination()
        assert spark.read.parquet(str(tmp_path / "out")).count() == COUNT
        return
    with pytest.raises(Exception, match="for streaming reads 4.2") as caught:
        query.awaitTermination()
    assert "UnboundLocalError" not in str(caught.value)
