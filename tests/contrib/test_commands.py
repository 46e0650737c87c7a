"""``manage.py nsq_consume`` and ``flask nsq consume`` as processes: signals, reload, recovery."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys

import pytest
import requests

from nsqclient.devserver import Nsqd
from tests.support.processes import LIMIT
from tests.support.servers.web_servers import PROJECTS, end, environment, program
from tests.support.waiting import wait_until

for name in ("django", "flask"):
    pytest.importorskip(name, reason=f"{name} comes with the test extra")

#: A handler that says what it does, in place of the project's.
SLOW_HANDLER = """
import threading
def handle(message):
    print("began", message.body, flush=True)
    threading.Event().wait(float(message.body))
    print("ended", message.body, flush=True)
"""
CONSUME = {
    "django": ("manage.py", "nsq_consume", "shop.handlers.write_receipt", "--topic", "orders",
               "--channel", "receipts", "--workers", "2", "--atomic"),
    "flask": ("-m", "flask", "--app", "app", "nsq", "consume"),
}
#: With the second one it is much the same.
SIGNALS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
CHANNELS = {"django": "receipts", "flask": "thumbnails"}


def clients(nsqd) -> int:
    """The number of workers on the slow handler's channel."""
    (topic,) = nsqd.stats("jobs", "c")["topics"]
    return len(topic["channels"][0]["clients"])


@pytest.fixture
def project(tmp_path, nsqd):
    """Make a copy of the Django project, with a handler of configurable duration."""
    folder = tmp_path / "project"
    shutil.copytree(PROJECTS["django"][0], folder,
                    ignore=shutil.ignore_patterns("__pycache__", "*.sqlite3"))
    (folder / "slow.py").write_text(SLOW_HANDLER)
    return folder


def start(project, tmp_path, nsqd, *flags, **env):
    """Run the slow handler for the topic ``jobs``."""
    return program(
        project, environment(tmp_path, nsqd.tcp_address, **env), tmp_path / "log", "manage.py",
        "nsq_consume", "slow.handle", "--topic", "jobs", "--channel", "c", *flags,
    )


def wait_for(tmp_path, text: str) -> None:
    """Wait until the program has printed a text."""
    wait_until(lambda: text in (tmp_path / "log").read_text(), LIMIT, f"it does not say {text!r}")


def save(project, tmp_path, code: str, until: str) -> None:
    """Save the handler's module, and wait until the program prints a text."""
    (project / "slow.py").write_text(code)
    wait_for(tmp_path, until)


@pytest.mark.parametrize("framework", ["django", "flask"])
@pytest.mark.parametrize("signum", SIGNALS)
def test_a_worker_handles_messages_until_a_signal(tmp_path, nsqd, framework, signum):
    """Messages are handled, a killed nsqd is connected to again, a signal ends it with 0."""
    folder, _, _, field, topic = PROJECTS[framework]
    channel = CHANNELS[framework]
    env = environment(tmp_path, nsqd.tcp_address)
    if framework == "django":
        subprocess.run([sys.executable, "manage.py", "migrate", "-v", "0"], cwd=folder, env=env,
                       check=True, timeout=LIMIT)
    nsqd.publish_many(topic, [json.dumps({field: f"n{n}", "cents": 1}).encode()
                              for n in range(20)])
    port = int(nsqd.tcp_address.rpartition(":")[2])
    with program(folder, env, tmp_path / "log", *CONSUME[framework]) as process:
        nsqd.wait_until_empty(topic, channel, timeout=LIMIT)
        nsqd.kill()
        with Nsqd(tcp_port=port) as again:
            again.publish(topic, json.dumps({field: "last", "cents": 1}).encode())
            again.wait_until_empty(topic, channel, timeout=LIMIT)
            assert end(process, signum) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_with_debug_it_restarts_when_code_changes(project, tmp_path, nsqd):
    """The new handler is used a moment after the file was saved; Ctrl-C ends the command."""
    nsqd.publish("jobs", b"0")
    with start(project, tmp_path, nsqd, DEBUG="1") as process:
        wait_for(tmp_path, "ended b'0'")
        save(project, tmp_path, SLOW_HANDLER.replace('"ended"', '"finished"'), "starting again")
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


@pytest.fixture
def flask_worker(tmp_path, nsqd):
    """``flask --debug nsq consume`` with the slow handler; yields its folder and the process."""
    folder = tmp_path / "flask project"
    folder.mkdir()
    (folder / "slow.py").write_text(SLOW_HANDLER)
    (folder / "app.py").write_text(FLASK_APP)
    words = ("-m", "flask", "--app", "app", "--debug", "nsq", "consume")
    env = environment(tmp_path, nsqd.tcp_address)
    with program(folder, env, tmp_path / "log", *words) as process:
        yield folder, process
    wait_until(lambda: not clients(nsqd), LIMIT, "the worker lives on")


@pytest.mark.long
@pytest.mark.parametrize("signum", SIGNALS)
def test_flask_with_debug_restarts_when_code_changes(flask_worker, tmp_path, nsqd, signum):
    """It waits until an error is fixed, uses the new handler, and a signal ends both processes."""
    folder, process = flask_worker
    nsqd.publish("jobs", b"0")
    wait_for(tmp_path, "ended b'0'")
    (folder / "slow.py").write_text("def handle(message:\n")
    wait_for(tmp_path, "waiting for a change")
    (folder / "slow.py").write_text(SLOW_HANDLER.replace('"ended"', '"finished"'))
    nsqd.publish("jobs", b"0.01")
    wait_for(tmp_path, "finished b'0.01'")
    assert "SyntaxError" in (tmp_path / "log").read_text()
    assert end(process, signum) == 0


@pytest.mark.long
def test_a_broken_settings_module_does_not_end_the_reloader(project, tmp_path, nsqd):
    """It waits until the settings are mended; a failing system check neither ends it."""
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


@pytest.mark.long
@pytest.mark.parametrize("words", [
    ["--worker", "2x"], ["--channel", "c"], ["slow.handel"]])
def test_a_typo_in_the_command_line_ends_the_reloader_at_once(project, tmp_path, nsqd, words):
    """No change of the code would help: the status is 2."""
    usual = ["slow.handle", "--topic", "jobs", "--channel", "c"]
    given = [*words, *usual[1:]] if words == ["slow.handel"] else words
    env = environment(tmp_path, nsqd.tcp_address, DEBUG="1")
    with program(project, env, tmp_path / "log", "manage.py", "nsq_consume", *given) as process:
        assert process.wait(LIMIT) == 2, (tmp_path / "log").read_text()


def probes(tmp_path) -> str:
    """Wait until a worker of two processes is ready; return what it says."""
    pattern = re.compile(r"answering .* on (http://\S+)")
    log = tmp_path / "log"
    found = wait_until(lambda: pattern.search(log.read_text()), LIMIT, "no address of probes")
    wait_until(lambda: requests.get(f"{found[1]}/ready", timeout=10).ok, LIMIT, "not ready")
    return requests.get(f"{found[1]}/ready", timeout=10).text


def test_django_has_the_flags_of_the_worker(project, tmp_path, nsqd):
    """Two processes, probes, and the handlers that the modules of the apps register."""
    (project / "shop" / "handlers.py").write_text(
        "import nsqclient, slow\nnsqclient.handler('jobs', 'c')(slow.handle)\n")
    env = environment(tmp_path, nsqd.tcp_address)
    with program(project, env, tmp_path / "log", "manage.py", "nsq_consume", "--processes", "2",
                 "--health-address", "127.0.0.1:0") as process:
        assert '"jobs/c": "connected to 1 nsqd"' in probes(tmp_path)
        assert clients(nsqd) == 2
        assert end(process) == 0
    checked = subprocess.run(
        [sys.executable, "manage.py", "nsq_consume", "--check"], cwd=project, env=env, text=True,
        capture_output=True, timeout=LIMIT, check=False)
    assert checked.returncode == 0 and f"OK     nsqd {nsqd.tcp_address}" in checked.stdout


def test_flask_has_the_flags_of_the_worker(tmp_path, nsqd):
    """Two processes and probes; a wrong topic is an error of the command line."""
    (tmp_path / "slow.py").write_text(SLOW_HANDLER)
    (tmp_path / "app.py").write_text(FLASK_APP)
    env = environment(tmp_path, nsqd.tcp_address)
    words = ("-m", "flask", "--app", "app", "nsq", "consume")
    with program(tmp_path, env, tmp_path / "log", *words, "--processes", "2",
                 "--health-address", "127.0.0.1:0") as process:
        assert '"jobs/c": "connected to 1 nsqd"' in probes(tmp_path)
        assert end(process) == 0
    with program(tmp_path, env, tmp_path / "log", *words, "--topic", "jbos") as process:
        assert process.wait(LIMIT) == 2


@pytest.mark.parametrize(
    "framework", ["django", pytest.param("flask", marks=pytest.mark.long)])
def test_variables_and_a_file_are_read_as_by_the_worker(project, tmp_path, nsqd, framework):
    """They win over the setting, whose nsqd does not answer; the command line wins over them."""
    folder = project
    words = ["manage.py", "nsq_consume"]
    (folder / "shop" / "handlers.py").write_text(
        "import nsqclient, slow\nnsqclient.handler('jobs', 'c')(slow.handle)\n")
    with (folder / "shop" / "settings.py").open("a") as settings:
        settings.write('\nNSQCLIENT["NSQD_TCP_ADDRESSES"] = ["127.0.0.1:1"]\n')
    if framework == "flask":
        folder, words = tmp_path, ["-m", "flask", "--app", "app", "nsq", "consume"]
        (folder / "slow.py").write_text(SLOW_HANDLER)
        (folder / "app.py").write_text(
            FLASK_APP.replace('os.environ["NSQD_TCP_ADDRESS"]', '"127.0.0.1:1"'))
    file = tmp_path / "nsq.toml"
    file.write_text("[worker]\ncheck = true\nconsumer_opts = {max_attempts = 3}\n")
    # The address is in $NSQD_TCP_ADDRESS.
    env = environment(tmp_path, nsqd.tcp_address, NSQ_CONFIG=str(file), NSQ_PROCESES="2")

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words, *more], cwd=folder, env=env, text=True,
                              capture_output=True, timeout=LIMIT, check=False)

    done = run()
    assert done.returncode == 0, done.stderr
    assert f"OK     nsqd {nsqd.tcp_address}\n" in done.stdout
    assert "did you mean $NSQ_PROCESSES?" in done.stderr
    wrong = run("--nsqd-tcp-address", "127.0.0.1:2")
    assert wrong.returncode == 1 and "WRONG  nsqd 127.0.0.1:2" in wrong.stdout
    env["NSQ_PROCESSES"] = "many"
    assert run().returncode == 2
