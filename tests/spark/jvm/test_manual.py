"""The programs and commands of the pages on Spark, on a cluster that stands for the usual one."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from typing import Any

import pytest
import requests

import nsqclient.spark
from nsqclient.devserver import Nsqd, Nsqlookupd
from tests.support.pages import ROOT, named, text_of
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

COUNT = 100
#: Seconds for a test that starts several JVMs; each takes a minute on a machine that is very busy.
LIMIT = 900
ORDERS = [
    json.dumps({"id": number, "state": "paid" if number % 2 else "open"}).encode()
    for number in range(COUNT)
]


@pytest.fixture
def cluster(leak_guard, tmp_path):
    """An nsqd with orders and events, registered; gives what stands for the pages' places."""
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        nsqd.publish_many("orders", ORDERS)
        nsqd.publish_many("events", ORDERS)
        lookup = f"http://{lookupd.http_address}/lookup?topic=events"
        wait_until(lambda: requests.get(lookup, timeout=10).ok)
        yield nsqd, {"127.0.0.1:4150": nsqd.tcp_address, "127.0.0.1:4161": lookupd.http_address,
                     "/data": str(tmp_path / "data")}


def run(spark: Any, cluster: Any, text: str, **names: Any) -> dict[str, Any]:
    """Run a block in the session; return its names. It takes what is there, and ends."""
    for usual, here in {
        **cluster[1], 'processingTime="30 seconds"': "availableNow=True",
        'orders-checkpoint")': 'orders-checkpoint", available_now=True)',
        "nsqclient.spark.print_progress(": "progress = nsqclient.spark.print_progress(",
    }.items():
        text = text.replace(usual, here)
    scope = {"spark": spark, "nsqclient": nsqclient, **names}
    exec(compile(text, "the page", "exec"), scope)
    if "progress" in scope:
        spark.streams.removeListener(scope["progress"])
    return scope


def test_the_stream_of_the_page(spark, cluster, tmp_path, capfd):
    """Every event is in the files, and the progress of a batch is on stderr as it is shown."""
    run(spark, cluster, text_of(named("Spark stream")))
    rows = spark.read.parquet(str(tmp_path / "data" / "events"))
    assert sorted(bytes(row.body) for row in rows.collect()) == sorted(ORDERS)


def test_the_archive_of_the_page(spark, cluster, tmp_path):
    """Every order is in the archive, by date and hour."""
    run(spark, cluster, text_of(named("archive pipeline")))
    rows = spark.read.parquet(str(tmp_path / "data" / "orders"))
    assert rows.count() == COUNT and {"date", "hour"} <= set(rows.columns)


def test_the_writers_of_the_page(spark, cluster, tmp_path):
    """Rows of a DataFrame and lines of a stream become messages."""
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


def test_the_drain_of_the_page(spark, cluster, tmp_path):
    """What waited is in the files, nsqd has nothing left, and the spool is released."""
    nsqd, places = cluster
    spool = str(tmp_path / "spool")
    nsqd.create_channel("orders", "look")
    where = {"nsqd": nsqd.tcp_address, "nsqdHttp": nsqd.http_address, "topic": "orders",
             "channel": "look", "spoolDir": spool}
    run(spark, cluster, text_of(named("Spark drain")), where=where, spool_dir=spool)
    assert spark.read.parquet(places["/data"] + "/may").count() == COUNT
    assert nsqd.messages("orders", "look") == [] == nsqclient.spark.snapshots(spool)


@pytest.mark.spark
@pytest.mark.timeout(LIMIT)
def test_the_commands_of_the_page(cluster, tmp_path):
    """archive and stream take what is there; compact has nothing to do before the hour is over."""
    nsqd, places = cluster
    nsqd.delete_topic("orders")
    nsqd.create_topic("orders")
    for name in ("archive", "paid"):  # a channel has what is published after it was made
        nsqd.create_channel("orders", name)
    nsqd.publish_many("orders", ORDERS)
    archive, compact, stream = (block.commands[0] for block in named("nsqclient spark"))
    with contextlib.closing(Terminal(tmp_path, places)) as terminal:
        terminal.environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        for command in (f"{archive} --available-now", compact,
                        f"{stream} --available-now --channel=paid"):
            started = terminal.start(command)
            assert started.end(LIMIT) == 0, started.log
    assert len(nsqd.messages("paid")) == COUNT // 2
    assert list((tmp_path / "data" / "orders").rglob("*.parquet"))


@pytest.mark.spark
@pytest.mark.timeout(LIMIT)
def test_make_pipeline(cluster, tmp_path):
    """The target's own command, with a file and an nsqd of one's own; else it is the same."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "own.txt").write_text("three words here\n" * 50)
    # RUN twice: what make runs is read by another shell.
    make = f"--file {shlex.quote(str(ROOT / 'Makefile'))} --old-file .venv/installed-spark"
    with contextlib.closing(Terminal(tmp_path, cluster[1])) as terminal:
        terminal.replace["/var/log/syslog"] = "own.txt"
        sample, own = named("make pipeline")[0].commands
        assert own.startswith(f"{sample} INPUT=")
        started = terminal.start(f"{own} {make} RUN={shlex.quote(shlex.quote(sys.executable))}")
        assert started.end(LIMIT) == 0, started.log
        assert "missing" in started.output
