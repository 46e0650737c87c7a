"""One Spark session for every test that wants one: a JVM takes seconds to start."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.leaks import find_leaks, take_snapshot
from tests.support.waiting import wait_until

#: Seconds for one test: the first batch of a JVM takes long on a busy machine.
LIMIT = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session, and keep it in one process of xdist."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves something behind; with Spark, which keeps sockets, only threads."""
    before = take_snapshot()
    yield
    if "spark" in request.fixturenames:
        wait_until(lambda: take_snapshot().threads <= before.threads, 5, "threads were left")
    elif leaks := find_leaks(before):
        pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on this machine with two processors, on loopback, without pages."""
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("there is no Java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Tasks unpickle functions of the tests by name.
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    from pyspark.sql import SparkSession

    import nsqclient.spark

    builder = SparkSession.builder.master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    nsqclient.spark.register(session)
    yield session
    session.stop()
