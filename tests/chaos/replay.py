"""Chaos for ``nsqclient dead_letters replay``: killed again and again, it loses no letter.

``python -m tests.chaos.replay`` (``make replay-chaos``). Letters of a topic and of a directory are
replayed on a real nsqd and on the embedded one, by processes that are killed with SIGKILL: at one
point of a letter's replay, or at any time. Then a last replay ends, and each body must be in its
topic.
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
from dataclasses import dataclass, field
from pathlib import Path

from nsqclient import Consumer, DeadLetter, DeadLetterDirectory, Producer
from nsqclient.message import Message
from tests.support.exit_signals import exit_on_first_signal
from tests.support.processes import CHECKOUT, PROGRAMS
from tests.support.servers.factories import ServerFactory, ServerUnderTest

#: Where a replay kills itself; ``any``: it is killed from outside.
POINTS = ("before_publish", "after_publish", "before_remove", "after_remove", "any")
#: Letters that one process replays at most, before it is killed.
_MOST_EACH = 8
#: Seconds after which nsqd gives the messages of a killed process to the next one.
_MSG_TIMEOUT = 1.0
#: Seconds without a letter after which a replay ends: nsqd looks for timeouts in a new channel
#: after up to 5 s.
_SILENCE = 5.0 + 3 * _MSG_TIMEOUT
_LIMIT = 120.0
_PLACES = ("topic", "directory")


@dataclass
class Result:
    """What one run found."""

    kind: str  #: of the server
    place: str  #: of the letters
    kills: int = 0
    letters: int = 0
    duplicates: int = 0
    lost: list[str] = field(default_factory=list)
    left: int = 0  #: letters that the last replay left
    errors: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost or left, and every replay did what it should."""
        return not (self.lost or self.left or self.errors)


class _Place:
    """The letters of a run: in the topic ``dead``, or in a directory."""

    def __init__(self, server: ServerUnderTest, place: str, folder: Path) -> None:
        self._server = server
        self._is_topic = place == "topic"
        self._path = folder / f"{place}-{server.kind}"
        self.words = ["replay", "--rate=0", f"--nsqd-tcp-address={server.tcp_address}",
                      f"--nsqd-http-address={server.http_address}", "--destination-topic=orders"]
        self.words += (["--topic=dead", "--count=1000000", f"--timeout={_SILENCE:g}s"]
                       if self._is_topic else [f"--path={self._path}", "--all"])

    def fill(self, bodies: list[str]) -> None:
        """Write a letter for each body, of the topic ``orders``."""
        if self._is_topic:
            letters = [DeadLetter(body.encode(), "orders", "work").to_envelope() for body in bodies]
            self._server.post("/topic/create", topic="dead")
            self._server.post("/channel/create", topic="dead", channel="dead_letters")
            with Producer([self._server.tcp_address]) as producer:
                producer.publish_many("dead", letters)
            return
        keep = DeadLetterDirectory(self._path)
        for number, body in enumerate(bodies):
            keep(Message(body.encode(), b"%016x" % number, 5, 1, 0.0, 0.0, _Origin()))

    def count(self) -> int:
        """How many letters there are."""
        if not self._is_topic:
            return len(DeadLetterDirectory(self._path).names())
        stats = self._server.stats("dead", "dead_letters")
        return int(stats["depth"] + stats["in_flight_count"] + stats.get("deferred_count", 0))


class _Origin:
    address = "127.0.0.1:4150"
    topic, channel = "orders", "work"


def run(server: ServerUnderTest, place: str, folder: Path, kills: int, seed: int) -> Result:
    """Kill so many replays; return what became of the letters."""
    rng = random.Random(f"{seed} {server.kind} {place}")
    letters = _Place(server, place, folder)
    bodies = [f"{place} {number}" for number in range(kills * _MOST_EACH + 20)]
    letters.fill(bodies)
    result = Result(server.kind, place, letters=len(bodies))
    for number in range(kills):
        point = POINTS[number % len(POINTS)]
        status, output = _kill_one(letters.words, point, rng)
        if status == -9:
            result.kills += 1
        else:
            result.errors.append(f"a replay killed at {point} ended with {status}: {output}")
    last = _start("none", 0, letters.words)
    output = last.communicate(timeout=_LIMIT)[0]
    if last.returncode != 0:
        result.errors.append(f"the last replay ended with {last.returncode}: {output}")
    result.left = letters.count()
    found = _replayed(server)
    result.lost = sorted(set(bodies) - set(found))
    result.duplicates = sum(found.values()) - len(found)
    return result


def _start(point: str, number: int, words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / "killed_replay.py"), point, str(number), *words],
        cwd=CHECKOUT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def _kill_one(words: list[str], point: str, rng: random.Random) -> tuple[int, str]:
    """Start a replay that is killed; return its status and its last words."""
    process = _start(point, rng.randint(1, _MOST_EACH), words)
    assert process.stdout is not None
    try:
        if point == "any":
            # Now and then before it replays; else a moment later than its first line.
            if rng.random() < 0.8:
                process.stdout.readline()
            threading.Event().wait(rng.random() * 0.01)
            process.kill()
        output = process.communicate(timeout=_LIMIT)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        output = process.communicate()[0]
        return 0, f"it was not killed in time: {output[-500:]}"
    return process.returncode, output[-500:]


def _replayed(server: ServerUnderTest) -> Counter[str]:
    """Read what is in the topic ``orders``."""
    found: Counter[str] = Counter()
    with Consumer(
        "orders", "check", nsqd_tcp_addresses=[server.tcp_address], max_in_flight=200
    ) as consumer:
        for message in consumer.messages(timeout=2.0):
            found[message.body.decode()] += 1
    return found


def main() -> int:
    """Run all four combinations; return 1 where a letter was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.replay", description=__doc__)
    parser.add_argument("--seed", type=int, help="default: from the clock, and printed")
    parser.add_argument("--kills", type=int, default=100, help="over all combinations")
    arguments = parser.parse_args()
    exit_on_first_signal()
    logging.getLogger("nsqclient").addHandler(logging.NullHandler())  # each letter is logged
    seed = int(time.time()) % 100_000 if arguments.seed is None else arguments.seed
    combinations = [(kind, place) for kind in ("real", "embedded") for place in _PLACES]
    is_good = True
    for kind, place in combinations:
        with tempfile.TemporaryDirectory(prefix="nsq-replay-chaos-") as folder:
            servers = ServerFactory(kind, Path(folder))
            try:
                server = servers(msg_timeout=_MSG_TIMEOUT)
                kills = -(-arguments.kills // len(combinations))
                result = run(server, place, Path(folder), kills, seed)
            finally:
                servers.close()
        print(f"seed {seed}: {kind} nsqd, {place}: {result.kills} kills, {result.letters} letters,"
              f" {result.duplicates} duplicates, lost {len(result.lost)}, left {result.left}",
              flush=True)
        for line in [*result.errors, *result.lost]:
            print(f"  FAILED {line}", flush=True)
        is_good = is_good and result.is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
