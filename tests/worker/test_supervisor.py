"""The supervisor's decisions: restarts by value, and children that are small programs."""

import os
import signal
import socket
import subprocess
import sys
import threading
import types

import pytest

from nsqclient.worker import supervisor as module
from nsqclient.worker.lifeline import Child, spawn
from nsqclient.worker.supervisor import MOST_DEATHS, RestartPolicy, SourceWatch, Supervisor

#: Reports that it consumes, then does what follows.
STARTED = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.send(b'{}\\n');"
#: Lives until SIGTERM, and then ends with 0.
GOOD = ("import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));"
        + STARTED + " s.recv(1)")


def test_pauses_between_deaths_at_once_grow_until_the_fifth():
    policy = RestartPolicy()
    pauses = [policy.on_death(0.1, False) for _ in range(MOST_DEATHS)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, None]


def test_a_child_that_worked_for_a_minute_starts_again_at_once():
    """And the deaths before it are forgotten; a child that never came to consume has not worked."""
    policy = RestartPolicy()
    assert policy.on_death(1, True) == 0.5
    assert policy.on_death(60, False) == 1.0
    assert policy.deaths == 2
    assert policy.on_death(60, True) == 0.0 and policy.deaths == 0
    assert policy.on_death(1, True) == 0.5


def test_a_child_that_dies_every_few_seconds_starts_again_after_longer_and_longer_pauses():
    policy = RestartPolicy()
    pauses = [policy.on_death(6, True) for _ in range(9)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0] and policy.deaths == 0


@pytest.fixture
def process():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield module._Process(Child(types.SimpleNamespace(pid=1), ours), 0.0), theirs


def test_a_supervisor_that_was_suspended_kills_no_child(process):
    """Ctrl-Z suspends its children as well: their reports come a moment after its own return."""
    child, _ = process
    child.look(3600.0)
    assert child.silent_for == 1.0


def test_a_report_begins_the_time_of_a_child_anew(process):
    """A handler may take longer than --hang-timeout."""
    child, theirs = process
    child.look(0.5)
    child.look(0.4)
    assert child.silent_for == 0.9
    theirs.send(b"{}\n")
    child.read(0.0)
    assert child.is_started and child.silent_for == 0.0


def test_a_changed_source_is_found_once(tmp_path):
    sources = SourceWatch(tmp_path)
    assert sources.changed() == ""
    (tmp_path / "shop.py").write_text("")
    assert sources.changed() == str(tmp_path / "shop.py") and sources.changed() == ""


def test_a_folder_that_disappears_during_the_scan_is_passed_over(tmp_path, monkeypatch):
    """As with git checkout, npm and pytest."""
    (tmp_path / "gone").mkdir()
    scandir = os.scandir

    def remove(path):
        if os.fspath(path).endswith("gone") and os.path.exists(path):
            os.rmdir(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", remove)
    sources = SourceWatch(tmp_path)
    assert sources.changed() == "" and not (tmp_path / "gone").exists()


@pytest.mark.parametrize("folder", [".venv", ".git", "env", "node_modules", "shop/__pycache__"])
def test_folders_with_no_code_of_the_worker_are_not_watched(tmp_path, folder):
    sources = SourceWatch(tmp_path)
    path = tmp_path / folder
    path.mkdir(parents=True)
    if folder == "env":
        (path / "pyvenv.cfg").write_text("")
    (path / "module.py").write_text("")
    assert sources.changed() == ""


def test_a_deployment_by_symbolic_link_is_a_change(tmp_path, monkeypatch):
    for name in ("1", "2"):
        (tmp_path / name / "shop").mkdir(parents=True)
        (tmp_path / name / "shop" / f"release{name}.py").write_text("")
    link = tmp_path / "current"
    link.symlink_to("1")
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    sources = SourceWatch(tmp_path / "1" / "shop")
    link.unlink()
    link.symlink_to("2")
    assert sources.changed() == str(link / "shop" / "release2.py")


def test_a_child_whose_folder_is_gone_is_not_started(tmp_path):
    with pytest.raises(OSError, match=f"the folder {tmp_path}/gone is gone: start the worker in"):
        spawn("process 1", True, str(tmp_path / "gone"))


@pytest.fixture
def supervise(monkeypatch):
    started = []

    def run(*programs: str, processes: int = 1, on_start=None, **options) -> int:
        def spawn(role: str, is_first: bool, folder: str) -> Child:
            ours, theirs = socket.socketpair()
            code = programs[min(len(started), len(programs) - 1)]
            child = subprocess.Popen([sys.executable, "-S", "-c", code, str(theirs.fileno())],
                                     pass_fds=[theirs.fileno()])
            theirs.close()
            ours.setblocking(False)
            started.append((role, child))
            if on_start is not None:
                on_start(len(started), child)
            return Child(child, ours)

        monkeypatch.setattr(module, "spawn", spawn)
        monkeypatch.setattr("nsqclient.worker.supervisor._FIRST_PAUSE", 0.0)
        return Supervisor(processes, 0.0, **options).run()

    run.started = started
    return run


@pytest.mark.parametrize("program", [
    STARTED + "sys.exit(7)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_child_that_dies_at_once_five_times_ends_the_worker(supervise, caplog, program):
    """A crash before it consumes may be chance; an exit status of its own is not."""
    assert supervise(program) == 3
    assert len(supervise.started) == MOST_DEATHS
    assert "process 1 ended right after its start 5 times in a row" in caplog.text


@pytest.mark.parametrize("status", [1, 2])
def test_a_first_child_that_cannot_start_ends_the_worker(supervise, status):
    assert supervise(f"import sys; sys.exit({status})", processes=4) == status
    assert len(supervise.started) == 1


def test_a_child_that_does_not_stop_is_killed_in_time(supervise, monkeypatch, caplog):
    monkeypatch.setattr(module, "_GRACE", 0.2)
    stubborn = STARTED + (
        "import signal, os; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        " os.kill(os.getppid(), signal.SIGTERM); s.recv(1)")
    assert supervise(stubborn) == 1
    assert "did not end in time and is killed" in caplog.text


def test_a_child_that_hangs_is_killed_and_started_again(supervise, caplog):
    def on_start(count, child):
        if count == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    hanging = STARTED + "import signal; signal.pause()"
    assert supervise(hanging, GOOD, on_start=on_start, hang_timeout=0.2) == 0
    assert "hangs: it has reported nothing for 0.2 s, and is killed" in caplog.text
    assert "was ended by SIGKILL; it starts again" in caplog.text


def test_a_child_that_does_not_consume_yet_has_no_limit(supervise):
    """To import a large model may take minutes."""
    slow = ("import os, select, signal; select.select([], [], [], 1.0);"
            " os.kill(os.getppid(), signal.SIGTERM); select.select([], [], [], 60)")
    assert supervise(slow, hang_timeout=0.2) == 0
    assert len(supervise.started) == 1


def test_all_processes_follow_the_first(supervise):
    ended = threading.Event()

    def on_start(count, child):
        if count == 3 and not ended.is_set():
            ended.set()
            os.kill(os.getpid(), signal.SIGTERM)

    assert supervise(GOOD, processes=3, on_start=on_start) == 0
    assert [role for role, _ in supervise.started] == ["process 1", "process 2", "process 3"]


def test_sighup_replaces_one_process_at_a_time(supervise):
    """The next one is replaced when the former one has ended, which takes each a moment."""
    alive = []
    slow = GOOD.replace("sys.exit(0)", "(select.select([], [], [], 0.2), sys.exit(0))")

    def on_start(count, child):
        alive.append(sum(each.poll() is None for _, each in supervise.started))
        if count == 3:
            os.kill(os.getpid(), signal.SIGHUP)
        if count == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    assert supervise("import select; " + slow, processes=3, on_start=on_start) == 0
    assert alive == [1, 2, 3, 4, 4, 4]


def test_a_successor_that_is_not_healthy_does_not_take_over(supervise, caplog):
    """The old child continues until the new one is healthy, or has run for some seconds."""
    caplog.set_level("INFO")
    unhealthy = STARTED.replace(
        "b'{}\\n'", """b'{"consumers": {"orders/billing": [false, "backing off"]}}\\n'""") + (
        "import os, select, signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));"
        " select.select([], [], [], 1.5); os.kill(os.getppid(), signal.SIGTERM); s.recv(1)")

    def on_start(count, child):
        if count == 1:
            os.kill(os.getpid(), signal.SIGHUP)

    assert supervise(GOOD, unhealthy, on_start=on_start) == 0
    assert caplog.text.count("process 1 runs with pid") == 1


def test_where_no_process_can_be_made_the_worker_ends(monkeypatch, caplog):
    def spawn(role, is_first, folder):
        raise OSError("too many processes")

    monkeypatch.setattr(module, "spawn", spawn)
    monkeypatch.setattr("nsqclient.worker.supervisor._FIRST_PAUSE", 0.0)
    assert Supervisor(1, 0.0).run() == 3
    assert "too many processes" in caplog.text


def test_the_handlers_of_signals_are_put_back(supervise):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    before = [signal.getsignal(number) for number in numbers]
    supervise("import sys; sys.exit(2)")
    assert [signal.getsignal(number) for number in numbers] == before
