"""Fixtures for every test: the leak guard, real servers, and one suite on two kinds of server."""

import contextlib
import gc
import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from nsqclient import discovery
from nsqclient.http import nsqlookupd
from nsqclient.runtime.log_lines import LineLimit
from tests.support.leaks import find_leaks, take_snapshot
from tests.support.servers.factories import LookupdFactory, ServerFactory
from tests.support.servers.http_api import ServerUnderTest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts its background jobs so, and the programs of the tests would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine takes longer than hypothesis' 200 ms for an example.
settings.register_profile("without_deadline", settings.default, deadline=None)
settings.load_profile("without_deadline")

#: Characters of a test case's name.
LONGEST_NAME = 80


@pytest.hookimpl(trylast=True)  # after the shuffle
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run quick tests first: unit tests, then the embedded server, then the real one."""
    items.sort(
        key=lambda item: (
            "integration" in item.path.parts,
            item.get_closest_marker("real") is not None,
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what collecting the tests makes out of every later garbage collection: it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case after the start of a long text: a name of a megabyte fits no environment."""
    text = repr(val)
    if isinstance(val, (str, bytes)) and len(text) > LONGEST_NAME:
        return f"{text[:LONGEST_NAME]}... ({len(val)})"
    return None


@pytest.fixture(autouse=True)
def leak_guard() -> Iterator[None]:
    """Fail a test that leaves a thread of ours, a child process or an open socket behind."""
    before = take_snapshot()
    yield
    leaks = find_leaks(before)
    if leaks:
        pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Give loggers back the levels that a test's program has set; count lines from 0 again."""
    discovery._unusable, nsqlookupd._unusable_lines = LineLimit(), LineLimit()
    loggers = [logging.getLogger(name) for name in ("", "nsqclient")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels):
        logger.setLevel(level)


@pytest.fixture
def real_nsqd(leak_guard: None, tmp_path: Path) -> Iterator[ServerFactory]:
    """Factory of running real nsqds: ``real_nsqd(msg_timeout=2.0)``; they end with the test."""
    factory = ServerFactory("real", tmp_path / "real")
    yield factory
    factory.close()


@pytest.fixture
def real_nsqlookupd(leak_guard: None, tmp_path: Path) -> Iterator[LookupdFactory]:
    """Factory of running real nsqlookupds; they end with the test."""
    factory = LookupdFactory("real", tmp_path / "real")
    yield factory
    factory.close()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def server_kind(request: pytest.FixtureRequest) -> str:
    """Which kind of server an integration test runs on: it runs once on each."""
    kind: str = request.param
    return kind


@pytest.fixture
def server_factory(
    leak_guard: None, server_kind: str, tmp_path: Path
) -> Iterator[ServerFactory]:
    """Factory of running nsqds of the kind under test; see ServerFactory."""
    factory = ServerFactory(server_kind, tmp_path)
    yield factory
    factory.close()


@pytest.fixture
def lookupd_factory(
    leak_guard: None, server_kind: str, tmp_path: Path
) -> Iterator[LookupdFactory]:
    """Factory of running nsqlookupds of the kind under test; see LookupdFactory."""
    factory = LookupdFactory(server_kind, tmp_path)
    yield factory
    factory.close()


@pytest.fixture
def server(server_factory: ServerFactory) -> ServerUnderTest:
    """One running nsqd with default options, of the kind under test."""
    return server_factory()


@pytest.fixture
def no_thread(monkeypatch):
    """Context manager: no thread starts whose name begins so."""
    start = threading.Thread.start

    @contextlib.contextmanager
    def refuse(name):
        def start_unless(thread):
            if thread.name.startswith(name):
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_unless)
            yield

    return refuse
