"""Measure NSQ clients side by side on one real nsqd: ``python benchmarks/run.py``.

See benchmarks/README.rst for the method.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys

import contestants
from contestants import CONSUMERS, PUBLISHERS, Measurement
from nsqd import BenchmarkError, Nsqd, bodies_of

PUBLISH_MODES = {
    "sync": "publish, one thread, each waits for its OK",
    "sync16": "publish, 16 threads over one connection or producer",
    "multi": "publish 1000 messages at a time (MPUB)",
    "async": "publish without waiting, then wait for all",
}
#: How many messages a mode is measured with, as a factor of --count: about a second each.
SHARES = {"sync": 0.1, "sync16": 0.5, "multi": 10, "async": 1}
CHANNEL = "bench"
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
    if arguments.rounds < 1 or arguments.count < 1 or arguments.size < 1:
        parser.error("--rounds, --count and --size are at least 1")
    return arguments


def measure_consuming(nsqd: Nsqd, arguments: argparse.Namespace) -> list[Measurement]:
    """Run every contender once in every round, each on a full channel of its own."""
    commands = contestants.prepare(arguments.names, "consume")
    # The end of a stream waits in nsqd's output buffer for a timer of 250 ms, which would round
    # every result up to a multiple of that: the last message measured is not the last there is.
    surplus = 4 * arguments.max_in_flight
    bodies = bodies_of(arguments.body, arguments.size)
    results = []
    for number in range(arguments.rounds):
        for position, name in enumerate(_rotated(arguments.names, number)):
            topic = f"consume{number}-{position}"
            nsqd.fill(topic, CHANNEL, arguments.count + surplus, bodies)
            result = contestants.run(
                commands[name],
                [nsqd.tcp_address, topic, CHANNEL, arguments.count, arguments.max_in_flight,
                 arguments.workers, *_layers(nsqd, arguments)],
            )
            if result is not None:
                nsqd.check_finished(topic, CHANNEL, arguments.count)
                _say(number, result)
                results.append(result)
            nsqd.delete(topic)
    return results


def measure_publishing(
    nsqd: Nsqd, arguments: argparse.Namespace, mode: str
) -> list[Measurement]:
    """Run every contender once in every round, each into a topic of its own."""
    commands = contestants.prepare(arguments.names, "publish")
    # A multiple of 16 000, so that threads and batches share it evenly.
    count = max(1, round(arguments.count * SHARES[mode] / 16_000)) * 16_000
    results = []
    for number in range(arguments.rounds):
        for position, name in enumerate(_rotated(arguments.names, number)):
            topic = f"publish-{mode}{number}-{position}"
            nsqd.create(topic, CHANNEL)
            result = contestants.run(
                commands[name],
                [nsqd.tcp_address, topic, count, arguments.size, mode,
                 *_layers(nsqd, arguments)],
            )
            if result is not None:
                nsqd.check_published(topic, CHANNEL, count)
                _say(number, result)
                results.append(result)
            nsqd.delete(topic)
    return results


def _layers(nsqd: Nsqd, arguments: argparse.Namespace) -> list[str]:
    """Name the layers as a contender reads them."""
    return [
        f"tls={nsqd.certificate}" if name == "tls" else name for name in arguments.layers
    ]


def _rotated(names: list[str], by: int) -> list[str]:
    """Start each round with another contender: nobody always runs first."""
    by %= len(names)
    return names[by:] + names[:by]


def _say(round_number: int, result: Measurement) -> None:
    print(f"  round {round_number + 1}: {result.name:<10} {result.rate:>12,.0f} messages/s",
          flush=True)


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
        with Nsqd(secure=arguments.tls) as nsqd:
            if not arguments.modes:
                print(f"consume: max_in_flight {arguments.max_in_flight},"
                      f" workers {arguments.workers}")
                print(format_table(measure_consuming(nsqd, arguments)))
            for mode in arguments.modes:
                print(PUBLISH_MODES[mode])
                print(format_table(measure_publishing(nsqd, arguments, mode)))
    except BenchmarkError as error:
        print(f"benchmark stopped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
