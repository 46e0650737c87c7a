"""``nsqclient nsq_stat``: watch one channel over all its nsqds, with the flags of the original.

Rows with the original's columns, or a table that is drawn again and again where stdout is a
terminal. A server that does not answer is reported and left out until it does.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import Any, Protocol

from nsqclient.cli.flags import (
    BOOL, DURATION, INT, STRING, CommandLineError, FlagError, Parsed,
)
from nsqclient.cli.sampling import Row, Sampler, rates, total
from nsqclient.cli.signals import Signals
from nsqclient.cli.tool_flags import ToolFlags, check_http_servers, check_name
from nsqclient.runtime.deadline import format_duration

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

#: The original's two lines of heading; they are repeated after so many polls.
HEADER = (
    "------rate------+----------------depth----------------+--------------metadata---------------\n"
    "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
)
_POLLS_PER_HEADER = 25

EXIT_NOTHING_SHOWN = 1


def build_command() -> ToolFlags:
    """The command and its flags."""
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("What to watch")
    flags.add("topic", STRING, "", "NSQ topic; required")
    flags.add("channel", STRING, "", "NSQ channel; required")
    flags.group("Output")
    flags.add("interval", DURATION, 2.0, "time between two updates")
    flags.add("count", INT, None, "number of intervals after which to stop (default: no limit)")
    flags.add("plain", BOOL, False, "print rows even on a terminal")
    flags.add("json", BOOL, False, "print one JSON object per interval")
    flags.add_http_servers()
    flags.add_common()
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    _check(values, parsed.given)
    is_live = sys.stdout.isatty() and not values["plain"] and not values["json"]
    view: View = Plain()
    if values["json"]:
        view = Json(values["topic"], values["channel"])
    elif is_live:
        view = Live(f"{values['topic']}/{values['channel']}", values["interval"])
    sampler = Sampler(
        values["topic"], values["channel"],
        nsqds=dict.fromkeys(values["nsqd-http-address"]),
        lookupds=dict.fromkeys(values["lookupd-http-address"]),
        connect_timeout=values["http-client-connect-timeout"],
        request_timeout=values["http-client-request-timeout"],
        quiet=is_live,  # log lines would tear the table
    )
    try:
        with Signals(on_hangup=lambda: signals.stop()) as signals:
            shown = _watch(sampler, view, signals, values["interval"], values["count"])
            ended_by_signal = signals.is_stopping
    except BrokenPipeError:
        # The reader of the rows is gone; Python's own flush at exit must not raise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        sampler.close()
    return 0 if shown or ended_by_signal else EXIT_NOTHING_SHOWN


def _check(values: dict[str, Any], given: frozenset[str]) -> None:
    if not values["topic"] or not values["channel"]:
        raise FlagError("--topic and --channel are required")
    for name in ("topic", "channel"):
        check_name(values[name], name)
    if values["interval"] <= 0:
        raise CommandLineError("--interval should be positive")
    if "count" in given and values["count"] <= 0:
        raise CommandLineError("--count should be positive")
    check_http_servers(values)
    if values["plain"] and values["json"]:
        raise FlagError("use --plain or --json not both")


class View(Protocol):
    """A way to show the counters."""

    def begin(self) -> None:
        """A poll had a result; called before ``show``, and alone for the first poll."""
        ...

    def show(self, rows: list[Row], problems: dict[str, str]) -> None:
        """Show the rows of the nsqds that answered."""
        ...


def _watch(
    sampler: Sampler, view: View, signals: Signals, interval: float, count: int | None
) -> int:
    """Poll and show until the end; return how many times something was shown."""
    before = sampler.poll()
    due = time.monotonic()
    if before:
        view.begin()
    shown = intervals = 0
    while not signals.is_stopping and (count is None or intervals < count):
        due += interval
        if _wait_until(due, signals):
            break
        due = max(due, time.monotonic() - interval)  # slow polls are not made up for
        intervals += 1
        after = sampler.poll()
        if after:
            view.begin()
            if before:  # else there is nothing to compare with yet
                view.show(rates(before, after), sampler.problems)
                shown += 1
            before = after
        elif isinstance(view, Live):
            view.show([], sampler.problems)
    return shown


def _wait_until(when: float, signals: Signals) -> bool:
    """Wait; return whether the end was asked for before."""
    while (left := when - time.monotonic()) > 0:
        if signals.wait(left):
            return True
    return signals.is_stopping


class Plain:
    """Rows as the original prints them."""

    def __init__(self) -> None:
        self._polls = 0

    def begin(self) -> None:
        """Print the heading when it is time."""
        if self._polls % _POLLS_PER_HEADER == 0:
            sys.stdout.write(HEADER)
            sys.stdout.flush()
        self._polls += 1

    def show(self, rows: list[Row], problems: dict[str, str]) -> None:
        """Print the sum."""
        sys.stdout.write(format_row(total(rows)) + "\n")
        sys.stdout.flush()


def format_row(row: Row) -> str:
    """The original's columns."""
    seen = row.counters
    return (
        f"{round(row.ingress):7d} {round(row.egress):7d} |"
        f" {seen.depth:7d} {seen.depth - seen.on_disk:7d} {seen.on_disk:7d}"
        f" {seen.in_flight:5d} {seen.deferred:5d} |"
        f" {seen.requeued:7d} {seen.timed_out:7d} {seen.messages:12d} {seen.clients:7d}"
    )


class Json:
    """One JSON object for each interval."""

    def __init__(self, topic: str, channel: str) -> None:
        self._names = {"topic": topic, "channel": channel}

    def begin(self) -> None:
        """Print nothing."""

    def show(self, rows: list[Row], problems: dict[str, str]) -> None:
        """Print the sum, and what each nsqd has."""
        record = {
            **self._names, "time": round(time.time(), 3), **_as_json(total(rows)),
            "nsqds": {row.name: _as_json(row) for row in rows}, "problems": problems,
        }
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


def _as_json(row: Row) -> dict[str, float]:
    return {"ingress": round(row.ingress, 3), "egress": round(row.egress, 3),
            **row.counters._asdict()}


class Live:
    """A table that is drawn over the last one."""

    def __init__(self, title: str, interval: float) -> None:
        self._title = title
        self._interval = interval
        self._drawn = 0  # lines on the screen

    def begin(self) -> None:
        """Show that rates need a second poll."""
        if not self._drawn:
            self._draw([f"{self._title}: counting for {format_duration(self._interval)} ..."])

    def show(self, rows: list[Row], problems: dict[str, str]) -> None:
        """Draw the sum, a line for each nsqd, and the problems."""
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
