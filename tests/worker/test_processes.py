"""``nsqclient worker --processes``: children that die, are replaced, and are never left behind."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.processes import LIMIT
from tests.support.waiting import wait_until
from tests.worker.conftest import lives, save


@pytest.fixture
def pair(worker, nsqd):
    running = worker("shop", "--processes=2")
    nsqd.create_topic("orders")
    nsqd.create_channel("orders", "billing")
    wait_until(lambda: clients(nsqd) == 2, LIMIT, "two processes do not consume")
    return running


def clients(nsqd) -> int:
    (topic,) = nsqd.stats("orders", "billing")["topics"]
    return len(topic["channels"][0]["clients"])


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_running_handlers_finish_in_every_process(pair, nsqd, signum):
    nsqd.publish_many("orders", [b"1"] * 8)  # more than one process may have at once
    wait_until(lambda: len({pid for _, _, pid in pair.ledger}) == 2, LIMIT)
    began, pids = len(pair.handled("began")), pair.children()
    for pid in pids:
        os.kill(pid, signum)
    assert pair.end(signum) == 0, pair.log
    assert len(pair.handled()) >= began
    assert len(pids) == 2 and not any(map(lives, pids))
    assert pair.log.count("consuming orders on channel billing") == 1


def test_a_killed_supervisor_leaves_no_child(pair, nsqd):
    nsqd.publish("orders", b"1")
    wait_until(lambda: pair.handled("began"), LIMIT)
    pids = pair.children()
    pair.process.kill()
    pair.process.wait()
    wait_until(lambda: not any(map(lives, pids)), LIMIT / 3, "children live on")
    assert pair.handled() == ["1"]


def test_sighup_with_broken_code_changes_nothing(pair, nsqd, project):
    before = set(pair.children())
    # It fails after the supervisor has looked at it once or twice.
    save(project, code="import threading\nthreading.Event().wait(1.5)\n1 / 0\n")
    pair.process.send_signal(signal.SIGHUP)
    pair.wait_for("so the old process continues")
    assert set(pair.children()) == before
    nsqd.publish("orders", b"x")
    wait_until(lambda: pair.handled() == ["x"], LIMIT)
    assert pair.end() == 0


def test_sighup_after_a_deployment_runs_the_release_that_the_link_names(
    worker, nsqd, project, tmp_path
):
    """The worker was started in a symbolic link; the folder of its first release is removed."""
    link, second = tmp_path / "current", tmp_path / "second"
    link.symlink_to(project)
    second.mkdir()
    save(second, verb="second")
    running = worker("shop", "--processes=1", folder=link)
    running.wait_for("consuming orders on channel billing")
    link.unlink()
    link.symlink_to(second)
    project.rename(tmp_path / "removed")
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(running.children()) == 2, LIMIT)
    wait_until(lambda: len(running.children()) == 1, LIMIT)
    nsqd.publish("orders", b"x")
    wait_until(lambda: running.handled("second") == ["x"], LIMIT)
    assert running.end() == 0


def test_a_second_signal_kills_the_children(pair, nsqd):
    nsqd.publish("orders", b"60")
    wait_until(lambda: pair.handled("began"), LIMIT)
    pids = pair.children()
    pair.process.send_signal(signal.SIGTERM)
    pair.wait_for("stopping: received a signal")
    assert pair.end() == 128 + signal.SIGTERM and not any(map(lives, pids))


def test_the_programs_of_handlers_are_no_children_of_the_worker(worker, nsqd, project):
    save(project, code="""
import os, nsqclient
@nsqclient.handler("orders", "billing")
def bill(message):
    with open("ledger", "a") as ledger:
        ledger.write(f"variable {'NSQCLIENT_WORKER_PARENT' in os.environ} 0\\n")
""")
    running = worker("shop", "--processes=1")
    nsqd.publish("orders", b"x")
    wait_until(lambda: running.handled("variable"), LIMIT)
    assert running.handled("variable") == ["False"]
    assert running.end() == 0


@pytest.mark.parametrize("words", [[], ["--processes=1"]], ids=["alone", "supervised"])
def test_a_handler_may_use_multiprocessing_with_fork(worker, nsqd, project, words):
    save(project, code="""
import multiprocessing, signal, subprocess, sys
import nsqclient

context = multiprocessing.get_context("fork")

@nsqclient.handler("orders", "billing")
def bill(message):
    child = context.Process(target=signal.pause)
    child.start()
    child.terminate()
    child.join()
    with context.Pool(1) as pool:
        pool.apply(int)
    program = subprocess.run(
        [sys.executable, "-c", "import signal; print(signal.getsignal(15) == signal.SIG_DFL)"],
        stdout=subprocess.PIPE, text=True)
    with open("ledger", "a") as ledger:
        print("ended", child.exitcode, 0, file=ledger)
        print("has", program.stdout.strip(), 0, file=ledger)
""")
    running = worker("shop", *words)
    nsqd.publish("orders", b"x")
    wait_until(lambda: running.handled("has"), LIMIT)
    assert running.handled("ended") == ["-15"]
    assert running.handled("has") == ["True"]
    assert running.end() == 0


def test_a_signal_while_the_interpreter_ends_does_not_change_the_status():
    """The supervisor sends SIGTERM to a child that a terminal's Ctrl-C has stopped already."""
    program = """
import os, signal
from types import SimpleNamespace
from nsqclient.worker.runner import _consume

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, 15)

late = Late()
group = SimpleNamespace(
    consumers=[], start=lambda: signal.raise_signal(signal.SIGINT), stop=lambda timeout: [],
    health=dict, metrics=None)
lifeline = SimpleNamespace(is_first=False, report=lambda **state: None)
assert _consume(group, SimpleNamespace(stop_timeout=1.0), print, lifeline) == 0
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=LIMIT, check=False)
    assert ended.returncode == 0
