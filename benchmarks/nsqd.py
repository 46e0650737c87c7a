"""The real nsqd that all contenders of one run share, and the messages it holds for them."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "tools"))

import build_nsq  # noqa: E402 - a script of this checkout, not an installed module

#: Large enough that no message goes to disk, whose speed is not compared.
MEM_QUEUE_SIZE = 2_000_000
#: Messages of one MPUB; 1000 of 200 bytes stay far below nsqd's limit for a body.
BATCH = 1000
_PAUSE = 0.02


class BenchmarkError(Exception):
    """The benchmark cannot go on; says why."""


def bodies_of(kind: str, size: int) -> list[bytes]:
    """Make one MPUB's bodies of ``size`` bytes: ``x`` alone, or ``json`` that differs."""
    if kind == "x":
        return [b"x" * size] * BATCH
    source = random.Random(size)  # the same in every run
    bodies = []
    for number in range(BATCH):
        event = {
            "id": f"{source.getrandbits(64):016x}", "user": source.randrange(10**6),
            "kind": source.choice(["view", "click", "order", "refund"]), "number": number,
            "price": source.randrange(10**5) / 100, "at": f"2026-01-01T00:00:{number % 60:02}Z",
        }
        text = json.dumps(event).encode()
        bodies.append((text * (size // len(text) + 1))[:size])
    return bodies


class Nsqd:
    """A real nsqd with a temporary data path. A context manager.

    Args:
        secure: make a certificate for 127.0.0.1, and grant TLS.
    """

    def __init__(self, secure: bool = False) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="nsqclient-bench-")
        self._secure = secure
        self._process: subprocess.Popen[bytes] | None = None
        self.tcp_address = self.http_address = ""

    def __enter__(self) -> Nsqd:
        folder = build_nsq.programs_folder()
        if build_nsq.missing_programs(folder, ("nsqd",)):
            raise BenchmarkError("no real nsqd: run tools/build_nsq.py (needs Go), or set NSQ_BIN")
        tls = self._make_certificate() if self._secure else ()
        log = Path(self._temporary.name) / "nsqd.log"
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [
                    str(folder / "nsqd"),
                    "-tcp-address=127.0.0.1:0",
                    "-http-address=127.0.0.1:0",
                    f"-data-path={self._temporary.name}",
                    f"-mem-queue-size={MEM_QUEUE_SIZE}",
                    *tls,
                ],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        self.tcp_address, self.http_address = self._read_addresses(log)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # its messages are not needed
            self._process.wait()
        self._temporary.cleanup()

    @property
    def certificate(self) -> str:
        """The certificate, which is its own authority."""
        return str(Path(self._temporary.name) / "cert.pem")

    def _make_certificate(self) -> Sequence[str]:
        """Make it with the program that comes with Go, which a benchmark needs anyway."""
        go = build_nsq.find_go()
        if go is None:
            raise BenchmarkError("TLS needs a certificate, and there is no Go to make it with")
        root = subprocess.run([go, "env", "GOROOT"], capture_output=True, text=True, check=True)
        program = Path(root.stdout.strip()) / "src" / "crypto" / "tls" / "generate_cert.go"
        subprocess.run(
            [go, "run", str(program), "-ca", "-ecdsa-curve=P256", "-host=127.0.0.1"],
            cwd=self._temporary.name, check=True, capture_output=True,
        )
        key = str(Path(self._temporary.name) / "key.pem")
        return (f"-tls-cert={self.certificate}", f"-tls-key={key}")

    def fill(self, topic: str, channel: str, count: int, bodies: Sequence[bytes]) -> None:
        self.create(topic, channel)
        sized = [len(body).to_bytes(4, "big") + body for body in bodies]
        host, _, port = self.tcp_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"  V2")
            left = count
            while left:
                number = min(left, len(sized))
                content = number.to_bytes(4, "big") + b"".join(sized[:number])
                head = b"MPUB %b\n" % topic.encode() + len(content).to_bytes(4, "big")
                connection.sendall(head + content)
                answer = connection.recv(10, socket.MSG_WAITALL)
                if answer != b"\0\0\0\6\0\0\0\0OK":
                    raise BenchmarkError(f"nsqd refused an MPUB: {answer!r}")
                left -= number
        self._wait(lambda: self.channel(topic, channel)["depth"] == count, "the channel is full")

    def create(self, topic: str, channel: str) -> None:
        """Create a topic with a channel."""
        self._post(f"/topic/create?topic={topic}")
        self._post(f"/channel/create?topic={topic}&channel={channel}")

    def delete(self, topic: str) -> None:
        """Delete a topic and its messages."""
        self._post(f"/topic/delete?topic={topic}")

    def check_finished(self, topic: str, channel: str, count: int) -> None:
        """Raise unless at least ``count`` messages were finished, and none timed out."""

        def finished() -> int:
            stats = self.channel(topic, channel)
            left = stats["depth"] + stats["in_flight_count"] + stats["deferred_count"]
            return int(stats["message_count"]) - left

        self._wait(lambda: finished() >= count, f"{count} messages are finished")
        timeouts = self.channel(topic, channel)["timeout_count"]
        if timeouts:
            raise BenchmarkError(f"{timeouts} messages timed out and were delivered again")

    def check_published(self, topic: str, channel: str, count: int) -> None:
        """Raise unless the channel got ``count`` messages."""
        self._wait(
            lambda: self.channel(topic, channel)["message_count"] == count, "all is published"
        )

    def channel(self, topic: str, channel: str) -> dict[str, Any]:
        """Return the channel's statistics."""
        url = f"http://{self.http_address}/stats?format=json&topic={topic}&channel={channel}"
        with urllib.request.urlopen(url + "&include_mem=false", timeout=30) as answer:
            stats: dict[str, Any] = json.load(answer)["topics"][0]["channels"][0]
        return stats

    def _post(self, path: str) -> None:
        request = urllib.request.Request(f"http://{self.http_address}{path}", method="POST")
        urllib.request.urlopen(request, timeout=30).close()

    def _read_addresses(self, log: Path) -> tuple[str, str]:
        def found() -> dict[str, str]:
            text = log.read_text(errors="replace")
            return dict(re.findall(r"(TCP|HTTP): listening on (\S+)", text))

        self._wait(lambda: len(found()) == 2, f"nsqd listens, see {log}")
        return found()["TCP"], found()["HTTP"]

    @staticmethod
    def _wait(condition: Any, what: str, timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        pause = threading.Event()
        while not condition():
            if time.monotonic() > deadline:
                raise BenchmarkError(f"not within {timeout:g} s: {what}")
            pause.wait(_PAUSE)
