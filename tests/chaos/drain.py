"""Faults while a job drains a channel: nothing is lost, and "empty" is never said wrongly.

``python -m tests.chaos.drain --faults 100`` (``make drain-chaos``). Each round publishes to 2 real
nsqds, which a real nsqlookupd lists, and starts a job that drains them into a file: with a loop, a
handler or a BatchHandler. In the middle an nsqd is restarted, suspended (SIGSTOP) or killed, or the
job is killed. Where a job says that the channel is empty, the nsqds are asked.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nsqclient import BatchHandler, Config, Consumer, Producer
from tests.support.exit_signals import exit_on_first_signal
from tests.support.processes import CHECKOUT
from tests.support.servers.http_api import registered
from tests.support.servers.real_servers import RealNsqd, RealNsqlookupd
from tests.support.waiting import wait_until

FORMS = ("loop", "handler", "batches")
#: What happens to an nsqd, and for how many seconds; and to the job.
FAULTS = {"restart": (0.2, 4.0), "freeze": (0.5, 6.0), "kill nsqd": (0.2, 4.0),
          "kill job": (0.0, 0.0)}
#: Messages of one round at each nsqd, and the most faults of one round.
_ROUND, _MOST_FAULTS = 300, 3
#: Seconds that a message takes, so that a fault comes in the middle.
_WORK = 0.002
_LIMIT = 120.0
#: What a killed job had comes back after so many seconds.
_CONFIG = Config(msg_timeout=2.0, max_attempts=0)
#: nsqd notes on its disk how far a queue was read when it ends in order, not in between: an nsqd
#: that is killed delivers everything again, and loses nothing.
DURABLE = {"mem_queue_size": 0, "sync_every": 1_000_000, "sync_timeout": 3600.0}


@dataclass
class Result:
    """What came of a run."""

    faults: Counter[str] = field(default_factory=Counter)
    published: int = 0
    ends: int = 0  #: jobs that said that the channel is empty
    wrong_ends: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  #: jobs that ended with an error
    lost: int = 0
    twice: int = 0  #: messages that are in the file more than once

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, and each job was right."""
        return not (self.lost or self.wrong_ends or self.failures)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        lines = [
            f"{self.faults.total()} faults ({faults}), {self.published} published:"
            f" {self.lost} lost, {self.twice} written twice; {self.ends} jobs said that the channel"
            f" is empty, {len(self.wrong_ends)} wrongly, {len(self.failures)} failed",
            *self.wrong_ends, *self.failures]
        return "\n  ".join(lines)


def job(lookupd: str, path: str, form: str) -> int:
    """Drain into a file; a message is finished when its line is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    pause = threading.Event()  # never set

    def write(bodies: list[bytes]) -> None:
        pause.wait(_WORK * len(bodies))
        os.write(descriptor, b"".join(body + b"\n" for body in bodies))
        os.fsync(descriptor)

    handlers: dict[str, Callable[..., object] | None] = {
        "loop": None, "handler": lambda message: write([message.body]),
        "batches": BatchHandler(lambda batch: write([m.body for m in batch]), 20, 60),
    }
    consumer = Consumer("chaos", "file", handlers[form], lookupd_http_addresses=[lookupd],
                        max_in_flight=50, config=_CONFIG)
    if form != "loop":
        return 0 if consumer.run_until_empty() else 1
    with consumer:
        for message in consumer.drain():
            write([message.body])
    return 0


def disturb(name: str, nsqd: RealNsqd, rng: random.Random) -> None:
    """Restart, suspend or kill an nsqd, and bring it back. The job works on meanwhile."""
    pause, seconds = threading.Event(), rng.uniform(*FAULTS[name])
    if name == "freeze":
        os.kill(nsqd.pid, signal.SIGSTOP)
        pause.wait(seconds)
        os.kill(nsqd.pid, signal.SIGCONT)
        return
    nsqd.stop() if name == "restart" else nsqd.kill()
    pause.wait(seconds)
    nsqd.start()


def choose(rng: random.Random, most: int) -> list[str]:
    """Choose the faults of one round, ``most`` at most."""
    names = [rng.choice(list(FAULTS)) for _ in range(rng.randint(1, _MOST_FAULTS))]
    if names.count("kill nsqd") > 1:  # what the first one delivers again is not durable
        names = [name for name in names if name != "kill nsqd"] + ["kill nsqd"]
    return names[:most]


class _Round:
    """One round: publishes, and drains under faults."""

    def __init__(
        self, lookupd: RealNsqlookupd, nsqds: list[RealNsqd], path: Path, rng: random.Random,
        result: Result,
    ) -> None:
        self._lookupd = lookupd
        self._nsqds = nsqds
        self._path = path
        self._rng = rng
        self._result = result

    def publish(self) -> None:
        """Publish; the messages are on the disk of each nsqd, as after an end in order."""
        for nsqd in self._nsqds:
            first = self._result.published
            with Producer([nsqd.tcp_address]) as producer:
                producer.publish_many("chaos", [b"%d" % n for n in range(first, first + _ROUND)])
            self._result.published += _ROUND
            nsqd.post("/channel/create", topic="chaos", channel="file")
            wait_until(lambda: self._left(nsqd) == _ROUND, 60, "the channel has all")
            nsqd.restart()
        wait_until(lambda: len(registered(self._lookupd, "chaos")) == len(self._nsqds), 60)

    def drain(self, form: str, names: list[str]) -> None:
        """Drain, with these faults."""
        process = self._start(form)
        try:
            for name in names:
                done = self._lines()
                goal = done + self._rng.randrange(1, _ROUND // 2)
                wait_until(lambda: process.poll() is not None or self._lines() >= goal, _LIMIT)
                if process.poll() is not None:
                    break
                self._result.faults[name] += 1
                if name == "kill job":
                    process.kill()
                    process.wait(60)
                    process = self._start(form)
                else:
                    disturb(name, self._rng.choice(self._nsqds), self._rng)
            status = process.wait(_LIMIT)
        finally:
            process.kill()
            process.wait(60)
        what = f"{form}, {', '.join(names)}"
        if status:
            self._result.failures.append(f"{what}: status {status}")
            return
        self._result.ends += 1
        left = [self._left(nsqd) for nsqd in self._nsqds]
        if any(left):
            self._result.wrong_ends.append(f"{what}: {left} left")

    def _start(self, form: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.drain", "--job", self._lookupd.http_address,
             str(self._path), form], cwd=CHECKOUT, stdin=subprocess.DEVNULL)

    def _lines(self) -> int:
        return self._path.read_bytes().count(b"\n")

    @staticmethod
    def _left(nsqd: RealNsqd) -> int:
        stats = nsqd.stats("chaos", "file")
        return int(stats["depth"] + stats["in_flight_count"] + stats["deferred_count"])


def run(folder: Path, faults: int, seed: int) -> Result:
    """Drain under so many faults; compare what was published with the file."""
    rng = random.Random(f"drain {seed}")
    path = folder / "lines"
    path.touch()
    result = Result()
    lookupd = RealNsqlookupd(folder / "lookupd")
    servers: list[RealNsqd] = []
    try:
        lookupd.start()
        for number in range(2):
            nsqd = RealNsqd(folder / f"nsqd-{number}",
                            lookupd_tcp_addresses=[lookupd.tcp_address], **DURABLE)
            servers.append(nsqd)
            nsqd.start()
        number = 0
        while result.faults.total() < faults:
            one = _Round(lookupd, servers, path, rng, result)
            one.publish()
            names = choose(rng, faults - result.faults.total())
            one.drain(FORMS[number % len(FORMS)], names)
            number += 1
        one.drain("loop", [])
    finally:
        for server in (*servers, lookupd):
            server.kill()
    lines = path.read_bytes().split()
    result.lost = len({b"%d" % n for n in range(result.published)}.difference(lines))
    result.twice = len(lines) - len(set(lines))
    return result


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, help="default: from the clock, and printed")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        return job(*arguments.job)
    exit_on_first_signal()
    seed = int(time.time()) % 100_000 if arguments.seed is None else arguments.seed
    with tempfile.TemporaryDirectory(prefix="nsq-drain-chaos-") as name:
        result = run(Path(name), arguments.faults, seed)
    print(f"seed {seed}: {result}")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
