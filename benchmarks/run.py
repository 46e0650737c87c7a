"""Measure NSQ clients side by side at one work: ``python benchmarks/run.py``.

``bench.py`` measures all works and holds them against their goals; benchmarks/README.rst has the
method.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import sys

import contestants
from contestants import CONSUMERS, PUBLISHERS, Measurement
from measuring import Consume, Publish, consume, publish
from nsqd import BenchmarkError, Nsqd

PUBLISH_MODES = {
    "sync": "publish, one thread, each waits for its OK",
    "sync2": "publish, 2 threads",
    "sync4": "publish, 4 threads",
    "sync16": "publish, 16 threads",
    "sync64": "publish, 64 threads",
    "multi": "publish 1000 messages at a time (MPUB)",
    "async": "publish without waiting, then wait for all",
    "async4": "the same from 4 threads",
}
#: The clients that take byte layers here.
LAYERED = ("go-nsq", "nsqclient")


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (3)")
    parser.add_argument("--count", type=int, default=100_000, help="messages (100000)")
    parser.add_argument("--size", type=int, default=200, help="bytes of a message (200)")
    parser.add_argument("--max-in-flight", type=int, default=2500, help="(2500)")
    parser.add_argument("--workers", type=int, default=1, help="handlers at once (1)")
    parser.add_argument("--nsqds", type=int, default=1, help="consume from so many nsqds (1)")
    parser.add_argument("--only", help="contenders, separated by commas")
    parser.add_argument("--body", choices=("x", "json"), default="x",
                        help="consume the letter x or JSON that differs (x)")
    for name in ("tls", "snappy", "deflate"):
        parser.add_argument(f"--{name}", action="store_true",
                            help=f"through {name}; {' and '.join(LAYERED)} only")
    parser.add_argument(
        "--publish",
        nargs="?",
        const=",".join(PUBLISH_MODES),
        help=f"measure publishing instead; modes ({','.join(PUBLISH_MODES)})",
    )
    arguments = parser.parse_args(argv)
    arguments.layers = [
        name for name in ("tls", "snappy", "deflate") if getattr(arguments, name)
    ]
    known = PUBLISHERS if arguments.publish else CONSUMERS
    known = LAYERED if arguments.layers else known
    arguments.names = arguments.only.split(",") if arguments.only else list(known)
    arguments.modes = arguments.publish.split(",") if arguments.publish else []
    for given, allowed in ((arguments.names, known), (arguments.modes, tuple(PUBLISH_MODES))):
        for word in given:
            if word not in allowed:
                parser.error(f"unknown {word!r}: choose from {', '.join(allowed)}")
    if min(arguments.rounds, arguments.count, arguments.size, arguments.nsqds) < 1:
        parser.error("--rounds, --count, --size and --nsqds are at least 1")
    return arguments


def format_table(results: list[Measurement]) -> str:
    """Return the medians, their spread, and their ratios to go-nsq and pynsq."""
    by_name: dict[str, list[Measurement]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result)
    medians = {
        name: statistics.median(one.rate for one in runs) for name, runs in by_name.items()
    }
    lines = [
        f"{'client':<18} {'median msg/s':>13} {'lowest':>12} {'highest':>12} {'CPU s':>7}"
        f" {'x go-nsq':>9} {'x pynsq':>9}"
    ]
    for name, median in sorted(medians.items(), key=lambda item: -item[1]):
        runs = by_name[name]
        rates = [one.rate for one in runs]
        cpu = statistics.median(one.cpu_seconds for one in runs)
        ratios = [
            f"{median / medians[other]:>9.2f}" if other in medians else f"{'-':>9}"
            for other in ("go-nsq", "pynsq")
        ]
        lines.append(
            f"{name + ' ' + runs[0].version:<18} {median:>13,.0f} {min(rates):>12,.0f}"
            f" {max(rates):>12,.0f} {cpu:>7.2f} {ratios[0]} {ratios[1]}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure, print tables, return the exit status."""
    arguments = parse_arguments(argv)
    print(
        f"nsqd {contestants.build_nsq.VERSION}, Python {platform.python_version()},"
        f" {platform.system()} {platform.machine()}, {os.cpu_count()} processors;"
        f" {arguments.count:,} messages of {arguments.size} bytes ({arguments.body}),"
        f" {arguments.rounds} rounds"
    )
    if arguments.layers:
        print(f"through {' and '.join(arguments.layers)}")
    try:
        with contextlib.ExitStack() as stack:
            nsqds = [
                stack.enter_context(Nsqd(secure=arguments.tls)) for _ in range(arguments.nsqds)
            ]
            if not arguments.modes:
                print(f"consume: max_in_flight {arguments.max_in_flight},"
                      f" workers {arguments.workers}, nsqds {arguments.nsqds}")
                consuming = Consume(
                    arguments.names, arguments.count, arguments.size, arguments.body,
                    arguments.max_in_flight, arguments.workers, arguments.layers,
                    arguments.nsqds,
                )
                print(format_table(consume(consuming, nsqds, arguments.rounds)))
            for mode in arguments.modes:
                print(PUBLISH_MODES[mode])
                publishing = Publish(
                    arguments.names, mode, arguments.count, arguments.size, arguments.layers
                )
                print(format_table(publish(publishing, nsqds[0], arguments.rounds)))
    except BenchmarkError as error:
        print(f"benchmark stopped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
