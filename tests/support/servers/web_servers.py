"""The example projects under real gunicorn, and commands of theirs as processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import requests

from tests.support.processes import CHECKOUT, LIMIT
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

EXAMPLES = CHECKOUT / "examples"
#: framework -> (folder, WSGI application, path to post to, field that names what was posted, topic)
PROJECTS = {
    "django": (EXAMPLES / "django_shop", "shop.wsgi", "orders", "reference", "orders"),
    "flask": (EXAMPLES / "flask_thumbnails", "app:create_app()", "pictures", "name", "pictures"),
}


def environment(tmp_path: Path, nsqd: str, **more: str) -> dict[str, str]:
    """The environment of a project whose database is in ``tmp_path``."""
    return {
        **os.environ, "PYTHONPATH": str(CHECKOUT), "DATABASE": str(tmp_path / "db.sqlite3"),
        "THUMBNAILS": str(tmp_path / "thumbnails"), "NSQD_TCP_ADDRESS": nsqd,
        "PYTHONUNBUFFERED": "1", **more,
    }


@contextlib.contextmanager
def program(
    folder: Path, env: dict[str, str], log: Path, *words: str
) -> Iterator[subprocess.Popen[str]]:
    """A Python program that runs until the block ends; its output goes to ``log``."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=env, stdout=output,
            stderr=subprocess.STDOUT, text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[str], signum: int = signal.SIGTERM) -> int:
    """Send SIGTERM to a program; return its exit status."""
    process.send_signal(signum)
    return process.wait(LIMIT)


class Gunicorn:
    """An example project under gunicorn; use it in ``with``.

    Args:
        flags: of gunicorn, such as ``--preload``.
    """

    def __init__(self, framework: str, tmp_path: Path, nsqd: str, *flags: str) -> None:
        folder, application, self._path, self._field, self.topic = PROJECTS[framework]
        self._folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = tmp_path / "gunicorn.log"
        self._env = environment(tmp_path, nsqd)
        if framework == "django":
            subprocess.run(
                [sys.executable, "manage.py", "migrate", "-v", "0"], cwd=folder, env=self._env,
                check=True, timeout=LIMIT)
        self._words = (
            "-m", "gunicorn", application, "--bind", self.url.removeprefix("http://"),
            "--graceful-timeout", "15", "--no-control-socket", *flags,
        )
        self._lock = threading.Lock()
        self.accepted: set[str] = set()  # guarded by _lock, as below
        self.failed: list[str] = []
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Gunicorn:
        self.process = self._running.enter_context(
            program(self._folder, self._env, self._log, *self._words))
        wait_until(self.is_ready, 30, f"the project is not ready: see {self._log}")
        return self

    def __exit__(self, *exc: object) -> None:
        self._running.close()

    def log(self) -> str:
        return self._log.read_text()

    def is_ready(self) -> bool:
        with contextlib.suppress(requests.ConnectionError):
            return requests.get(f"{self.url}/ready", timeout=10).ok
        return False

    def post(self, name: str) -> None:
        """Publish one message through a view; note the outcome.

        A connection that gunicorn refused or dropped does not count: no client got an answer
        that the message is stored.
        """
        try:
            answer = requests.post(
                f"{self.url}/{self._path}", {self._field: name, "cents": "1"}, timeout=20)
        except requests.ConnectionError:
            return
        with self._lock:
            if answer.ok:
                self.accepted.add(name)
            else:
                self.failed.append(f"{name}: {answer.status_code} {answer.text[:300]}")

    def reload(self) -> None:
        """Replace all workers gracefully; wait until the new ones work."""
        before = self.log().count("Booting worker")
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log().count("Booting worker") > before, LIMIT, "no new workers")
