"""The example projects under real gunicorn: no publish is lost, nothing hangs."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest

from nsqclient import Config, Consumer
from tests.support.processes import LIMIT, start_threads
from tests.support.servers.factories import ServerFactory
from tests.support.servers.web_servers import Gunicorn, end
from tests.support.waiting import wait_until

for name in ("django", "flask", "gunicorn"):
    pytest.importorskip(name, reason=f"{name} comes with the test extra")

SYNC = ("--workers", "2")
THREADS = ("--workers", "2", "--worker-class", "gthread", "--threads", "4")
REAL = pytest.mark.real


@pytest.fixture
def servers(leak_guard, tmp_path):
    """Start an nsqd: ``servers("real")``."""
    with contextlib.ExitStack() as stack:
        def start(kind):
            factory = ServerFactory(kind, tmp_path / kind)
            (tmp_path / kind).mkdir()
            stack.callback(factory.close)
            return factory()

        yield start


def consumed(nsqd, topic: str, count: int) -> list[str]:
    """Consume the topic until nothing is left; return the names in the messages."""
    names = []

    def handler(message):
        content = json.loads(message.body)
        names.append(content.get("reference") or content["name"])

    with Consumer(topic, "audit", handler, nsqd_tcp_addresses=[nsqd.tcp_address],
                  config=Config(max_in_flight=200)):
        wait_until(lambda: len(set(names)) >= count, 20, "messages are missing")
    return names


@pytest.mark.long
@pytest.mark.parametrize(("framework", "flags", "kind"), [
    pytest.param("django", SYNC, "embedded", id="django-sync"),
    pytest.param("django", (*THREADS, "--preload"), "real", id="django-gthread-preload",
                 marks=REAL),
    pytest.param("flask", (*SYNC, "--preload"), "real", id="flask-sync-preload",
                 marks=REAL),
    pytest.param("flask", THREADS, "embedded", id="flask-gthread"),
])
def test_a_graceful_reload_under_load_loses_no_publish(servers, tmp_path, framework, flags, kind):
    """Every successful request has its message in nsqd; gunicorn ends without errors."""
    nsqd = servers(kind)
    with Gunicorn(framework, tmp_path, nsqd.tcp_address, *flags) as web:
        over = threading.Event()
        numbers = iter(range(100_000))

        def load():
            while not over.is_set():
                web.post(f"n{next(numbers)}")

        threads = start_threads(4, load)
        try:
            wait_until(lambda: len(web.accepted) > 20, LIMIT)
            for _ in range(2):
                web.reload()
                enough = len(web.accepted) + 20
                wait_until(lambda: len(web.accepted) > enough, LIMIT, "the new workers are stuck")
        finally:
            over.set()
            for thread in threads:
                thread.join(LIMIT)
        assert not any(thread.is_alive() for thread in threads)
        assert end(web.process) == 0
    assert web.failed == [] and "Traceback" not in web.log()
    assert web.accepted <= set(consumed(nsqd, web.topic, len(web.accepted)))


@pytest.mark.long
def test_a_worker_that_is_stopped_finishes_its_requests(servers, tmp_path):
    """When gunicorn stops under load, each request is answered or its connection refused."""
    nsqd = servers("embedded")
    with Gunicorn("flask", tmp_path, nsqd.tcp_address, *THREADS) as web:
        threads = start_threads(8, lambda: [web.post(f"n{n}") for n in range(50)])
        wait_until(lambda: web.accepted, LIMIT)
        assert end(web.process) == 0
        for thread in threads:
            thread.join(LIMIT)
    assert web.failed == [] and "Traceback" not in web.log()


def test_requests_fail_in_time_while_nsqd_is_down_and_work_again_after(servers, tmp_path):
    """A publish fails within its deadline; the readiness check fails before."""
    nsqd = servers("embedded")
    with Gunicorn("flask", tmp_path, nsqd.tcp_address, *SYNC) as web:
        web.post("before")
        nsqd.stop()
        wait_until(lambda: not web.is_ready(), LIMIT, "still ready")
        nsqd.start()
        wait_until(web.is_ready, LIMIT, "not ready again")
        web.post("after")
        assert {"before", "after"} == web.accepted and end(web.process) == 0
