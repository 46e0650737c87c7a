"""Faults while messages are given up, and while dead letters are replayed.

``python -m tests.chaos.letters --faults 100`` (``make letters-chaos``). The faults are those of
``tests.chaos.drain``: one of 2 real nsqds is restarted, suspended (SIGSTOP) or killed, or the job
is killed. A job gives messages up into a DeadLetterDirectory or a DeadLetterTopic, or is
``nsqclient dead_letters replay`` of one. Where a job ends without an error, the nsqds and the
directory are asked whether anything is left; at the end of a round each body must have arrived.
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from nsqclient import (
    Config, Consumer, DeadLetter, DeadLetterDirectory, DeadLetterTopic, GiveUp, Producer,
)
from nsqclient.message import Message
from tests.chaos.drain import DURABLE, Result, choose, disturb
from tests.support.exit_signals import exit_on_first_signal
from tests.support.processes import CHECKOUT
from tests.support.servers.http_api import registered
from tests.support.servers.real_servers import RealNsqd, RealNsqlookupd
from tests.support.waiting import wait_until

WORKS = ("give up", "replay")
PLACES = ("directory", "topic")
#: Messages of one round at each nsqd; seconds for one, so that a fault comes in the middle.
_ROUND, _WORK = 300, 0.002
_LIMIT = 180.0
#: What a killed job had comes back after so many seconds.
_MSG_TIMEOUT = 2.0
#: Jobs of one round that may end early, because of a fault or wrongly.
_MOST_JOBS = 8


def give_up(lookupd: str, topic: str, place: str, target: str) -> int:
    """Drain a topic, and give each message up into a directory or a topic."""
    pause = threading.Event()  # never set
    logging.getLogger("nsqclient").addHandler(logging.NullHandler())  # each letter is logged

    def fail(message: Message) -> None:
        pause.wait(_WORK)
        raise GiveUp("by the test")

    with Producer(lookupd_http_addresses=[lookupd]) as producer:
        keep = (DeadLetterDirectory(target) if place == "directory" else
                DeadLetterTopic(producer, target))
        consumer = Consumer(
            topic, "work", fail, lookupd_http_addresses=[lookupd], max_in_flight=50,
            on_giving_up=keep, config=Config(msg_timeout=_MSG_TIMEOUT, max_attempts=0))
        return 0 if consumer.run_until_empty() else 1


class _Origin:
    address, channel = "127.0.0.1:4150", "work"

    def __init__(self, topic: str) -> None:
        self.topic = topic


class _Round:
    """Topics and a directory of their own, filled; jobs under faults; what has arrived."""

    def __init__(
        self, number: int, work: str, place: str, lookupd: RealNsqlookupd,
        nsqds: list[RealNsqd], folder: Path, rng: random.Random, result: Result,
    ) -> None:
        self._work, self._place = work, place
        self._lookupd, self._nsqds, self._rng, self._result = lookupd, nsqds, rng, result
        self._orders, self._dead = f"orders-{number}", f"dead-{number}"
        self._path = folder / f"dead-{number}"
        self._output = folder / "output"
        #: Where the job reads (None: the directory), and where it writes.
        self._source, self._target = {
            ("give up", "directory"): ((self._orders, "work"), ""),
            ("give up", "topic"): ((self._orders, "work"), self._dead),
            ("replay", "directory"): (None, self._orders),
            ("replay", "topic"): ((self._dead, "dead_letters"), self._orders),
        }[work, place]
        self._bodies = [b"%d %d" % (number, n) for n in range(len(nsqds) * _ROUND)]

    def fill(self) -> None:
        """Write messages or letters; nsqd has them on its disk, as after an end in order."""
        self._result.published += len(self._bodies)
        for number, nsqd in enumerate(self._nsqds):
            bodies = self._bodies[number * _ROUND:(number + 1) * _ROUND]
            if self._target:
                nsqd.post("/topic/create", topic=self._target)
            if self._source is None:
                keep = DeadLetterDirectory(self._path)
                for body in bodies:
                    keep(Message(body, b"%016x" % self._rng.getrandbits(64), 5, 1, 0.0, 0.0,
                                 _Origin(self._orders)))
            else:
                topic, channel = self._source
                nsqd.post("/topic/create", topic=topic)
                nsqd.post("/channel/create", topic=topic, channel=channel)
                if self._work == "replay":
                    bodies = [DeadLetter(b, self._orders, "work").to_envelope() for b in bodies]
                with Producer([nsqd.tcp_address]) as producer:
                    producer.publish_many(topic, bodies)
                wait_until(lambda: sum(self._stats(nsqd)) == _ROUND, 60, "the channel has all")
            nsqd.restart()
        for topic in filter(None, (self._source and self._source[0], self._target)):
            wait_until(lambda: len(registered(self._lookupd, topic)) == len(self._nsqds), 60)

    def play(self, names: list[str]) -> None:
        """Run jobs under these faults, then until nothing is left; find what has arrived."""
        pending = list(names)
        for _ in range(_MOST_JOBS):
            status, met = self._run_job(pending)
            what = f"{self._work}, {self._place}, {', '.join(names)}"
            left = self._left()
            if status == 0:
                self._result.ends += 1
                if any(map(any, left)):
                    self._result.wrong_ends.append(
                        f"{what}: (waiting, in flight, deferred) {left} left: {self._last()}")
            elif status != -9 and not met:
                self._result.failures.append(f"{what}: status {status}: {self._last()}")
            elif status != -9:
                print(f"  note: {what}: status {status} after {met}: {self._last()}", flush=True)
            if not pending and not any(map(any, left)):
                break
        else:
            self._result.failures.append(f"{what}: {self._left()} left after {_MOST_JOBS} jobs")
        found = self._arrived()
        self._result.lost += len(set(self._bodies).difference(found))
        self._result.twice += found.total() - len(found)

    def _run_job(self, pending: list[str]) -> tuple[int, list[str]]:
        """Run one job, with what is left of the faults; return its status and what it met."""
        met = []
        with self._output.open("wb") as output:
            process = subprocess.Popen(self._words(), cwd=CHECKOUT, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT)
            try:
                while pending:
                    goal = self._done() + self._rng.randrange(1, _ROUND // 2)
                    goal = min(goal, len(self._bodies))
                    wait_until(lambda: process.poll() is not None or self._done() >= goal, _LIMIT)
                    if process.poll() is not None:
                        pending.clear()
                        break
                    name = pending.pop(0)
                    met.append(name)
                    self._result.faults[name] += 1
                    if name == "kill job":
                        process.kill()
                        break
                    disturb(name, self._rng.choice(self._nsqds), self._rng)
                return process.wait(_LIMIT), met
            finally:
                process.kill()
                process.wait(60)

    def _words(self) -> list[str]:
        lookupd = self._lookupd.http_address
        if self._work == "give up":
            return [sys.executable, "-m", "tests.chaos.letters", "--job", lookupd, self._orders,
                    self._place, self._target or str(self._path)]
        return [sys.executable, "-m", "nsqclient", "dead_letters", "replay", "--rate=400",
                f"--lookupd-http-address={lookupd}",
                *([f"--path={self._path}", "--all"] if self._source is None else
                  [f"--topic={self._dead}", "--count=1000000", "--timeout=1s",
                   f"--destination-topic={self._orders}",
                   f"--consumer-opt=msg_timeout,{_MSG_TIMEOUT:g}s"])]

    def _done(self) -> int:
        if not self._target:
            return len(DeadLetterDirectory(self._path).names())
        return sum(int(nsqd.stats(self._target).get("depth", 0)) for nsqd in self._nsqds)

    def _stats(self, nsqd: RealNsqd) -> tuple[int, int, int]:
        assert self._source is not None
        stats = nsqd.stats(*self._source)
        return (int(stats["depth"]), int(stats["in_flight_count"]), int(stats["deferred_count"]))

    def _left(self) -> list[tuple[int, ...]]:
        if self._source is None:
            return [(len(DeadLetterDirectory(self._path).names()),)]
        return [self._stats(nsqd) for nsqd in self._nsqds]

    def _last(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return lines[-1][-400:] if lines else "no output"

    def _arrived(self) -> Counter[bytes]:
        if not self._target:
            directory = DeadLetterDirectory(self._path)
            return Counter(directory.read(name).body for name in directory.names())
        found: Counter[bytes] = Counter()
        with Consumer(self._target, "check", max_in_flight=200,
                      nsqd_tcp_addresses=[nsqd.tcp_address for nsqd in self._nsqds]) as consumer:
            for message in consumer.messages(timeout=3.0):
                body = message.body
                found[DeadLetter.parse(body).body if self._work == "give up" else body] += 1
        return found


def run(folder: Path, work: str, place: str, faults: int, seed: int) -> Result:
    """Run rounds of one job until there were so many faults."""
    rng = random.Random(f"letters {work} {place} {seed}")
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
            one = _Round(number, work, place, lookupd, servers, folder, rng, result)
            one.fill()
            one.play(choose(rng, faults - result.faults.total()))
            number += 1
    finally:
        for server in (*servers, lookupd):
            server.kill()
    return result


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=100, help="over all jobs")
    parser.add_argument("--seed", type=int, help="default: from the clock, and printed")
    parser.add_argument("--job", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        return give_up(*arguments.job)
    exit_on_first_signal()
    logging.getLogger("nsqclient").addHandler(logging.NullHandler())
    seed = int(time.time()) % 100_000 if arguments.seed is None else arguments.seed
    combinations = [(work, place) for work in WORKS for place in PLACES]
    is_good = True
    for work, place in combinations:
        with tempfile.TemporaryDirectory(prefix="nsq-letters-chaos-") as name:
            result = run(Path(name), work, place, -(-arguments.faults // len(combinations)), seed)
        print(f"seed {seed}: {work}, {place}: {result}", flush=True)
        is_good = is_good and result.is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
