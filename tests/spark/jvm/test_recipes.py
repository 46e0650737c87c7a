"""The recipes that need nothing but PySpark; the others are in ``tests/spark/recipes``."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import Any

import pytest

from tests.spark.pages import COUNT, run
from tests.support.docs.pages import named, text_of
from tests.support.servers.http_recorder import recording

#: As a registry returns it: the schema is a text in the answer.
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "state": {"type": ["null", "string"]},
        "lines": {"type": "array", "items": {"type": "object", "properties": {
            "price": {"type": "number"}, "gift": {"type": "boolean"}}}},
    },
}


def source(spark: Any, cluster: Any, topic: str) -> Any:
    return spark.readStream.format("nsq").options(
        nsqd=cluster[0].tcp_address, nsqdHttp=cluster[0].http_address, topic=topic,
        channel="spark", storage=cluster[1]["/data"] + "/log").load()


@pytest.fixture
def registry(leak_guard: None) -> Iterator[str]:
    """A stand-in for a schema registry; returns its address."""
    answer = json.dumps({"subject": "orders-value", "version": 3, "schemaType": "JSON",
                         "schema": json.dumps(SCHEMA)}).encode()
    with recording() as server:
        server.answer = lambda request: (
            (200, answer) if request.path == "/subjects/orders-value/versions/3" else (404, b"{}"))
        yield server.address


def test_json_becomes_columns(spark, cluster, tmp_path):
    cluster[0].publish_many("orders", [b"no order", b'{"id": "x", "state": "open"}'])
    run(spark, cluster, text_of(named("Spark recipe: JSON")),
        events=source(spark, cluster, "orders"))
    rows = spark.read.parquet(str(tmp_path / "data" / "orders"))
    good = rows.where("kind = 'good'")
    assert sorted(row.id for row in good.collect()) == list(range(COUNT))
    assert good.where("state = 'paid'").count() == COUNT // 2
    assert sorted(row.bad for row in rows.where("kind = 'bad'").collect()) == [
        "no order", '{"id": "x", "state": "open"}']


def test_each_message_is_stored_once_when_a_batch_runs_again(spark, cluster, tmp_path):
    """The function of the page fails after its transaction, like a driver that is killed there."""
    recipe = text_of(named("Spark recipe: once"))
    (tmp_path / "data").mkdir()
    failing = recipe.replace("foreachBatch(store)", "foreachBatch(fail)").replace("\nquery", """
def fail(batch, number):
    store(batch, number)
    raise OSError("killed")

query""")
    for attempt, text in enumerate((failing, recipe)):
        with pytest.raises(Exception, match="killed") if not attempt else nullcontext():
            run(spark, cluster, text, events=source(spark, cluster, "events"))
        with closing(sqlite3.connect(tmp_path / "data" / "events.db")) as database:
            [stored] = database.execute("SELECT count(*) FROM events").fetchone()
            [batches] = database.execute("SELECT count(*) FROM batches").fetchone()
        assert (stored, batches) == (COUNT, 1)


@pytest.mark.long
def test_a_schema_of_a_registry_becomes_columns(spark, cluster, registry, tmp_path):
    order = {"id": 1, "state": None, "lines": [{"price": 2.5, "gift": True}]}
    cluster[0].publish_many("nested", [json.dumps(order).encode(), b"no order"])
    text = text_of(named("Spark recipe: registry")).replace("registry:8081", registry)
    schema = run(spark, cluster, text)["schema"]
    assert schema.simpleString() == (
        "struct<id:bigint,state:string,lines:array<struct<price:double,gift:boolean>>,bad:string>")
    recipe = text_of(named("Spark recipe: JSON"))
    _, _, rest = recipe.partition("bad STRING\"\n")
    run(spark, cluster, "from pyspark.sql import functions as F\n" + rest, schema=schema,
        events=source(spark, cluster, "nested"))
    rows = spark.read.parquet(str(tmp_path / "data" / "orders"))
    [row] = rows.where("kind = 'good'").collect()
    assert (row.id, row.state, row.lines[0].price, row.lines[0].gift) == (1, None, 2.5, True)
    assert rows.where("kind = 'bad'").count() == 1
