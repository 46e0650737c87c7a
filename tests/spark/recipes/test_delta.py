"""Delta tables, by the jars that Maven has fetched."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqclient.spark.pipelines.sources import open_session
from tests.spark.jvm.test_recipes import source
from tests.spark.pages import COUNT, ORDERS, run
from tests.support.docs.pages import named, text_of
from tests.support.docs.terminal import Terminal

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
#: The jars that Maven has fetched, as Spark wants them.
JARS = ",".join(sorted(map(str, Path(os.environ["SPARK_JARS"]).glob("*.jar"))))


@pytest.fixture(scope="module")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session that knows Delta."""
    session = open_session("recipes", "local[2]", {
        **DELTA, "spark.ui.enabled": "false", "spark.jars": JARS,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("tables"))})
    yield session
    session.stop()


def archive(terminal: Terminal, command: str) -> None:
    """Run a command of the page until the topic is archived."""
    started = terminal.start(f"{command} --available-now --channel=delta")
    assert started.end(300) == 0, started.log


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_topic_is_archived_as_a_delta_table(spark, cluster, tmp_path):
    nsqd, _ = cluster
    jars = os.environ["SPARK_JARS"]
    nsqd.create_channel("orders", "delta")
    maven, own = named("Spark recipe: Maven")[0].commands
    assert "--file tools/spark/pom.xml" in maven
    packages = "--conf=spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0"
    [central] = named("Spark recipe: Delta archive")[0].commands
    assert packages in central and Path(jars, "delta-spark_4.2_2.13-4.4.0.jar").exists()
    table = str(tmp_path / "data" / "orders")
    with contextlib.closing(Terminal(tmp_path, cluster[1])) as terminal:
        archive(terminal, own.replace("/data/jars", jars))
        rows = spark.read.format("delta").load(table)
        assert sorted(bytes(row.body) for row in rows.collect()) == sorted(ORDERS)
        nsqd.publish_many("orders", ORDERS)
        archive(terminal, central.replace(packages, f"--conf=spark.jars={JARS}"))
    assert spark.read.format("delta").load(table).count() == 2 * COUNT


def test_a_table_has_the_latest_state(spark, cluster, tmp_path):
    """Each order has one row. Repeated batches and late messages do not change it."""
    from pyspark.sql import functions as F

    table = "spark_catalog.default.latest"

    def merge() -> dict[str, Any]:
        return run(spark, cluster, text_of(named("Spark recipe: MERGE")), F=F, table=table,
                   events=source(spark, cluster, "events"))

    nsqd = cluster[0]
    upsert = merge()["upsert"]
    states = {row.id: row.state for row in spark.table(table).collect()}
    assert states == {json.loads(order)["id"]: json.loads(order)["state"] for order in ORDERS}
    nsqd.publish_many("events", [b'{"id": 1, "state": "sent"}', b"no order", b'{"id": 100}'])
    merge()
    shutil.rmtree(tmp_path / "data")
    rows = spark.table(table)
    newest = {row.id: row.state for row in rows.collect()}
    assert newest == {**states, 1: "sent", 100: None}
    late = spark.createDataFrame(
        [(b'{"id": 1, "state": "late"}', 1), (b'{"id": 101, "state": "new"}', 1)],
        "body BINARY, timestamp_ns BIGINT")
    upsert(late, 0)
    upsert(late, 0)
    assert {row.id: row.state for row in spark.table(table).collect()} == {**newest, 101: "new"}
