"""``nsqclient nsq_stat``: watch one channel over all its nsqds, with the flags of the original.

A server that does not answer is reported and left out. The rates of the others stay correct.
"""

from __future__ import annotations

import functools
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nsqclient.cli.flags import BOOL, INT, CommandLineError, Parsed, positive
from nsqclient.cli.tool_flags import POSITIVE, ToolFlags, read_http_tls
from nsqclient.config import Config
from nsqclient.http import ChannelStats, NsqdHTTP
from nsqclient.cluster.ask_all import ServerFailure, UpstreamError
from nsqclient.cluster.cluster import Cluster, Node
from nsqclient.partitioned.http import fetch_stats
from nsqclient.runtime.deadline import format_duration
from nsqclient.runtime.process_signals import Second, Signals

logger: logging.Logger = logging.getLogger("nsqclient.cli")


class Counters(NamedTuple):
    messages: int = 0  #: received since nsqd started
    depth: int = 0
    on_disk: int = 0  #: the part of the depth that is on disk
    in_flight: int = 0
    deferred: int = 0
    requeued: int = 0
    timed_out: int = 0
    clients: int = 0
    paused: int = 0  #: number of nsqds on which it is paused

    @classmethod
    def of(cls, channel: ChannelStats) -> Counters:
        return cls(
            channel.message_count, channel.depth, channel.backend_depth, channel.in_flight_count,
            channel.deferred_count, channel.requeue_count, channel.timeout_count,
            channel.client_count, int(channel.paused),
        )


class Row(NamedTuple):
    name: str
    ingress: float
    egress: float
    counters: Counters


class Answer(NamedTuple):
    """The counters of one nsqd, and when they were received (``time.monotonic()``)."""

    counters: Counters
    at: float


def rates(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> list[Row]:
    """Return one row for each nsqd of the later poll. A new nsqd has rates of 0.

    Each rate is over the time between the two answers of its nsqd.
    """
    rows = []
    for address, (now, at) in after.items():
        then, began = before.get(address, (now, at))
        if now.messages < then.messages:
            then = Counters()  # nsqd was restarted, and counts from 0 again
        came = now.messages - then.messages
        went = came - (now.depth - then.depth)
        elapsed = max(at - began, 1e-9)  # 0 for a new nsqd, whose rates are 0
        rows.append(Row(address, came / elapsed, went / elapsed, now))
    return rows


def total(rows: Iterable[Row]) -> Row:
    rows = list(rows)
    sums = [sum(values) for values in zip(*(row.counters for row in rows))]
    return Row("total", sum(row.ingress for row in rows), sum(row.egress for row in rows),
               Counters(*sums))


class Sampler:
    """Polls the servers. ``quiet``: log nothing; ``problems`` has everything. Threads: one."""

    def __init__(self, topic: str, channel: str, cluster: Cluster, *, quiet: bool = False) -> None:
        self._topic, self._channel = topic, channel
        self._cluster = cluster
        self._quiet = quiet
        self._nodes: list[Node] = []
        self._answered: set[str] = set()  # servers
        #: Address -> its current problem. An empty address: a problem of all servers.
        self.problems: dict[str, str] = {}

    def poll(self) -> dict[str, Answer]:
        """Ask all servers once; return the counters of nsqds that have the channel."""
        cluster = self._cluster
        failures = {each.address: each for each in self._find_nsqds()}
        answers, failed = cluster.each(self._nodes, self._counters_of)
        failures |= {each.address: each for each in failed}
        self._answered.update(cluster.lookupds().keys() - failures.keys(),
                              (node.address for node in answers))
        for address, failure in failures.items():
            is_given = failure.kind == "nsqlookupd" or not cluster.has_lookupds
            if is_given and failure.is_lasting and address not in self._answered:
                raise CommandLineError(f"{address}: {failure.reason}")
        found = {node.address: one for node, one in answers.items() if one is not None}
        problems = {address: failure.reason for address, failure in failures.items()}
        if not found and not problems:
            problems[""] = f"no nsqd has channel {self._channel} of topic {self._topic} (yet)"
        self._report(problems)
        return found

    def _find_nsqds(self) -> list[ServerFailure]:
        try:
            found = self._cluster.nodes()
        except UpstreamError as exc:
            return list(exc.failures)
        self._nodes = [
            node for node in found.nodes if not self._cluster.has_lookupds
            or self._topic in node.topics and self._topic not in node.tombstoned]
        return [each for each in found.failures if not each.is_doubt]

    def _counters_of(self, nsqd: NsqdHTTP) -> Answer | None:
        topic = fetch_stats(nsqd, self._topic, self._channel).topic(self._topic)
        channel = None if topic is None else topic.channel(self._channel)
        return None if channel is None else Answer(Counters.of(channel), time.monotonic())

    def _report(self, problems: dict[str, str]) -> None:
        former, self.problems = self.problems, problems
        if self._quiet:
            return
        for address, problem in problems.items():
            where = f"{address}: " if address else ""
            logger.warning("%s%s", where, problem)
        for address in former:
            if address and address not in problems:
                logger.info("%s answers again", address)


PROGRAM = "nsq_stat"

_SUMMARY = """\
Shows the depth, rates and other counters of a channel, summed over all nsqds that have it. The
counters are read once at the start, then every --interval. On a terminal, the output is a table
with one line per nsqd; otherwise, and with --plain, it has the rows and columns of NSQ's own
nsq_stat."""

_EXAMPLES = [
    ("watch a channel",
     "nsqclient nsq_stat --lookupd-http-address=lookup:4161 --topic=orders --channel=mail"),
    ("one row for a cron job", "nsqclient nsq_stat --nsqd-http-address=127.0.0.1:4151 \\\n"
     "      --topic=orders --channel=mail --count=1 --json"),
]

HEADER = (
    "------rate------+----------------depth----------------+--------------metadata---------------\n"
    "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
)
_POLLS_PER_HEADER = 25


def build_command() -> ToolFlags:
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("What to watch")
    flags.add_topic(channel="")
    flags.group("Output")
    flags.add("interval", POSITIVE, 2.0, "time between two updates")
    flags.add("count", positive(INT), None,
              "number of intervals after which to stop (default: no limit)")
    flags.add("plain", BOOL, False, "print rows even on a terminal")
    flags.add("json", BOOL, False, "print one JSON object per interval")
    flags.exclude("plain", "json")
    flags.add_http_servers()
    flags.add_common()
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    is_live = sys.stdout.isatty() and not values["plain"] and not values["json"]
    view: View = Plain()
    if values["json"]:
        view = functools.partial(_print_json, values["topic"], values["channel"])
    elif is_live:
        view = Live(f"{values['topic']}/{values['channel']}", values["interval"])
    with make_cluster(values) as cluster, Signals(
            Second.EXIT, on_hangup=lambda: signals.stop()) as signals:
        sampler = Sampler(
            values["topic"], values["channel"], cluster,
            quiet=is_live)  # log lines would tear the table
        shown = _watch(sampler, view, signals, values["interval"], values["count"])
        ended_by_signal = signals.is_stopping
    return 0 if shown or ended_by_signal else CommandLineError.status


def make_cluster(values: Mapping[str, Any]) -> Cluster:
    return Cluster(
        values["lookupd-http-address"], values["nsqd-http-address"],
        Config(**read_http_tls(values)),
        connect_timeout=values["http-client-connect-timeout"],
        timeout=values["http-client-request-timeout"])


#: Shows the rows of the nsqds that answered, and the problems of the others; None for rows after
#: the first poll, since rates need a second.
View = Callable[[Sequence[Row] | None, Mapping[str, str]], None]


def _watch(
    sampler: Sampler, view: View, signals: Signals, interval: float, count: int | None
) -> int:
    before = sampler.poll()
    due = time.monotonic()
    if before:
        view(None, sampler.problems)
    shown = intervals = 0
    while not signals.is_stopping and (count is None or intervals < count):
        due += interval
        if signals.wait(max(0.0, due - time.monotonic())):
            break
        due = max(due, time.monotonic() - interval)  # after slow polls, do not catch up
        intervals += 1
        after = sampler.poll()
        if after:
            view(rates(before, after) if before else None, sampler.problems)
            shown += bool(before)
            before = after
        elif isinstance(view, Live):
            view([], sampler.problems)
    return shown


class Plain:
    def __init__(self) -> None:
        self._polls = 0

    def __call__(self, rows: Sequence[Row] | None, problems: Mapping[str, str]) -> None:
        if self._polls % _POLLS_PER_HEADER == 0:
            sys.stdout.write(HEADER)
        self._polls += 1
        if rows is not None:
            sys.stdout.write(format_row(total(rows)) + "\n")
        sys.stdout.flush()


def format_row(row: Row) -> str:
    seen = row.counters
    return (
        f"{round(row.ingress):7d} {round(row.egress):7d} |"
        f" {seen.depth:7d} {seen.depth - seen.on_disk:7d} {seen.on_disk:7d}"
        f" {seen.in_flight:5d} {seen.deferred:5d} |"
        f" {seen.requeued:7d} {seen.timed_out:7d} {seen.messages:12d} {seen.clients:7d}"
    )


def _print_json(
    topic: str, channel: str, rows: Sequence[Row] | None, problems: Mapping[str, str]
) -> None:
    if rows is None:
        return
    record = {
        "topic": topic, "channel": channel, "time": round(time.time(), 3),
        **_as_json(total(rows)), "nsqds": {row.name: _as_json(row) for row in rows},
        "problems": problems,
    }
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def _as_json(row: Row) -> dict[str, float]:
    return {"ingress": round(row.ingress, 3), "egress": round(row.egress, 3),
            **row.counters._asdict()}


class Live:
    def __init__(self, title: str, interval: float) -> None:
        self._title = title
        self._interval = interval
        self._drawn = 0  # lines on the screen

    def __call__(self, rows: Sequence[Row] | None, problems: Mapping[str, str]) -> None:
        if rows is None:
            if not self._drawn:
                self._draw([f"{self._title}: counting for {format_duration(self._interval)} ..."])
            return
        lines = [f"{self._title}  {time.strftime('%H:%M:%S')}  every"
                 f" {format_duration(self._interval)}"]
        width = max([len(row.name) for row in rows] + [5])
        lines += [" " * (width + 2) + line for line in HEADER.splitlines()]
        listed = [total(rows), *sorted(rows)] if rows else []
        lines += [f"{row.name:<{width}}  {format_row(row)}{_paused(row)}" for row in listed]
        lines += [f"! {address}: {problem}" if address else f"! {problem}"
                  for address, problem in sorted(problems.items())]
        self._draw(lines)

    def _draw(self, lines: list[str]) -> None:
        columns, height = shutil.get_terminal_size()
        # A line that wraps, or a screen that scrolls, would break the count of lines.
        lines = [line[:columns - 1] for line in lines[:max(1, height - 1)]]
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        sys.stdout.write(f"{up}\x1b[J" + "\n".join(lines) + "\n")
        sys.stdout.flush()
        self._drawn = len(lines)


def _paused(row: Row) -> str:
    return "  paused" if row.counters.paused else ""
