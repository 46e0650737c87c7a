"""The real uWSGI, which forks its workers without the fork hooks of Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.support.processes import CHECKOUT, LIMIT, start_threads
from tests.support.servers.ports import free_port
from tests.support.servers.web_servers import end
from tests.support.waiting import wait_until

# uWSGI is compiled first.
pytestmark = [pytest.mark.external, pytest.mark.real, pytest.mark.timeout(900)]

UWSGI = CHECKOUT / ".cache" / "uwsgi"
#: The master connects, and so do all its workers if they do not notice that they are others.
APPLICATION = """
import os
import nsqclient

producer = nsqclient.Producer([os.environ["NSQD"]])
producer.ping()
producer.publish_async("orders", b"master").result()

def application(environ, start_response):
    body = environ["PATH_INFO"].encode()
    producer.publish("orders", body, timeout=10)
    producer.publish_async("orders", body, timeout=10).result(10)
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]
"""


@pytest.fixture(scope="module")
def uwsgi() -> Path:
    program = UWSGI / "bin" / "uwsgi"
    if not program.exists():
        built = subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--target", str(UWSGI), "uwsgi"],
            capture_output=True, text=True, check=False)
        if built.returncode:
            pytest.skip(f"uWSGI cannot be built: {built.stderr[-300:]}")
    return program


@pytest.mark.parametrize("server_kind", ["real"], indirect=True)
def test_workers_of_uwsgi_publish_over_their_own_connections(server, uwsgi, tmp_path):
    (tmp_path / "app.py").write_text(APPLICATION)
    url, log = f"127.0.0.1:{free_port()}", tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [uwsgi, "--http-socket", url, "--wsgi-file", "app.py", "--master", "--need-app",
             "--processes", "4", "--threads", "4", "--die-on-term"],
            cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, "NSQD": server.tcp_address, "PYTHONHOME": sys.base_prefix,
                 "PYTHONPATH": os.pathsep.join([str(CHECKOUT), *filter(None, sys.path)])})
    workers, failed = set(), []

    def load():
        for number in range(50):
            response = requests.get(f"http://{url}/{number}", timeout=LIMIT)
            workers.add(response.text)
            if response.status_code != 200:
                failed.append(response)

    try:
        wait_until(lambda: "spawned uWSGI worker 4" in log.read_text(), LIMIT, "it does not start")
        for thread in start_threads(8, load):
            thread.join()
        assert end(process) == 0
    finally:
        process.kill()
        process.wait()
    assert failed == [] and len(workers) > 1 and "Traceback" not in log.read_text()
    assert server.stats("orders")["message_count"] == 1 + 2 * 8 * 50
