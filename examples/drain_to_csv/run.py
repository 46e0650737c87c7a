"""The job ``export.py`` with servers, in one command: runs it twice, and checks the file.

    python examples/drain_to_csv/run.py
"""

from __future__ import annotations

import contextlib
import csv
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from nsqclient import Producer
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.errors import NSQHTTPStatusError
from nsqclient.http import NsqlookupdHTTP

HERE = Path(__file__).resolve().parent
ORDERS = 500
#: Seconds that anything here may take.
PATIENCE = 60.0


def wait_for_topic(lookupd: Nsqlookupd) -> None:
    """Wait until the nsqlookupd lists an nsqd that has the topic."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    with NsqlookupdHTTP(lookupd.http_address) as http:
        while time.monotonic() < deadline:
            with contextlib.suppress(NSQHTTPStatusError):  # not known yet
                if http.lookup("orders").producers:
                    return
            pause.wait(0.05)
    raise SystemExit("the topic was not registered")


def main() -> int:
    """Publish, run the job, publish again, run it again."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lookupd = stack.enter_context(Nsqlookupd())
        nsqd = stack.enter_context(Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]))
        producer = stack.enter_context(Producer([nsqd.tcp_address]))
        path = folder / "orders.csv"
        for night in (1, 2):
            for number in range(ORDERS):
                producer.publish_json("orders", {"customer": "Zoë", "total": number})
            producer.publish("orders", b"no JSON")
            wait_for_topic(lookupd)
            subprocess.run([sys.executable, str(HERE / "export.py"), lookupd.http_address,
                            str(path)], check=True, timeout=PATIENCE)
            with path.open(newline="") as file:
                rows = list(csv.reader(file))
            print(f"night {night}: {len(rows)} rows, {len({row[0] for row in rows})} orders")
        return 0 if len({row[0] for row in rows}) == 2 * ORDERS else 1


if __name__ == "__main__":
    sys.exit(main())
