"""Kills of a job that drains a channel into a file: nothing that was published may be missing.

``python -m tests.chaos.drain --kills 60`` (``make drain-chaos``). Each round publishes, starts the
job, and kills it with SIGKILL at a random moment, before or after some lines are written. The last
job runs to its end. Odd rounds drain with a loop, even ones with a BatchHandler.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from nsqclient import BatchHandler, Config, Consumer, Producer
from tests.support.processes import CHECKOUT
from tests.support.servers.factories import ServerFactory, ServerUnderTest
from tests.support.waiting import wait_until

#: Messages of one round, and the most that are written before a kill.
_ROUND, _MOST_LINES = 300, 200
#: Longest time before a kill that waits for no line, in seconds: in the middle of the start too.
_LONGEST = 0.8
#: What a killed job had comes back after so many seconds.
_CONFIG = Config(msg_timeout=2.0)


class DrainResult(NamedTuple):
    """What came of a run."""

    published: int
    kills: int
    lost: int
    twice: int  #: messages that are in the file more than once
    status: int  #: of the last job, which nobody killed

    def __str__(self) -> str:
        return (f"{self.published} published, {self.kills} kills: {self.lost} lost,"
                f" {self.twice} written twice; the last job ended with status {self.status}")


def job(tcp: str, http: str, path: str, in_batches: bool) -> int:
    """Drain into a file; a message is finished when its line is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(messages: list[bytes]) -> None:
        os.write(descriptor, b"".join(body + b"\n" for body in messages))
        os.fsync(descriptor)

    where = {"nsqd_tcp_addresses": [tcp], "config": _CONFIG, "max_in_flight": 50}
    if in_batches:
        handler = BatchHandler(lambda batch: write([m.body for m in batch]), size=20, max_wait=60)
        consumer = Consumer("chaos", "file", handler, **where)  # type: ignore[arg-type]
        return 0 if consumer.run_until_empty(nsqd_http_addresses=[http]) else 1
    with Consumer("chaos", "file", **where) as consumer:  # type: ignore[arg-type]
        for message in consumer.drain(nsqd_http_addresses=[http]):
            write([message.body])
    return 0


def run(server: ServerUnderTest, folder: Path, kills: int, seed: int) -> DrainResult:
    """Kill the job so many times, let the last one end, and compare."""
    rng = random.Random(f"drain {seed}")
    path = folder / "lines"
    path.touch()
    published = killed = number = 0
    with Producer([server.tcp_address]) as producer:
        while killed < kills:
            number += 1
            producer.publish_many(
                "chaos", [b"%d" % n for n in range(published, published + _ROUND)])
            published += _ROUND
            killed += _kill_one(server, path, number % 2 == 0, rng)
    with _start(server, path, in_batches=False) as last:
        status = last.wait(120)
    lines = path.read_bytes().split()
    lost = {b"%d" % n for n in range(published)}.difference(lines)
    return DrainResult(published, killed, len(lost), len(lines) - len(set(lines)), status)


def _kill_one(server: ServerUnderTest, path: Path, in_batches: bool, rng: random.Random) -> bool:
    """Start the job and kill it; return whether it had not ended by itself."""
    lines, delay = rng.randrange(1, _MOST_LINES), rng.uniform(0, _LONGEST)
    size = len(path.read_bytes().split())
    with _start(server, path, in_batches) as process:
        try:
            if rng.random() < 0.3:
                process.wait(delay)
            else:
                wait_until(lambda: process.poll() is not None
                           or path.read_bytes().count(b"\n") >= size + lines, 60, "lines")
        except subprocess.TimeoutExpired:
            pass
        process.kill()
        return process.wait(60) < 0


def _start(server: ServerUnderTest, path: Path, in_batches: bool) -> subprocess.Popen[bytes]:
    words = ["--batches"] if in_batches else []
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.drain", "--job", server.tcp_address,
         server.http_address, str(path), *words], cwd=CHECKOUT, stdin=subprocess.DEVNULL,
    )


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("real", "embedded"), default="real")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--batches", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        return job(*arguments.job, arguments.batches)
    with tempfile.TemporaryDirectory() as name:
        factory = ServerFactory(arguments.kind, Path(name))
        try:
            result = run(factory(), Path(name), arguments.kills, arguments.seed)
        finally:
            factory.close()
    print(result)
    return 1 if result.lost or result.status else 0


if __name__ == "__main__":
    sys.exit(main())
