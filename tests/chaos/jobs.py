"""Faults while jobs run that end by themselves: nothing is lost, and "empty" is never said wrongly.

A job drains a channel into a file, gives messages up, or replays dead letters, while an nsqd is
restarted, suspended or killed, or the job itself is killed. If a job ends without an error, the
nsqds and the directory must be empty; at the end of a round each body must have arrived.
"""

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from nsqclient import (
    BatchHandler, Config, Consumer, DeadLetter, DeadLetterDirectory, DeadLetterTopic, GiveUp,
    Producer,
)
from nsqclient.message import Message
from tests.chaos.ledger import Ledger
from tests.chaos.result import RunResult
from tests.support.processes import CHECKOUT, PROGRAMS
from tests.support.servers.http_api import registered
from tests.support.servers.real_servers import RealNsqd, RealNsqlookupd
from tests.support.waiting import wait_until

#: Each job, and its kinds: how a drain takes messages, or where dead letters are.
JOBS = {
    "drain": ("loop", "handler", "batches"),
    "give up": ("directory", "topic"),
    "replay": ("directory", "topic"),
}
#: What happens to an nsqd, and for how many seconds; and to the job.
FAULTS = {"restart": (0.2, 4.0), "freeze": (0.5, 6.0), "kill nsqd": (0.2, 4.0),
          "kill job": (0.0, 0.0)}
#: Points at which a replay kills itself; ``any``: it is killed from outside.
POINTS = ("before_publish", "after_publish", "before_remove", "after_remove", "any")
#: Messages of one round at each nsqd, the most faults of one round, and the seconds that a message
#: takes, so that a fault comes in the middle.
_ROUND, _MOST_FAULTS, _WORK = 300, 3, 0.002
_LIMIT = 180.0
#: Seconds after which nsqd delivers the messages of a killed job again.
_MSG_TIMEOUT = 2.0
_CONFIG = Config(msg_timeout=_MSG_TIMEOUT, max_attempts=0)
#: Jobs of one round that may end early, because of a fault or wrongly.
_MOST_JOBS = 8
#: nsqd notes on its disk how far a queue was read when it ends in order, not in between: an nsqd
#: that is killed delivers everything again, and loses nothing.
DURABLE = {"mem_queue_size": 0, "sync_every": 1_000_000, "sync_timeout": 3600.0}


def drain(lookupd: str, topic: str, form: str, path: str) -> int:
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
    consumer = Consumer(topic, "work", handlers[form], lookupd_http_addresses=[lookupd],
                        max_in_flight=50, config=_CONFIG)
    if form != "loop":
        return 0 if consumer.run_until_empty() else 1
    with consumer:
        for message in consumer.drain():
            write([message.body])
    return 0


def give_up(lookupd: str, topic: str, place: str, target: str) -> int:
    pause = threading.Event()  # never set
    logging.getLogger("nsqclient").addHandler(logging.NullHandler())  # each letter is logged

    def fail(message: Message) -> None:
        pause.wait(_WORK)
        raise GiveUp("by the test")

    with Producer(lookupd_http_addresses=[lookupd]) as producer:
        keep = (DeadLetterDirectory(target) if place == "directory" else
                DeadLetterTopic(producer, target))
        consumer = Consumer(topic, "work", fail, lookupd_http_addresses=[lookupd],
                            max_in_flight=50, on_giving_up=keep, config=_CONFIG)
        return 0 if consumer.run_until_empty() else 1


def disturb(name: str, nsqd: RealNsqd, rng: random.Random) -> None:
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
    names = [rng.choice(list(FAULTS)) for _ in range(rng.randint(1, _MOST_FAULTS))]
    if names.count("kill nsqd") > 1:  # messages that the first kill returns are not durable
        names = [name for name in names if name != "kill nsqd"] + ["kill nsqd"]
    return names[:most]


class _Origin:
    address, channel = "127.0.0.1:4150", "work"

    def __init__(self, topic: str) -> None:
        self.topic = topic


class _Round:
    """One round: fill topics and a directory, run jobs under faults, collect the results."""

    def __init__(
        self, number: int, job: str, kind: str, lookupd: RealNsqlookupd, nsqds: list[RealNsqd],
        folder: Path, rng: random.Random, result: RunResult, ledger: Ledger,
    ) -> None:
        self._job, self._kind = job, kind
        self._lookupd, self._nsqds, self._rng = lookupd, nsqds, rng
        self._result, self._ledger = result, ledger
        self._orders, self._dead = f"orders-{number}", f"dead-{number}"
        self._path = folder / f"dead-{number}"  # the directory, or the file of a drain
        self._output = folder / "output"
        self._source: tuple[str, str] | None = (self._orders, "work")
        self._target = ""
        if job == "replay":
            self._source = None if kind == "directory" else (self._dead, "dead_letters")
            self._target = self._orders
        elif kind == "topic":
            self._target = self._dead
        self._bodies = [b"%d-%d" % (number, n) for n in range(len(nsqds) * _ROUND)]

    def fill(self) -> None:
        self._ledger.stored.update(map(bytes.decode, self._bodies))
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
                if self._job == "replay":
                    bodies = [DeadLetter(b, self._orders, "work").to_envelope() for b in bodies]
                with Producer([nsqd.tcp_address]) as producer:
                    producer.publish_many(topic, bodies)
                wait_until(lambda: sum(self._stats(nsqd)) == _ROUND, 60, "the channel has all")
            nsqd.restart()
        for topic in filter(None, (self._source and self._source[0], self._target)):
            wait_until(lambda: len(registered(self._lookupd, topic)) == len(self._nsqds), 60)

    def play(self, names: list[str]) -> None:
        """Run jobs under these faults, then until nothing is left; note the arrived messages."""
        pending = list(names)
        errors = self._result.errors
        what = f"{self._job}, {self._kind}, {', '.join(names)}"
        for _ in range(_MOST_JOBS):
            status, met = self._run_job(pending)
            left = self._left()
            if status == 0:
                self._result.ends += 1
                if any(map(any, left)):
                    errors.append(f"{what}: it said that nothing is left: (waiting, in flight,"
                                  f" deferred) {left}: {self._last()}")
            elif status != -9 and (self._job == "drain" or not met):
                errors.append(f"{what}: status {status}: {self._last()}")
            elif status != -9:
                print(f"  note: {what}: status {status} after {met}: {self._last()}", flush=True)
            if not pending and not any(map(any, left)):
                break
        else:
            errors.append(f"{what}: {self._left()} left after {_MOST_JOBS} jobs")
        self._ledger.handled.update(map(bytes.decode, self._arrived()))

    def _run_job(self, pending: list[str]) -> tuple[int, list[str]]:
        met: list[str] = []
        point = "none"
        if self._job == "replay" and pending[:1] == ["kill job"]:
            point = self._rng.choice(POINTS)
        with self._output.open("wb") as output:
            process = subprocess.Popen(self._words(point), cwd=CHECKOUT, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT)
            try:
                while pending:
                    goal = self._done() + self._rng.randrange(1, _ROUND // 2)
                    goal = min(goal, len(self._bodies))
                    if point in ("none", "any"):
                        wait_until(
                            lambda: process.poll() is not None or self._done() >= goal, _LIMIT)
                    elif process.wait(_LIMIT) == -9:  # by itself
                        self._note(pending, met)
                        break
                    if process.poll() is not None:
                        pending.clear()
                        break
                    name = self._note(pending, met)
                    if name == "kill job":
                        process.kill()
                        break
                    disturb(name, self._rng.choice(self._nsqds), self._rng)
                return process.wait(_LIMIT), met
            finally:
                process.kill()
                process.wait(60)

    def _note(self, pending: list[str], met: list[str]) -> str:
        name = pending.pop(0)
        met.append(name)
        self._result.faults[name] += 1
        return name

    def _words(self, point: str) -> list[str]:
        lookupd = self._lookupd.http_address
        if self._job != "replay":
            return [sys.executable, "-m", "tests.chaos.jobs", self._job, lookupd,
                    self._orders, self._kind, self._target or str(self._path)]
        return [sys.executable, str(PROGRAMS / "killed_replay.py"), point,
                str(self._rng.randrange(1, _ROUND // 2)), "replay", "--rate=400",
                f"--lookupd-http-address={lookupd}",
                *([f"--path={self._path}", "--all", "--to-origin"] if self._source is None else
                  [f"--topic={self._dead}", "--count=1000000", "--timeout=1s",
                   f"--destination-topic={self._orders}",
                   f"--consumer-opt=msg_timeout,{_MSG_TIMEOUT:g}s"])]

    def _done(self) -> int:
        if self._target:
            return sum(int(nsqd.stats(self._target).get("depth", 0)) for nsqd in self._nsqds)
        return len(self._lines() if self._job == "drain" else self._letters().names())

    def _lines(self) -> list[bytes]:
        return self._path.read_bytes().split() if self._path.exists() else []

    def _letters(self) -> DeadLetterDirectory:
        return DeadLetterDirectory(self._path)

    def _stats(self, nsqd: RealNsqd) -> tuple[int, int, int]:
        assert self._source is not None
        stats = nsqd.stats(*self._source)
        return (int(stats["depth"]), int(stats["in_flight_count"]), int(stats["deferred_count"]))

    def _left(self) -> list[tuple[int, ...]]:
        if self._source is None:
            return [(len(self._letters().names()),)]
        return [self._stats(nsqd) for nsqd in self._nsqds]

    def _last(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return lines[-1][-400:] if lines else "no output"

    def _arrived(self) -> list[bytes]:
        if self._job == "drain":
            return self._lines()
        if not self._target:
            letters = self._letters()
            return [letters.read(name).body for name in letters.names()]
        with Consumer(self._target, "check", max_in_flight=200,
                      nsqd_tcp_addresses=[nsqd.tcp_address for nsqd in self._nsqds]) as consumer:
            found = [message.body for message in consumer.messages(timeout=3.0)]
        return [DeadLetter.parse(b).body for b in found] if self._job == "give up" else found


def run(job: str, kind: str, faults: int, folder: Path, seed: int) -> RunResult:
    rng = random.Random(f"{job} {kind} {seed}")
    result, ledger = RunResult(seed), Ledger(folder)
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
            one = _Round(number, job, kind, lookupd, servers, folder, rng, result, ledger)
            one.fill()
            one.play(choose(rng, faults - result.faults.total()))
            number += 1
    finally:
        for server in (*servers, lookupd):
            server.kill()
    result.take(ledger)
    return result


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    sys.exit((drain if name == "drain" else give_up)(*words))
