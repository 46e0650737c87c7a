"""Consume with more messages in flight than handlers finish in time: overload.py.

nsqd has all messages before the consumer connects. A delivery is counted at nsqd: messages,
timeouts and requeues together. The least time is the sum of the handlers' measured times, because
on a busy machine a wait of 5 ms takes longer. ``off`` is nsqclient with ``rdy_share_of_timeout=0``.
Each figure is printed with nsqclient's goal.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import contestants
from nsqd import BenchmarkError, Nsqd

CHANNEL = "bench"
NAMES = ("nsqclient", "off", "go-nsq")
#: Deliveries for each message, and the time as a part of the least, at most.
MOST_DELIVERIES, MOST_TIME = 1.05, 1.1


class Load(NamedTuple):
    """The messages, handlers and limits of a run."""

    messages: int = 2000
    handler_ms: float = 5
    workers: int = 1
    nsqds: int = 1
    max_in_flight: int = 1000
    msg_timeout: float = 1.0

    def least(self, handler_time: float) -> float:
        """The shortest time for handlers that take ``handler_time`` seconds."""
        return self.messages * handler_time / self.workers


LOADS = (
    Load(), Load(messages=16_000, workers=8, nsqds=4), Load(handler_ms=40, workers=8, nsqds=4),
)


class Result(NamedTuple):
    """One run."""

    deliveries: float  #: for each message
    time: float  #: as a part of the least
    unseen: int  #: messages given up that no handler had


def measure(command: Sequence[str], load: Load, nsqds: Sequence[Nsqd], topic: str,
            *more: object) -> Result:
    """Fill a topic, run a contender, and count."""
    bodies = [b"%d" % number for number in range(load.messages)]
    for index, nsqd in enumerate(nsqds):
        part = bodies[index::len(nsqds)]
        nsqd.fill(topic, CHANNEL, len(part), part)
    line = contestants.run([*command], [
        ",".join(nsqd.tcp_address for nsqd in nsqds), topic, CHANNEL, load.messages,
        load.max_in_flight, load.workers, load.handler_ms, load.msg_timeout, *more,
    ])
    if line is None:
        raise BenchmarkError(f"{command[-1]} skipped the load")
    channels = [nsqd.channel(topic, CHANNEL) for nsqd in nsqds]
    for nsqd in nsqds:
        nsqd.delete(topic)
    deliveries = load.messages + sum(
        channel["timeout_count"] + channel["requeue_count"] for channel in channels)
    values: dict[str, Any] = line.values
    time = values["seconds"] / load.least(values["mean"])
    return Result(deliveries / load.messages, time, int(values["unseen"]))


def run(names: Sequence[str], rounds: int) -> None:
    """Measure all loads and print them."""
    programs = contestants.prepare(
        ["go-nsq", "nsqclient"] if "go-nsq" in names else ["nsqclient"], "overload")
    for load in LOADS:
        least = load.least(load.handler_ms / 1000)
        print(f"{load.messages} messages of {load.handler_ms:g} ms, {load.workers} workers,"
              f" {load.nsqds} nsqds, max_in_flight {load.max_in_flight},"
              f" msg_timeout {load.msg_timeout:g} s; at least {least:g} s")
        found: dict[str, list[Result]] = {name: [] for name in names}
        with contextlib.ExitStack() as stack:
            nsqds = [stack.enter_context(Nsqd()) for _ in range(load.nsqds)]
            for number in range(rounds):
                for name in names:
                    command = programs["go-nsq" if name == "go-nsq" else "nsqclient"]
                    share = {"nsqclient": [""], "off": ["0"]}.get(name, [])
                    found[name].append(
                        measure(command, load, nsqds, f"overload{number}-{name}", *share))
        for name, results in found.items():
            deliveries, time = (
                statistics.median(column) for column in list(zip(*results))[:2])
            unseen = max(result.unseen for result in results)
            is_met = deliveries <= MOST_DELIVERIES and time <= MOST_TIME and not unseen
            print(f"  {name:<10} {deliveries:6.3f} deliveries (<= {MOST_DELIVERIES})"
                  f" {time:6.3f} x the least time (<= {MOST_TIME}) {unseen} unseen (0)"
                  f"  {'met' if is_met else 'MISSED'}", flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(NAMES), help="contenders, by commas")
    args = parser.parse_args()
    try:
        run(args.only.split(","), args.rounds)
    except BenchmarkError as error:
        print(f"benchmark stopped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
