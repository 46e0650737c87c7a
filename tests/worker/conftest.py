"""A project with handlers, and ``nsqclient worker`` as a process in its folder."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import CHECKOUT, LIMIT, user_environment
from tests.support.waiting import wait_until

#: Notes handled messages, and the process.
HANDLERS = """
import os, threading
import nsqclient

def note(*words):
    with open("ledger", "a") as ledger:
        ledger.write(" ".join(map(str, words)) + "\\n")

@nsqclient.handler("orders", "billing", workers=2, max_in_flight=4)
def bill(message):
    note("began", message.body.decode(), os.getpid())
    threading.Event().wait(float(message.body) if message.body.isdigit() else 0)
    note("VERB", message.body.decode(), os.getpid())
"""


class Worker:
    def __init__(self, folder: Path, nsqd: str, *words: str) -> None:
        self.folder = folder
        self.seen: set[int] = set()  # children, also those that its end has orphaned
        self._log = folder.parent / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nsqclient", "worker", *words, "--nsqd-tcp-address", nsqd],
                cwd=folder, stdout=log, stderr=subprocess.STDOUT,
                env={**user_environment(), "PWD": str(folder), "PYTHONPATH": str(CHECKOUT),
                     "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def ledger(self) -> list[list[str]]:
        path = self.folder / "ledger"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def handled(self, verb: str = "handled") -> list[str]:
        return [body for word, body, _ in self.ledger if word == verb]

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.log or self.process.poll() is not None, LIMIT)
        assert text in self.log, self.log

    def url(self, path: str) -> str:
        pattern = re.compile(rf"answering .*{path}\b.* on (http://\S+)")
        found = wait_until(lambda: pattern.search(self.log), LIMIT, f"it does not answer {path}")
        return f"{found[1]}{path}"

    def children(self) -> list[int]:
        found = children(self.process.pid)
        self.seen |= set(found)
        return found

    def end(self, signum: int = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(LIMIT)


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    save(folder)
    return folder


def save(folder: Path, verb: str = "handled", code: str = HANDLERS) -> None:
    new = folder / "shop.new"
    new.write_text(code.replace("VERB", verb))
    os.replace(new, folder / "shop.py")


@pytest.fixture
def worker(project: Path, nsqd) -> Iterator[object]:
    started: list[Worker] = []

    def start(*words: str, folder: Path = project) -> Worker:
        started.append(Worker(folder, nsqd.tcp_address, *words))
        return started[-1]

    yield start
    for each in started:
        each.children()
        each.process.kill()
        each.process.wait()
        for pid in each.seen:
            with contextlib.suppress(OSError):
                if b"nsqclient" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
