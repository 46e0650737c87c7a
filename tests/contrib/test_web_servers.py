"""The example projects under real gunicorn: no publish is lost, nothing hangs."""

import json
import threading

import pytest

from nsqclient import Config, Consumer
from tests.support.processes import LIMIT, start_threads
from tests.support.servers.web_servers import Gunicorn, end
from tests.support.waiting import wait_until

SYNC = ("--workers", "2")
THREADS = ("--workers", "2", "--worker-class", "gthread", "--threads", "4")


def consumed(nsqd, topic: str, count: int) -> list[str]:
    names = []

    def handler(message):
        content = json.loads(message.body)
        names.append(content.get("reference") or content["name"])

    with Consumer(topic, "audit", handler, nsqd_tcp_addresses=[nsqd.tcp_address],
                  config=Config(max_in_flight=200)):
        wait_until(lambda: len(set(names)) >= count, 20, "messages are missing")
    return names


@pytest.mark.long
@pytest.mark.parametrize(("framework", "flags", "server_kind"), [
    pytest.param("django", (*THREADS, "--preload"), "real", marks=pytest.mark.real),
    ("flask", (*SYNC, "--preload"), "embedded"),
], indirect=["server_kind"])
def test_a_graceful_reload_under_load_loses_no_publish(server, tmp_path, framework, flags):
    with Gunicorn(framework, tmp_path, server.tcp_address, *flags) as web:
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
    assert web.accepted <= set(consumed(server, web.topic, len(web.accepted)))


@pytest.mark.parametrize("server_kind", ["embedded"], indirect=True)
def test_requests_fail_in_time_while_nsqd_is_down_and_work_again_after(server, tmp_path):
    with Gunicorn("flask", tmp_path, server.tcp_address, *SYNC, "--preload") as web:
        web.post("before")
        server.stop()
        wait_until(lambda: not web.is_ready(), LIMIT, "still ready")
        server.start()
        wait_until(web.is_ready, LIMIT, "not ready again")
        web.post("after")
        assert {"before", "after"} == web.accepted and end(web.process) == 0
