"""The embedded nsqd beside the real one: start, stop, memory, rates, idle clients, long moves.

``python -m benchmarks.devserver [messages]``. For each server: the start until /ping answers, an
idle server's memory, the stop; the rates of MPUB and of a consumer; 500 clients on channels of
their own; and how long a publisher waits while a backlog moves: its slowest publish before and
during each event. Other programs on the machine make every time longer, so rates also stand per
second of the server's processor time, and the end is the longest processor time for which the
embedded server's lock is held. Needs the programs that tools/build_nsq.py makes.
"""

from __future__ import annotations

import gc
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

from nsqclient.devserver import Nsqd
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
    """Take messages of ``t``, and finish those of each read together: less work than nsqd's."""
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
    """Do some work with so many messages; return the rates."""
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


class Publisher:
    """Publishes one message after the other in a thread, and notes how long each took."""

    def __init__(self, address: str) -> None:
        self._client = RawClient(address)
        self._seconds: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.001):
            began = time.monotonic()
            self._client.ask(b"PUB other\n\0\0\0\x01x")
            self._seconds.append(time.monotonic() - began)

    def slowest(self, seconds: float, event: Callable[[], None] = lambda: None) -> float:
        """Run an event, go on for a time, and return the longest publish meanwhile."""
        self._seconds.clear()
        event()
        self._ended.wait(seconds)
        return max(self._seconds)

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()
        self._client.close()


def measure_moves(kind: str, words: list[str], count: int) -> None:
    """Print how long a publisher waits while messages move."""
    server = Server(words)
    print(f"{kind}: {count:,} messages move")
    server.fill(count)
    consumer, publisher = RawClient(server.tcp), Publisher(server.tcp)

    def watch(name: str, event: Callable[[], None]) -> None:
        before = publisher.slowest(1.0)
        began = time.monotonic()
        took = 0.0

        def timed() -> None:
            nonlocal took
            event()
            took = time.monotonic() - began

        during = publisher.slowest(2.0, timed)
        print(f"  {name:28} {took * 1000:7.1f} ms, slowest publish before {before * 1000:6.1f} ms,"
              f" meanwhile {during * 1000:6.1f} ms", flush=True)

    watch("SUB", lambda: consumer.subscribe("t", "c"))
    watch("empty the channel", lambda: server.post("/channel/empty?topic=t&channel=c"))
    server.post("/channel/create?topic=t&channel=d")
    server.post("/topic/pause?topic=t")
    server.fill(count)
    watch("unpause with two channels", lambda: server.post("/topic/unpause?topic=t"))
    watch("delete the topic", lambda: server.post("/topic/delete?topic=t"))
    publisher.stop()
    consumer.close()
    server.stop()


class TimedLock:
    """The engine's lock, with the longest processor time for which a thread held it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._began = 0.0
        self.longest = 0.0

    def acquire(self) -> None:
        """Take it."""
        self._lock.acquire()
        self._began = time.thread_time()

    def release(self) -> None:
        """Release it."""
        self.longest = max(self.longest, time.thread_time() - self._began)
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def measure_lock(kind: str, count: int, folder: str, mem_queue_size: int) -> None:
    """Print how long the lock is held while messages move: on processor time, so for any load."""
    gc.set_threshold(700, 10, 1000)  # as the command does
    nsqd = Nsqd(data_path=folder, mem_queue_size=mem_queue_size)
    lock = TimedLock(nsqd._engine._lock)
    nsqd._engine._lock = lock  # type: ignore[assignment] # for the same calls
    texts = []
    with nsqd:
        def watch(name: str, event: Callable[[], None]) -> None:
            lock.longest = 0.0
            event()
            wait_until(lambda: not nsqd._engine._broker.scheduler.flowing, timeout=120)
            texts.append(f"{name} {lock.longest * 1000:.1f} ms")

        watch("MPUB of 5000", lambda: publish(nsqd.tcp_address, count))
        watch("first channel", lambda: nsqd.create_channel("t", "c"))
        watch("empty", lambda: nsqd.empty_channel("t", "c"))
        nsqd.create_channel("t", "d")
        nsqd.pause_topic("t")
        publish(nsqd.tcp_address, count)
        watch("unpause with two channels", lambda: nsqd.unpause_topic("t"))
        watch("delete", lambda: nsqd.delete_topic("t"))
    print(f"{kind}: longest processor time under the lock: {', '.join(texts)}", flush=True)


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
        ("real", real, lambda kind, words: measure_moves(kind, words, count)),
        ("embedded, disk", _EMBEDDED, lambda kind, words: measure_moves(kind, words, count)),
        ("embedded, memory", [*_EMBEDDED, f"--mem-queue-size={10 * count}"],
         lambda kind, words: measure_moves(kind, words, count)),
    ):
        folder = tempfile.mkdtemp(prefix="nsqclient-bench-")
        try:
            work(kind, [*words, f"--data-path={folder}"])
        finally:
            shutil.rmtree(folder)
    for kind, size in (("embedded, disk", 10_000), ("embedded, memory", 10 * count)):
        with tempfile.TemporaryDirectory(prefix="nsqclient-bench-") as folder:
            measure_lock(kind, count, folder, size)


if __name__ == "__main__":
    main()
