"""Measure every work side by side and hold it against its goal: ``make bench``.

Prints a table, writes benchmarks/results.json and the picture of it, docs/images/benchmark.svg.
The exit status is 0 whether goals are met or not: the figures of a busy machine prove nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import measuring
import picture
from goals import Goal, GoalResult, at_least, at_most, compare
from measuring import Consume, Publish, medians
from nsqd import CHECKOUT, BenchmarkError, Nsqd, build_nsq

ALL = ("go-nsq", "pynsq", "gnsq", "nsqclient", "limit")
#: Clients that publish from any number of threads.
THREADED = ("go-nsq", "nsqclient", "limit")
CLIENTS = ("go-nsq", "pynsq", "gnsq", "nsqclient")
PAIR = ("go-nsq", "nsqclient")
OURS = ("nsqclient",)
RESULTS = CHECKOUT / "benchmarks" / "results.json"
PICTURE = CHECKOUT / "docs" / "images" / "benchmark.svg"
NSQDS = 4
LONG = 1_000_000


class Row(NamedTuple):
    """One line of the result: figures by contender, and how the goals were met."""

    label: str
    unit: str
    figures: dict[str, float]
    goal_results: list[GoalResult]


class Bench:
    """The works, on nsqds that they share."""

    def __init__(self, nsqds: Sequence[Nsqd], rounds: int) -> None:
        self._nsqds = nsqds
        self._rounds = rounds

    def consume(self, label: str, work: Consume, goals: Sequence[Goal]) -> list[Row]:
        """Messages per second."""
        nsqds = self._nsqds[:work.nsqds]
        figures = medians(measuring.consume(work, nsqds, self._rounds), lambda run: run.rate)
        return [_row(label, "msg/s", figures, goals)]

    def publish(self, label: str, work: Publish, goals: Sequence[Goal]) -> list[Row]:
        """Messages per second."""
        results = measuring.publish(work, self._nsqds[0], self._rounds)
        return [_row(label, "msg/s", medians(results, lambda run: run.rate), goals)]

    def cost(self) -> list[Row]:
        """Processor time and memory of consuming."""
        many = Consume(PAIR, count=LONG)
        results = measuring.consume(many, self._nsqds[:1], self._rounds)
        cpu = medians(results, lambda run: run.cpu_seconds * LONG / run.messages)
        few = Consume(CLIENTS)
        results = measuring.consume(few, self._nsqds[:1], self._rounds)
        memory = medians(results, lambda run: run.peak_rss_mb)
        return [
            _row("CPU for 1,000,000 messages", "s", cpu, at_most(go_nsq=1.5)),
            _row("peak memory, 100,000 messages", "MB", memory, at_most(60)),
        ]

    def latency(self) -> list[Row]:
        """Median time from nsqd's timestamp to the sink's commit, with 50 messages a second."""
        results = measuring.latency(PAIR, self._nsqds[0], self._rounds)
        return [
            _row(f"latency, idle, {name}", "us",
                 medians(results, lambda run: run.values[f"{name}_us"]), at_most(go_nsq=factor))
            for name, factor in (("p50", 1.1), ("p99", 2.0))
        ]

    def footprint(self) -> list[Row]:
        """Idle connections, and the start of a program."""
        nsqd, rounds = self._nsqds[0], self._rounds
        idle = measuring.alone("idle", OURS, nsqd, rounds, 200)
        start = measuring.alone("startup", OURS, nsqd, rounds)
        return [
            _row(label, unit, medians(results, lambda run: run.values[key]), at_most(goal))
            for label, unit, results, key, goal in (
                ("an idle connection of 200", "MB", idle, "mb_per_connection", 0.3),
                ("import nsqclient", "s", start, "import_s", 0.15),
                ("start to first message", "s", start, "first_message_s", 0.5),
            )
        ]


def _row(
    label: str, unit: str, figures: dict[str, float], goals: Sequence[Goal]
) -> Row:
    row = Row(label, unit, figures, [compare(figures, goal) for goal in goals])
    print("\n".join(f"  {row.label}: {result}" for result in row.goal_results), flush=True)
    return row


@dataclass(frozen=True)
class Work:
    """One part of the bench; ``key`` is its name for ``--only``."""

    key: str
    run: Callable[[Bench], list[Row]]


def _consume(key: str, label: str, goals: Sequence[Goal], **options: object) -> Work:
    work = Consume(**{"names": PAIR, **options})  # type: ignore[arg-type]  # a table's
    return Work(key, lambda bench: bench.consume(label, work, goals))


def _publish(mode: str, label: str, goal: float, names: Sequence[str] = CLIENTS) -> Work:
    work = Publish(names, mode)
    return Work(mode, lambda bench: bench.publish(label, work, at_least(go_nsq=goal)))


WORKS = (
    _consume("consume", "consume, 1 worker",
             at_least(go_nsq=1.8, pynsq=12, gnsq=12, limit=0.7), names=ALL),
    _consume("workers", "consume, 8 workers", at_least(go_nsq=1.5), workers=8),
    _consume("round-trips", "consume, max_in_flight 1", at_least(go_nsq=0.9),
             max_in_flight=1, count=20_000),
    _consume("nsqds", f"consume from {NSQDS} nsqds", at_least(go_nsq=1.5), nsqds=NSQDS),
    *(_consume(layer, f"consume through {layer}", at_least(go_nsq=1.2), layers=(layer,),
               body="json") for layer in ("snappy", "deflate", "tls")),
    _publish("async", "publish_async", 2.0),
    _publish("multi", "publish_many of 1000", 1.0),
    _publish("sync", "publish, 1 thread", 1.15, names=(*CLIENTS, "limit")),
    _publish("sync2", "publish, 2 threads", 1.1, names=THREADED),
    _publish("sync4", "publish, 4 threads", 1.1, names=THREADED),
    _publish("sync16", "publish, 16 threads", 1.0, names=ALL),
    _publish("sync64", "publish, 64 threads", 0.55, names=THREADED),
    Work("latency", Bench.latency),
    Work("cost", Bench.cost),
    Work("footprint", Bench.footprint),
)


def format_table(rows: Sequence[Row]) -> str:
    """One line for each goal, with the figures of all contenders."""
    head = f"{'work':<31} {'unit':<6}" + "".join(f"{name:>11}" for name in ALL)
    lines = [head + f"  {'goal':<20} {'reached':>7}", "-" * (len(head) + 40)]
    for row in rows:
        figures = "".join(
            f"{row.figures[name]:>11,.4g}" if row.figures.get(name, 1e6) < 1000
            else f"{row.figures[name]:>11,.0f}" if name in row.figures else f"{'':>11}"
            for name in ALL
        )
        for number, result in enumerate(row.goal_results):
            start = f"{row.label:<31} {row.unit:<6}{figures}"
            lines.append((start if number == 0 else " " * len(start)) + f"  {result}")
    return "\n".join(lines)


def conditions(rounds: int) -> str:
    """Describe the machine and the method."""
    return (
        f"nsqd {build_nsq.VERSION}, Python {platform.python_version()},"
        f" {platform.system()} {platform.machine()}, {os.cpu_count()} processors; messages of 200"
        f" bytes, max_in_flight 2500, defaults of each client; medians of {rounds} interleaved"
        " rounds"
    )


def main(argv: list[str] | None = None) -> int:
    """Measure all works, or the works of ``--only``. The exit status is always 0."""
    keys = [work.key for work in WORKS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--only", help=f"works, separated by commas: {', '.join(keys)}")
    arguments = parser.parse_args(argv)
    wanted = arguments.only.split(",") if arguments.only else keys
    for key in wanted:
        if key not in keys:
            parser.error(f"unknown {key!r}: choose from {', '.join(keys)}")
    if arguments.rounds < 1:
        parser.error("--rounds is at least 1")
    print(conditions(arguments.rounds))
    rows: list[Row] = []
    try:
        with ExitStack() as stack:
            nsqds = [stack.enter_context(Nsqd(secure=number == 0)) for number in range(NSQDS)]
            bench = Bench(nsqds, arguments.rounds)
            for work in WORKS:
                if work.key in wanted:
                    print(work.key, flush=True)
                    rows += work.run(bench)
    except BenchmarkError as error:
        print(f"benchmark stopped: {error}", file=sys.stderr)
        return 1
    print(f"\n{conditions(arguments.rounds)}\n\n{format_table(rows)}")
    if wanted == keys:
        _write(rows, arguments.rounds)
    return 0


def _write(rows: Sequence[Row], rounds: int) -> None:
    RESULTS.write_text(json.dumps({
        "conditions": conditions(rounds),
        "rows": [{"work": row.label, "unit": row.unit, "figures": row.figures} for row in rows],
    }, indent=1) + "\n")
    PICTURE.parent.mkdir(exist_ok=True)
    rates = {row.label: row.figures for row in rows if row.unit == "msg/s"}
    PICTURE.write_text(picture.draw(rates, conditions(rounds)))
    print(f"\nwritten: {RESULTS.relative_to(CHECKOUT)}, {PICTURE.relative_to(CHECKOUT)}")


if __name__ == "__main__":
    sys.exit(main())
