"""The programs and commands of the pages on Spark, on a cluster that stands for the usual one."""

import shlex
import shutil
import sys

import pytest

import nsqclient.spark
from tests.spark.pages import COUNT, ORDERS, run
from tests.support.docs.pages import ROOT, named, text_of

#: Seconds for a test that starts several JVMs; each takes a minute on a machine that is very busy.
LIMIT = 900


def test_the_stream_of_the_manual_works(spark, cluster, tmp_path):
    run(spark, cluster, text_of(named("Spark stream")))
    rows = spark.read.parquet(str(tmp_path / "data" / "events"))
    assert sorted(bytes(row.body) for row in rows.collect()) == sorted(ORDERS)


def test_the_archive_of_the_manual_works(spark, cluster, tmp_path):
    run(spark, cluster, text_of(named("archive pipeline")))
    rows = spark.read.parquet(str(tmp_path / "data" / "orders"))
    assert rows.count() == COUNT and {"date", "hour"} <= set(rows.columns)


@pytest.mark.long
def test_the_archive_of_the_manual_with_bad_rows_works(spark, cluster, tmp_path):
    nsqd = cluster[0]
    nsqd.publish_many("orders", [b"no order"])
    run(spark, cluster, text_of(named("archive with bad rows")))
    rows = spark.read.parquet(str(tmp_path / "data" / "orders")).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(
        order.replace(b" ", b"") for order in ORDERS)
    assert [message.body for message in nsqd.messages("orders-bad")] == [b"no order"]


def test_the_writers_of_the_manual_work(spark, cluster, tmp_path):
    nsqd = cluster[0]
    nsqd.empty_topic("orders")
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "one.txt").write_text("a line\n")
    run(spark, cluster, text_of(named("Spark writer")), df=spark.range(3),
        stream=spark.readStream.text(str(tmp_path / "lines")))
    [query] = spark.streams.active
    query.processAllAvailable()
    query.stop()
    bodies = sorted(message.body for message in nsqd.messages("orders"))
    assert bodies == [b"a line", b'{"id":0}', b'{"id":1}', b'{"id":2}']


def test_the_drain_of_the_manual_works(spark, cluster, tmp_path):
    nsqd, places = cluster
    nsqd.create_channel("orders", "look")
    storage = run(spark, cluster, text_of(named("Spark drain")))["storage"]
    assert spark.read.parquet(places["/data"] + "/may").count() == COUNT
    assert nsqd.messages("orders", "look") == [] == nsqclient.spark.snapshots(storage)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(LIMIT)
def test_the_commands_of_the_manual_work(cluster, run_command, tmp_path):
    """``compact`` must wait for the end of the hour."""
    nsqd = cluster[0]
    nsqd.delete_topic("orders")
    nsqd.create_topic("orders")
    for name in ("archive", "paid"):  # a channel has only messages that are published later
        nsqd.create_channel("orders", name)
    nsqd.publish_many("orders", ORDERS)
    archive, compact, stream = (block.commands[0] for block in named("nsqclient spark"))
    for command in (f"{archive} --available-now", compact,
                    f"{stream} --available-now --channel=paid"):
        run_command(command)
    assert len(nsqd.messages("paid")) == COUNT // 2
    assert list((tmp_path / "data" / "orders").rglob("*.parquet"))


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(LIMIT)
def test_what_a_sink_lacks_is_replayed(spark, cluster, run_command, tmp_path):
    """Runs the commands and the program of the page after the archive has lost its files."""
    run(spark, cluster, text_of(named("archive pipeline")))
    sink, rest = tmp_path / "data" / "orders", str(tmp_path / "rest")
    rows = spark.read.parquet(str(sink))
    rows.where("cast(body AS string) NOT LIKE '%paid%'").write.parquet(rest)
    shutil.rmtree(sink)
    shutil.move(rest, sink)
    look, write = named("nsqclient spark replay")
    assert f" {COUNT} messages, " in run_command(look.commands[0]).output
    written = run_command(write.commands[0].replace("=812", "=0"))
    assert f"{COUNT} messages of offsets (0, " in written.output
    run(spark, cluster, text_of(named("Spark replay")))
    rows = spark.read.parquet(str(tmp_path / "data" / "orders-lost"))
    assert sorted(bytes(row.body) for row in rows.collect()) == sorted(
        body for body in ORDERS if b"paid" in body)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(LIMIT)
def test_make_pipeline_archives_a_file(run_command, tmp_path):
    """Runs the commands of the target, with another file and nsqd."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "own.txt").write_text("three words here\n" * 50)
    # PIPELINE twice: what make runs is read by another shell.
    make = f"--file {shlex.quote(str(ROOT / 'Makefile'))} --old-file .venvs/pipeline/installed"
    sample, own = named("make pipeline")[0].commands
    assert own.startswith(f"{sample} INPUT=")
    own = own.replace("/var/log/syslog", "own.txt")
    python = shlex.quote(shlex.quote(sys.executable))
    assert "missing" in run_command(f"{own} {make} PIPELINE={python}").output
