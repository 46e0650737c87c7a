"""``manage.py nsq_consume`` and ``flask nsq consume`` as processes: signals, reload, recovery."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import pytest

from nsqclient.devserver import Nsqd
from tests.support.processes import LIMIT
from tests.support.waiting import wait_until
from tests.support.web_servers import PROJECTS, end, environment, program

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
CHANNELS = {"django": "receipts", "flask": "thumbnails"}


def states(nsqd) -> list[str]:
    """Where the messages of the slow handler's channel are."""
    return [message.state for message in nsqd.messages("jobs", "c")]


def clients(nsqd) -> int:
    """How many workers are connected to the slow handler's channel."""
    (topic,) = nsqd.stats("jobs", "c")["topics"]
    return len(topic["channels"][0]["clients"])


@pytest.fixture
def project(tmp_path, nsqd):
    """Make a copy of the Django project, with a handler that is told how long to take."""
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
    """Wait until the program has said something."""
    wait_until(lambda: text in (tmp_path / "log").read_text(), LIMIT, f"it does not say {text!r}")


def save(project, tmp_path, code: str, until: str) -> None:
    """Save the handler's module until the program says something: Django looks once a second.

    It notices only files that it has seen before, so the first time may be too early.
    """
    def saved() -> bool:
        (project / "slow.py").write_text(code)
        return until in (tmp_path / "log").read_text()

    wait_until(saved, LIMIT, f"it does not say {until!r}")


@pytest.mark.parametrize("framework", ["django", "flask"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_handles_messages_until_a_signal(tmp_path, nsqd, framework, signum):
    """Messages are handled once connected, a killed nsqd is waited for, a signal ends with 0."""
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


def test_a_signal_lets_the_running_handler_finish(project, tmp_path, nsqd):
    """What is being handled is finished, what is not goes back, and the status is 0."""
    nsqd.publish_many("jobs", [b"0.5", b"0.5"])
    with start(project, tmp_path, nsqd) as process:
        wait_for(tmp_path, "began")
        assert end(process) == 0
    wait_for(tmp_path, "ended")
    assert states(nsqd) == ["queued"]


def test_a_handler_that_takes_too_long_is_told(project, tmp_path, nsqd):
    """After --stop-timeout the command ends with 1 and says what to do; nothing is lost."""
    nsqd.publish("jobs", b"60")
    with start(project, tmp_path, nsqd, "--stop-timeout", "0.2") as process:
        wait_for(tmp_path, "began")
        assert end(process) == 1
    wait_for(tmp_path, "a longer --stop-timeout lets them finish")
    assert states(nsqd) == ["in_flight"]


def test_with_debug_it_restarts_when_code_changes(project, tmp_path, nsqd):
    """The new handler is used a moment after the file was saved; Ctrl-C ends all of it."""
    nsqd.publish("jobs", b"0")
    with start(project, tmp_path, nsqd, DEBUG="1") as process:
        wait_for(tmp_path, "ended b'0'")
        save(project, tmp_path, SLOW_HANDLER.replace('"ended"', '"finished"'), "reloading")
        # The old worker may still take a message while it stops.
        log = tmp_path / "log"
        wait_until(lambda: log.read_text().count("consuming jobs") == 2, LIMIT, "no new worker")
        nsqd.publish("jobs", b"0.01")
        wait_for(tmp_path, "finished b'0.01'")
        # A terminal sends Ctrl-C to both processes; the outer one alone ends the inner one too.
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)
    wait_until(lambda: not clients(nsqd), LIMIT, "the worker lives on")


def test_with_debug_a_mistake_in_the_code_is_waited_out(project, tmp_path, nsqd):
    """A syntax error does not end the command: it starts over when the file is right again."""
    nsqd.publish("jobs", b"0")
    with start(project, tmp_path, nsqd, DEBUG="1") as process:
        wait_for(tmp_path, "ended b'0'")
        save(project, tmp_path, "def handle(message:\n", "SyntaxError")
        nsqd.publish("jobs", b"0.01")
        right = SLOW_HANDLER.replace('"ended"', '"finished"')
        save(project, tmp_path, right, "finished b'0.01'")
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


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_flask_with_debug_restarts_when_code_changes(flask_worker, tmp_path, nsqd, signum):
    """A mistake is waited out, the new handler is used, and a signal ends both processes."""
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
