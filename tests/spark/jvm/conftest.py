"""One Spark session for all tests here; on loopback, without its pages."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes import CHECKOUT
from tests.support.waiting import wait_until

#: A JVM starts in 3 s on an idle machine, and in a minute on a busy one.
TIMEOUT = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder run in one process, with time enough for the JVM."""
    for item in items:
        if "jvm" in item.path.parts:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(TIMEOUT))


@pytest.fixture(autouse=True)
def leak_guard() -> Iterator[None]:
    """Fail a test that leaves a thread of ours; sockets and processes belong to the session."""
    before = set(threading.enumerate())
    yield
    wait_until(
        lambda: not [thread for thread in threading.enumerate()
                     if thread not in before and thread.name.startswith("nsq-")],
        5, "every thread of ours has ended",
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session. Nothing is registered in it: Spark finds ``nsq`` by itself."""
    reason = None
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        reason = "no Java: Spark needs Java 17 (apt-get install openjdk-17-jre-headless)"
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        reason = "no pyspark: pip install 'nsqclient[spark]'"
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    saved = dict(os.environ)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Where Spark's Python processes look for pyspark_nsq.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        path for path in (str(CHECKOUT), saved.get("PYTHONPATH", "")) if path)
    session = (
        SparkSession.builder.master("local[2,4]").appName("nsqclient tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield session
    session.stop()
    gateway = session.sparkContext._gateway
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(30)
    type(session.sparkContext)._gateway = None
    os.environ.clear()
    os.environ.update(saved)
