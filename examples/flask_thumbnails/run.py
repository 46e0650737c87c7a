"""The Flask app with its worker, in one command.

Starts an embedded nsqlookupd and nsqd, gunicorn with two workers and ``flask nsq consume``,
announces 100 pictures, waits for their thumbnails, and stops everything in order.

    python examples/flask_thumbnails/run.py
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import requests

from nsqclient.devserver import Nsqd, Nsqlookupd

HERE = Path(__file__).resolve().parent
PICTURES = 100
#: Seconds that anything here may take.
PATIENCE = 60.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look again and again until it is true."""
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {PATIENCE:g} s: {what}")
        pause.wait(0.05)


@contextlib.contextmanager
def running(env: dict[str, str], *words: str) -> Iterator[None]:
    """A program that gets SIGTERM at the end, and must stop in order."""
    process = subprocess.Popen([sys.executable, "-m", *words], cwd=HERE, env=env)
    try:
        yield
        process.terminate()
        if process.wait(PATIENCE) != 0:
            raise SystemExit(f"{words[0]} ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Announce images, wait for the thumbnails, and print the result."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        lookupd = stack.enter_context(Nsqlookupd())
        nsqd = stack.enter_context(Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]))
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        env = {
            **os.environ, "THUMBNAILS": str(Path(folder) / "thumbnails"),
            "NSQD_TCP_ADDRESS": nsqd.tcp_address, "LOOKUPD_HTTP_ADDRESS": lookupd.http_address,
        }
        stack.enter_context(running(
            env, "gunicorn", "app:create_app()", "--workers", "2", "--bind", address,
            "--log-level", "warning", "--no-control-socket",
        ))
        stack.enter_context(running(env, "flask", "--app", "app", "nsq", "consume"))
        session = stack.enter_context(requests.Session())

        def ready() -> bool:
            with contextlib.suppress(requests.ConnectionError, requests.Timeout):
                return session.get(f"http://{address}/ready", timeout=5).ok
            return False

        def thumbnails() -> int:
            answer = session.get(f"http://{address}/thumbnails", timeout=5).json()
            return int(answer["thumbnails"])

        wait_until(ready, "the app is not ready")
        for number in range(PICTURES):
            session.post(
                f"http://{address}/pictures", {"name": f"picture-{number}"}, timeout=10
            ).raise_for_status()
        wait_until(lambda: thumbnails() == PICTURES, "thumbnails are missing")
        print(f"{PICTURES} pictures, {thumbnails()} thumbnails")
    return 0


if __name__ == "__main__":
    sys.exit(main())
