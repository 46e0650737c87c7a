"""``manage.py nsq_consume`` and ``flask nsq consume`` as processes: signals, reload, flags."""

import re
import shutil
import signal

import pytest
import requests

from tests.support.processes import LIMIT
from tests.support.servers.web_servers import PROJECTS, end, environment, program
from tests.support.waiting import wait_until

#: A handler that prints its steps, in place of the project's.
SLOW_HANDLER = """
import threading
def handle(message):
    print("began", message.body, flush=True)
    threading.Event().wait(float(message.body))
    print("ended", message.body, flush=True)
"""


def clients(nsqd) -> int:
    (topic,) = nsqd.stats("jobs", "c")["topics"]
    return len(topic["channels"][0]["clients"])


@pytest.fixture
def project(tmp_path, nsqd):
    folder = tmp_path / "project"
    shutil.copytree(PROJECTS["django"][0], folder,
                    ignore=shutil.ignore_patterns("__pycache__", "*.sqlite3"))
    (folder / "slow.py").write_text(SLOW_HANDLER)
    return folder


def start(project, tmp_path, nsqd, *flags, **env):
    return program(
        project, environment(tmp_path, nsqd.tcp_address, **env), tmp_path / "log", "manage.py",
        "nsq_consume", "slow.handle", "--topic", "jobs", "--channel", "c", *flags,
    )


def wait_for(tmp_path, text: str) -> None:
    wait_until(lambda: text in (tmp_path / "log").read_text(), LIMIT, f"it does not say {text!r}")


def test_with_debug_it_restarts_when_code_changes(project, tmp_path, nsqd):
    nsqd.publish("jobs", b"0")
    with start(project, tmp_path, nsqd, DEBUG="1") as process:
        wait_for(tmp_path, "ended b'0'")
        (project / "slow.py").write_text(SLOW_HANDLER.replace('"ended"', '"finished"'))
        # The old worker may still take a message while it stops.
        log = tmp_path / "log"
        wait_until(lambda: log.read_text().count("consuming jobs") == 2, LIMIT, "no new worker")
        nsqd.publish("jobs", b"0.01")
        wait_for(tmp_path, "finished b'0.01'")
        # A terminal sends Ctrl-C to both processes; the outer one alone ends the inner one too.
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)
    wait_until(lambda: not clients(nsqd), LIMIT, "the worker lives on")


FLASK_APP = """
from flask import Flask
from nsqclient.contrib.flask import NSQ
from slow import handle
import os
nsq = NSQ()
app = Flask(__name__)
app.config["NSQCLIENT"] = {"NSQD_TCP_ADDRESSES": [os.environ["NSQD_TCP_ADDRESS"]]}
nsq.init_app(app)
nsq.handler("jobs", channel="c")(handle)
"""


@pytest.mark.long
def test_a_broken_settings_module_does_not_end_the_reloader(project, tmp_path, nsqd):
    settings = project / "shop" / "settings.py"
    right = settings.read_text()
    with start(project, tmp_path, nsqd, DEBUG="1") as process:
        wait_for(tmp_path, "consuming jobs")
        settings.write_text(right + "\n1 / 0\n")
        wait_for(tmp_path, "waiting for a change")
        settings.write_text(right + "\nNSQCLIENT = {}\n")
        wait_for(tmp_path, "nsqclient.E001")
        settings.write_text(right)
        nsqd.publish("jobs", b"0")
        wait_for(tmp_path, "ended b'0'")
        assert end(process) == 0


def probes(tmp_path) -> str:
    pattern = re.compile(r"answering .* on (http://\S+)")
    log = tmp_path / "log"
    found = wait_until(lambda: pattern.search(log.read_text()), LIMIT, "no address of probes")
    wait_until(lambda: requests.get(f"{found[1]}/ready", timeout=10).ok, LIMIT, "not ready")
    return requests.get(f"{found[1]}/ready", timeout=10).text


def test_django_has_the_flags_of_the_worker(project, tmp_path, nsqd):
    (project / "shop" / "handlers.py").write_text(
        "import nsqclient, slow\nnsqclient.handler('jobs', 'c')(slow.handle)\n")
    env = environment(tmp_path, nsqd.tcp_address)
    with program(project, env, tmp_path / "log", "manage.py", "nsq_consume", "--processes", "2",
                 "--health-address", "127.0.0.1:0") as process:
        assert '"jobs/c": "connected to 1 nsqd"' in probes(tmp_path)
        assert clients(nsqd) == 2
        assert end(process) == 0


def test_flask_has_the_flags_of_the_worker(tmp_path, nsqd):
    (tmp_path / "slow.py").write_text(SLOW_HANDLER)
    (tmp_path / "app.py").write_text(FLASK_APP)
    env = environment(tmp_path, nsqd.tcp_address)
    words = ("-m", "flask", "--app", "app", "nsq", "consume")
    with program(tmp_path, env, tmp_path / "log", *words, "--processes", "2",
                 "--health-address", "127.0.0.1:0") as process:
        assert '"jobs/c": "connected to 1 nsqd"' in probes(tmp_path)
        assert end(process) == 0
