"""A client of Spark Connect reads a topic into files, by a server on loopback."""

import contextlib
import os
import re
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.pages import ORDERS, run
from tests.support.docs.pages import named, text_of
from tests.support.docs.terminal import Terminal

STARTED = re.compile(r"Spark Connect server started at: \S*?:(\d+)")


@pytest.fixture
def server(java, leak_guard, tmp_path):
    """Start the server of the page on a free port; return its address."""
    with contextlib.closing(Terminal(tmp_path)) as terminal:
        scripts = Path(pyspark.__file__).parent / "sbin"
        terminal.environment["PATH"] += os.pathsep + str(scripts)
        # In the foreground, so that it ends with the test.
        terminal.environment.update(SPARK_NO_DAEMONIZE="1", PYSPARK_PYTHON=sys.executable)
        [command] = named("Spark recipe: Connect server")[0].commands
        started = terminal.start(f"{command} --conf spark.connect.grpc.binding.port=0")
        started.wait_for("Spark Connect server started at: ")
        found = STARTED.search(started.output + started.log)
        assert found is not None, started.log
        yield f"127.0.0.1:{found[1]}"


@pytest.mark.timeout(300)
def test_a_client_reads_a_topic(server, cluster, tmp_path, capfd):
    nsqd, places = cluster
    places = {**places, "127.0.0.1:15002": server}
    scope = run(None, (nsqd, places), text_of(named("Spark recipe: Connect")))
    spark = scope["spark"]
    try:
        rows = spark.read.parquet(str(tmp_path / "data" / "events")).collect()
        assert sorted(bytes(row.body) for row in rows) == sorted(ORDERS)
        assert f"batch 0: {len(ORDERS)} rows" in capfd.readouterr().err
    finally:
        spark.stop()
