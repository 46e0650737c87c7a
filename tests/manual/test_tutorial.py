"""The tutorial, command by command and program by program, on servers with free ports."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from nsqclient.devserver import Nsqd, Nsqlookupd
from tests.support.pages import ROOT, blocks, commands
from tests.support.waiting import wait_until

PAGE = "docs/tutorial.rst"
QUICK_START = [
    command for block in blocks(PAGE, "console") if block.mark == "quick-start"
    for command in commands(block)
]
#: A tool of the quick start and the usual addresses that its log tells the real ones of.
LISTENS = {
    "nsqlookupd": {"TCP": "127.0.0.1:4160", "HTTP": "127.0.0.1:4161"},
    "nsqd": {"TCP": "127.0.0.1:4150", "HTTP": "127.0.0.1:4151"},
    "nsqadmin": {"HTTP": "127.0.0.1:4171"},
}


class Terminal:
    """Types the commands of the page; servers go on in the background."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def real(self, command: str) -> list[str]:
        """Return the words of a command with free ports, running servers and a folder of ours."""
        for usual, address in self.addresses.items():
            command = command.replace(usual, address)
        return shlex.split(command.replace("/tmp", shlex.quote(str(self.folder))))

    def start(self, command: str) -> None:
        """Start a tool, and learn its addresses where it has some."""
        words = self.real(command)
        name = words[1]
        usual = LISTENS.get(name, {})
        free = [f"--{kind.lower()}-address=127.0.0.1:0" for kind in usual]
        log = self.folder / f"{name}.stderr"
        with log.open("wb") as stderr:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *words, *free], stdout=stderr, stderr=stderr)
        for kind, address in usual.items():
            pattern = re.compile(rf"{kind}: listening on (\S+)")
            wait_until(lambda: pattern.search(log.read_text()), 40, f"{name} does not listen")
            found = pattern.search(log.read_text())
            assert found is not None
            self.addresses[address] = found[1]

    def curl(self, command: str) -> str:
        """Do what curl would do."""
        words = self.real(command)
        assert words[:2] == ["curl", "-d"]
        return requests.post(words[3], data=words[2].encode(), timeout=10).text

    def end(self, name: str) -> int:
        """Press Ctrl-C; return the exit status."""
        self.processes[name].send_signal(signal.SIGINT)
        return self.processes[name].wait(30)


@pytest.fixture
def terminal(leak_guard: None, tmp_path: Path) -> Iterator[Terminal]:
    """Return a terminal whose processes end with the test."""
    found = Terminal(tmp_path)
    yield found
    for process in found.processes.values():
        process.kill()
        process.wait()


def test_the_quick_start_command_by_command(terminal: Terminal) -> None:
    """nsqlookupd, nsqd, nsqadmin, a publish, nsq_to_file, two more; then the file has all three."""
    published, kinds = [], []
    for command in QUICK_START:
        kinds.append(command.split()[1] if command.startswith("nsqclient") else command.split()[0])
        if kinds[-1] == "curl":
            assert terminal.curl(command) == "OK"
            published.append(shlex.split(command)[2])
        elif kinds[-1] == "cat":
            stats = f"http://{terminal.addresses['127.0.0.1:4151']}/stats?format=json"
            wait_until(lambda: _taken(stats) == 3, 40, "nsq_to_file did not get everything")
            assert terminal.end("nsq_to_file") == 0
            files = list(terminal.folder.glob("test.*.log"))
            assert sorted(files[0].read_text().splitlines()) == published
        else:
            terminal.start(command)
    assert kinds == ["nsqlookupd", "nsqd", "nsqadmin", "curl", "nsq_to_file", "curl", "curl", "cat"]
    assert len(published) == 3
    put = f"http://{terminal.addresses['127.0.0.1:4151']}/put?topic=test"
    assert requests.post(put, data=b"x", timeout=10).status_code == 404


def _taken(stats: str) -> int:
    """Return how many messages are with nsq_to_file or already finished."""
    [topic] = requests.get(stats, timeout=10).json()["topics"]
    return sum(
        channel["message_count"] - channel["depth"]
        for channel in topic["channels"] if channel["channel_name"] == "nsq_to_file"
    )


def program(mark: str, nsqd: Nsqd, lookupd: Nsqlookupd) -> str:
    """Return a program of the page, for running servers."""
    [block] = [block for block in blocks(PAGE, "python") if block.mark == mark]
    text = block.text.replace("127.0.0.1:4150", nsqd.tcp_address)
    return text.replace("127.0.0.1:4161", lookupd.http_address)


def test_the_worker_handles_orders_and_keeps_what_fails(tmp_path: Path) -> None:
    """shop.py publishes, worker.py prints three mails, and the fourth is a dead letter."""
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        exec(compile(program("shop", nsqd, lookupd), "shop.py", "exec"), {})
        (tmp_path / "worker.py").write_text(program("worker", nsqd, lookupd))
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with subprocess.Popen(
            [sys.executable, "worker.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) as worker:
            try:
                assert worker.stdout is not None
                mails = sorted(worker.stdout.readline().strip() for _ in range(3))
                nsqd.wait_until_empty("orders", "mail", timeout=40)
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(20) == 0
            finally:
                worker.kill()
    assert mails == [f"mail to {name}, attempt 1" for name in ("ada", "grace", "joan")]
    [letter] = (tmp_path / "dead-letters").glob("*.body")
    assert letter.read_bytes() == b"this is not JSON"


def test_the_test_of_the_tutorial_passes() -> None:
    """Part three runs as it stands."""
    [block] = [block for block in blocks(PAGE, "python") if block.mark == "test"]
    with contextlib.redirect_stdout(None):
        exec(compile(block.text, PAGE, "exec"), {})
