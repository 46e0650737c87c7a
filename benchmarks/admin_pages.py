"""What open pages of ``nsqclient nsqadmin`` cost it: ``python benchmarks/admin_pages.py``.

Many pages that nobody touches refresh as browsers do, over kept connections. Prints the processor
time of nsqadmin in the second half of the run, when the interval has settled, and its memory.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from nsqclient.devserver import Nsqd


class Page:
    """One open page."""

    def __init__(self, address: tuple[str, int], path: str) -> None:
        self._address, self._path = address, path
        self._serial = 0
        self._received = b""
        self._is_waiting = False
        self.connection: socket.socket | None = None

    def send(self, selector: selectors.BaseSelector) -> None:
        """Ask for the numbers."""
        if self.connection is None:
            self.connection = socket.create_connection(self._address, timeout=30)
            selector.register(self.connection, selectors.EVENT_READ, self)
        self._is_waiting = True
        query = f"?since={self._serial}" if self._path == "/api/live/topics" else ""
        host = f"{self._address[0]}:{self._address[1]}"
        try:
            self.connection.sendall(
                f"GET {self._path}{query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        except OSError:  # the server has closed an idle connection
            self.drop(selector)
            self.send(selector)

    def receive(self, selector: selectors.BaseSelector) -> float | None:
        """Take what has come; return the seconds until the next request, or None: not complete."""
        assert self.connection is not None
        try:
            data = self.connection.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            self.drop(selector)
            if self._is_waiting:  # it was idle for too long: browsers send again, too
                self.send(selector)
            return None
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if length is None or len(body) < int(length[1]):
            return None
        self._received, self._is_waiting = b"", False
        values = json.loads(body)
        self._serial = values["serial"]
        return float(values["interval"])

    def drop(self, selector: selectors.BaseSelector) -> None:
        """Close the connection."""
        if self.connection is not None:
            selector.unregister(self.connection)
            self.connection.close()
            self.connection = None


def processor_time(pid: int) -> float:
    """Return the seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def measure(pid: int, address: tuple[str, int], count: int, seconds: float, path: str) -> str:
    """Run the pages; return a line of figures."""
    rng = random.Random(1)
    selector = selectors.DefaultSelector()
    pages = [Page(address, path) for _ in range(count)]
    start = time.monotonic()
    due = [(start + rng.random() * 2, number) for number in range(count)]
    heapq.heapify(due)
    number_of = {id(page): number for number, page in enumerate(pages)}
    answers, interval, half = 0, 2.0, (0.0, 0.0, 0)
    before = memory(pid)
    while (now := time.monotonic()) < start + seconds:
        if not half[0] and now > start + seconds / 2:
            half = (now, processor_time(pid), answers)
        while due and due[0][0] <= now:
            pages[heapq.heappop(due)[1]].send(selector)
        for key, _ in selector.select(0.05):
            pause = key.data.receive(selector)
            if pause is not None:
                answers, interval = answers + 1, pause
                heapq.heappush(due, (now + pause, number_of[id(key.data)]))
    wall = time.monotonic() - half[0]
    share = 100 * (processor_time(pid) - half[1]) / wall
    for page in pages:
        page.drop(selector)
    return (f"{count} pages of {path}: {share:.1f} % of a core, {memory(pid):.0f} MB"
            f" ({before:.0f} MB without pages), {(answers - half[2]) / wall:.0f} requests/s,"
            f" an interval of {interval:.1f} s")


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=80.0)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        nsqds = [stack.enter_context(Nsqd()) for _ in range(3)]
        for nsqd in nsqds:
            for number in range(20):
                nsqd.create_topic(f"topic-{number}")
        log = Path(stack.enter_context(TemporaryDirectory())) / "log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "nsqclient", "nsqadmin", "--http-address=127.0.0.1:0",
                 *(f"--nsqd-http-address={nsqd.http_address}" for nsqd in nsqds)], stderr=stderr)
        try:
            while not (found := re.search(r"listening on http://(.*):(\d+)", log.read_text())):
                if process.poll() is not None:
                    print(log.read_text(), file=sys.stderr)
                    return 1
                time.sleep(0.1)
            address = found[1], int(found[2])
            for path in ("/api/live/topics", "/api/live/topics/topic-1"):
                print(measure(process.pid, address, arguments.pages, arguments.seconds, path),
                      flush=True)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
