"""The Django project, from the first migration to the last receipt, in one command.

Starts an embedded nsqlookupd and nsqd, gunicorn with two workers and ``manage.py nsq_consume``,
orders 100 things, waits for their receipts, and stops everything in order.

    python examples/django_shop/run.py
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
ORDERS = 100
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
    process = subprocess.Popen([sys.executable, *words], cwd=HERE, env=env)
    try:
        yield
        process.terminate()
        if process.wait(PATIENCE) != 0:
            raise SystemExit(f"{words[0]} ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Order, wait for the receipts, and print the result."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        lookupd = stack.enter_context(Nsqlookupd())
        nsqd = stack.enter_context(Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]))
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        env = {
            **os.environ, "DATABASE": str(Path(folder) / "shop.sqlite3"),
            "NSQD_TCP_ADDRESS": nsqd.tcp_address, "LOOKUPD_HTTP_ADDRESS": lookupd.http_address,
        }
        manage = str(HERE / "manage.py")
        subprocess.run([sys.executable, manage, "migrate", "-v", "0"], env=env, check=True)
        stack.enter_context(running(
            env, "-m", "gunicorn", "shop.wsgi", "--workers", "2", "--bind", address,
            "--log-level", "warning", "--no-control-socket",
        ))
        stack.enter_context(running(
            env, manage, "nsq_consume", "shop.handlers.write_receipt", "--topic", "orders",
            "--channel", "receipts", "--workers", "2", "--atomic",
        ))
        session = stack.enter_context(requests.Session())

        def ready() -> bool:
            with contextlib.suppress(requests.ConnectionError, requests.Timeout):
                return session.get(f"http://{address}/ready", timeout=5).ok
            return False

        def count() -> dict[str, int]:
            counts: dict[str, int] = session.get(f"http://{address}/orders", timeout=5).json()
            return counts

        wait_until(ready, "the shop is not ready")
        for number in range(ORDERS):
            order = {"reference": f"order-{number}", "cents": 100 + number}
            session.post(f"http://{address}/orders", order, timeout=10).raise_for_status()
        wait_until(lambda: count()["receipts"] == ORDERS, "receipts are missing")
        print("{orders} orders, {receipts} receipts".format(**count()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
