"""An Iceberg table, by the jar that Maven has fetched, on PySpark 4.1."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nsqclient.spark
from nsqclient.spark.pipelines.sources import open_session
from tests.spark.pages import ORDERS, run
from tests.support.docs.pages import named, text_of

JARS = ",".join(map(str, Path(os.environ["SPARK_JARS"]).glob("iceberg-*.jar")))


@pytest.fixture(scope="module")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the settings of the page."""
    lake = str(tmp_path_factory.mktemp("lake"))
    settings = text_of(named("Spark recipe: Iceberg settings")).replace("/data/lake", lake)
    session = open_session("recipes", "local[2]", {
        **dict(line.split() for line in settings.splitlines()), "spark.jars": JARS,
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


def test_a_channel_is_drained_into_an_iceberg_table(spark, cluster, tmp_path):
    """Every event is in the table once, even if a job is killed after its write."""
    nsqd, places = cluster
    nsqd.create_channel("events", "lake")
    recipe = text_of(named("Spark recipe: Iceberg"))
    with pytest.raises(NameError):
        run(spark, cluster, recipe.replace("nsqclient.spark.release", "killed"))
    assert [left.name for left in nsqclient.spark.snapshots(f"{places['/data']}/log")] == ["now"]
    nsqd.publish_many("events", [b"later"])
    run(spark, cluster, recipe)
    rows = spark.table("lake.shop.events").collect()
    assert sorted(bytes(row.body) for row in rows) == sorted([*ORDERS, b"later"])
    assert nsqclient.spark.snapshots(f"{places['/data']}/log") == []
