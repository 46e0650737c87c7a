"""One Spark session for every test that wants one: a JVM takes seconds to start."""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from nsqclient.devserver import Nsqd, Nsqlookupd
from tests.spark.jobs import FAST_START
from tests.spark.pages import ORDERS
from tests.support.packages import has
from tests.support.leaks import FOREIGN_PORTS, FOREIGN_PROCESSES, find_leaks, take_snapshot
from tests.support.processes import CHECKOUT
from tests.support.servers.object_store import object_store
from tests.support.servers.storages import SERVERS, StorageServer, moto
from tests.support.waiting import wait_until

#: Tests are skipped on a Python for which these have no wheels.
collect_ignore_glob = [] if has("pyspark") and has("pyarrow") and has("obstore") else ["*.py"]

#: Seconds for one test: the first batch of a JVM takes long on a busy machine.
LIMIT = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let all tests that use the session run in one process, which the JVM talks to."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaks; with Spark, which keeps sockets, only if it leaks threads."""
    if "storage_kind" in request.fixturenames:
        request.getfixturevalue("storage_server")  # stays for other tests
    before = take_snapshot()
    yield
    if "spark" in request.fixturenames:
        wait_until(lambda: take_snapshot().threads <= before.threads, 30, "threads were left")
    elif leaks := find_leaks(before):
        pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Restore the signal handlers that readers and ingests have replaced in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def quick_jvms() -> Iterator[None]:
    """Let every JVM of a test compile quickly rather than well, because it lives for seconds."""
    with pytest.MonkeyPatch.context() as patch:
        given = os.environ.get("SPARK_SUBMIT_OPTS", "")
        patch.setenv("SPARK_SUBMIT_OPTS", f"{given} {FAST_START}".strip())
        yield


@pytest.fixture(scope="session")
def java() -> None:
    """Skip Spark's tests if it cannot run; fail in CI."""
    if not has("pandas"):
        pytest.skip("pandas has no wheel for this Python, and Spark's tests need it")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        reason = "no Java: Spark needs Java 17 (apt-get install openjdk-17-jre-headless)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on two processors, a failed task four times, on loopback, without pages.

    Nothing is registered in it: Spark finds ``nsq`` by itself.
    """
    from pyspark.sql import SparkSession

    saved = dict(os.environ)
    # Spark does not look for data sources if the path of its Python contains a space.
    python = tmp_path_factory.mktemp("bin") / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(python)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Where Spark's Python processes look for pyspark_nsq, and for functions of the tests.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        path for path in (str(CHECKOUT), saved.get("PYTHONPATH", "")) if path)
    builder = SparkSession.builder.master("local[2,4]").appName("nsqclient tests")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    gateway = session.sparkContext._gateway
    FOREIGN_PORTS.add(gateway.gateway_parameters.port)
    process = getattr(gateway, "proc", None)
    if process is not None:
        FOREIGN_PROCESSES.add(process.pid)
    yield session
    session.stop()
    gateway.shutdown()
    if process is not None:
        process.stdin.close()
        process.wait(30)
    type(session.sparkContext)._gateway = None
    os.environ.clear()
    os.environ.update(saved)


@pytest.fixture
def start_receiver(leak_guard: None) -> Iterator[Callable[..., Any]]:
    from nsqclient.spark.reading.receiver import Receiver
    from nsqclient.spark.storage import open_store

    with contextlib.ExitStack() as stack:

        def start(options: Any, drains: bool = False) -> Any:
            receiver = Receiver(options, open_store(options.storage), lambda: None)
            stack.callback(receiver.stop)
            if drains:
                receiver.prepare_drain()
            receiver.open()
            return receiver

        yield start


@pytest.fixture
def cluster(leak_guard: None, tmp_path: Path) -> Iterator[tuple[Nsqd, dict[str, str]]]:
    """An nsqd with orders and events, registered; returns the values of the pages' placeholders."""
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        nsqd.publish_many("orders", ORDERS)
        nsqd.publish_many("events", ORDERS)
        lookup = f"http://{lookupd.http_address}/lookup?topic=events"
        wait_until(lambda: requests.get(lookup, timeout=10).ok)
        yield nsqd, {"127.0.0.1:4150": nsqd.tcp_address, "127.0.0.1:4161": lookupd.http_address,
                     "/data": str(tmp_path / "data")}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with object_store() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def storage_servers() -> Iterator[tuple[contextlib.ExitStack, dict[str, StorageServer]]]:
    """The started storage servers by kind, and the exit stack that ends them."""
    with contextlib.ExitStack() as stack:
        yield stack, {}


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.long)])
def storage_kind(request: pytest.FixtureRequest) -> str:
    """Each kind; the slower one only in the longer tests, because ``storage/`` always has both."""
    kind: str = request.param
    return kind


@pytest.fixture
def storage_server(
    storage_kind: str, request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    storage_servers: tuple[contextlib.ExitStack, dict[str, StorageServer]],
) -> StorageServer | None:
    """The server of this kind, for all tests; None: a folder."""
    stack, servers = storage_servers
    if storage_kind == "file":
        return None
    if storage_kind not in servers:
        if storage_kind == "s3":
            server = moto(request.getfixturevalue("s3_endpoint"))
        else:
            server = stack.enter_context(
                SERVERS[storage_kind](tmp_path_factory.mktemp(storage_kind)))
        servers[storage_kind] = server
    return servers[storage_kind]


@pytest.fixture
def storage_url(
    storage_server: StorageServer | None, leak_guard: None, tmp_path: Path
) -> Iterator[str]:
    """The URL of an empty storage of each kind."""
    if storage_server is None:
        yield f"file://{tmp_path}/the störage 漢"
        return
    with storage_server.new_url() as url:
        yield url


@pytest.fixture
def store(storage_url: str) -> Any:
    from nsqclient.spark.storage import open_store

    return open_store(storage_url)
