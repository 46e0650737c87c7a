"""Compare the embedded nsqd with the real one: ``python -m benchmarks.devserver [messages]``.

For each server: the time until /ping answers, the memory of an idle server, the time to stop, the
rates of MPUB and of a consumer, and the cost of 500 clients on channels of their own. Rates are
also given per second of the server's processor time, since other programs on the machine make
every time longer. Needs the programs that tools/build_nsq.py builds.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import requests

from tests.support.servers.ports import free_port
from tests.support.servers.raw_client import RawClient
from tests.support.servers.real_servers import program
from tests.support.waiting import wait_until

_PER_MPUB = 5000
_SIZE = 100
_STARTS = 9
_CLIENTS = 500
_RDY = 2500
_EMBEDDED = [sys.executable, "-m", "nsqclient", "nsqd"]
_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """An nsqd process; started by the constructor."""

    def __init__(self, words: list[str]) -> None:
        self.tcp, self.http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        environment = dict(os.environ)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
        began = time.monotonic()
        self.process = subprocess.Popen([
            *words, f"--tcp-address={self.tcp}", f"--http-address={self.http}",
            "--broadcast-address=127.0.0.1", "--log-level=fatal",
        ], env=environment)
        wait_until(self.answers, timeout=60)
        self.start_seconds = time.monotonic() - began
        self.start_cpu = self.cpu()

    def answers(self) -> bool:
        """Whether /ping does."""
        host, _, port = self.http.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
                return b"200 OK" in connection.recv(1024)
        except OSError:
            return False

    def cpu(self) -> float:
        """The processor time that it has used, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def threads(self) -> int:
        """How many threads it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("Threads:")[1].split()[0])

    def post(self, path: str) -> None:
        """POST to the HTTP API."""
        requests.post(f"http://{self.http}{path}", timeout=60).raise_for_status()

    def memory(self) -> float:
        """Its resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self) -> float:
        """Stop it; return how long that took."""
        began = time.monotonic()
        self.process.terminate()
        self.process.wait()  # without a limit: with one, subprocess polls every 50 ms
        return time.monotonic() - began

    def fill(self, count: int) -> None:
        """Publish messages to the topic ``t``."""
        publish(self.tcp, count)


def publish(address: str, count: int) -> None:
    """Publish messages to the topic ``t``."""
    message = _SIZE.to_bytes(4, "big") + b"x" * _SIZE
    with RawClient(address) as client:
        for done in range(0, count, _PER_MPUB):
            number = min(_PER_MPUB, count - done)
            body = number.to_bytes(4, "big") + message * number
            client.ask(b"MPUB t\n" + len(body).to_bytes(4, "big") + body)


def consume(address: str, count: int) -> None:
    """Receive messages of ``t``, and write the FINs of each read at once."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"  V2SUB t c\nRDY %d\n" % _RDY)
        data, left = b"", count
        while left:
            received = connection.recv(256 * 1024)
            if not received:
                raise SystemExit(f"{address} has closed the connection; {left} messages are left")
            data += received
            at, answers = 0, []
            while len(data) >= at + 8:
                end = at + 4 + int.from_bytes(data[at:at + 4], "big")
                if len(data) < end:
                    break
                if data[at + 7] == 2:  # a message; its id stands behind time and attempts
                    answers.append(b"FIN " + data[at + 18:at + 34] + b"\n")
                at = end
            data = data[at:]
            left -= len(answers)
            connection.sendall(b"".join(answers))


def rated(server: Server, count: int, work: Callable[[], None]) -> str:
    """Do some work with ``count`` messages; return the rates."""
    began, cpu = time.monotonic(), server.cpu()
    work()
    seconds, used = time.monotonic() - began, max(server.cpu() - cpu, 1 / _TICKS)
    return f"{count / seconds:9,.0f}/s {count / used:9,.0f} per CPU second"


def measure_starts(kind: str, words: list[str]) -> None:
    """Start and stop it several times; print the median and the shortest of each."""
    starts, stops, cpus, memory = [], [], [], 0.0
    for _ in range(_STARTS):
        server = Server(words)
        starts.append(server.start_seconds)
        cpus.append(server.start_cpu)
        memory = server.memory()
        stops.append(server.stop())
    print(f"{kind}: /ping after {statistics.median(starts):.2f} s (shortest {min(starts):.2f} s,"
          f" CPU {min(cpus):.2f} s), stop {statistics.median(stops):.3f} s (shortest"
          f" {min(stops):.3f} s), idle {memory:.1f} MB", flush=True)


def measure_rates(kind: str, words: list[str], count: int) -> None:
    """Print how fast it takes messages, and delivers them."""
    server = Server(words)
    print(f"{kind}: MPUB    {rated(server, count, lambda: server.fill(count))}")
    print(f"{kind}: consume {rated(server, count, lambda: consume(server.tcp, count))}", flush=True)
    server.stop()


def measure_clients(kind: str, words: list[str]) -> None:
    """Print what clients cost that are subscribed and get nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = Server(words)
    before, began = server.memory(), time.monotonic()
    clients = [RawClient(server.tcp) for _ in range(_CLIENTS)]
    for number, client in enumerate(clients):
        client.subscribe("t", f"c{number}")
    took = time.monotonic() - began
    cpu = server.cpu()
    threading.Event().wait(10)
    print(f"{kind}: {_CLIENTS} idle clients on {_CLIENTS} channels: {server.threads()} threads,"
          f" {server.memory() - before:.1f} MB, subscribed in {took:.2f} s,"
          f" {(server.cpu() - cpu) / 10:.3f} of a processor", flush=True)
    for client in clients:
        client.close()
    server.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def main() -> None:
    """Measure the servers side by side."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    real = [str(program("nsqd"))]
    for kind, words, work in (
        ("real", real, measure_starts),
        ("embedded", _EMBEDDED, measure_starts),
        ("real, disk", [*real, "--mem-queue-size=0"],
         lambda kind, words: measure_rates(kind, words, count // 3)),
        ("embedded, disk", [*_EMBEDDED, "--mem-queue-size=0"],
         lambda kind, words: measure_rates(kind, words, count // 3)),
        ("real, memory", [*real, f"--mem-queue-size={count}"],
         lambda kind, words: measure_rates(kind, words, count // 3)),
        ("embedded, memory", [*_EMBEDDED, f"--mem-queue-size={count}"],
         lambda kind, words: measure_rates(kind, words, count // 3)),
        ("real", real, measure_clients),
        ("embedded", _EMBEDDED, measure_clients),
    ):
        folder = tempfile.mkdtemp(prefix="nsqclient-bench-")
        try:
            work(kind, [*words, f"--data-path={folder}"])
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
