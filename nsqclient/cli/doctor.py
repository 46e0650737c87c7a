"""``nsqclient doctor``. Exit status: 0 without errors, 1 with errors, 2 for bad flags."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import Any

from nsqclient import native
from nsqclient.cli.flags import BOOL, DURATION, NAME, STRINGS, CommandLineError, Parsed
from nsqclient.cli.tool_flags import (
    OPTIONS, POSITIVE, ToolFlags, add_addresses, add_secret_flags, read_config,
)
from nsqclient.display import GREEN, RED, YELLOW, has_colors, paint
from nsqclient.cluster.doctor.diagnosis import Diagnosis, Target
from nsqclient.cluster.doctor.findings import Finding, Severity, in_order, ok, summary
from nsqclient.http.urls import lookup_url, nsqd_url
from nsqclient.runtime.addresses import parse_address
from nsqclient.runtime.deadline import format_duration
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.version import __version__

PROGRAM = "doctor"

_SUMMARY = """\
Checks a cluster from the point of view of a consumer on this machine, and reports problems and
how to fix them. It only connects and queries: it does not publish, subscribe or change anything.
Pass the options of your consumer too (TLS, auth_secret, ...). Without an address, it checks
127.0.0.1. The exit status is 1 if it finds errors."""

_EXAMPLES = [
    ("check the servers on this machine", "nsqclient doctor"),
    ("find out why a consumer receives nothing",
     "nsqclient doctor --lookupd-http-address=lookup:4161 --topic=orders --channel=mail"),
    ("check a cluster with TLS and authentication",
     "nsqclient doctor --lookupd-http-address=lookup:4161 --topic=orders \\\n"
     "      --consumer-opt=tls_v1 --consumer-opt=tls_root_ca_file,ca.pem \\\n"
     "      --auth-secret-file=/run/secrets/nsq"),
]


LOCAL_LOOKUPD, LOCAL_NSQD = "127.0.0.1:4161", "127.0.0.1:4150"

_CHECK_INTERVAL = 1.0


def build_command() -> ToolFlags:
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("What to check")
    flags.add("topic", NAME, "", "NSQ topic (default: every topic of every nsqd)")
    flags.add("channel", NAME, "", "NSQ channel (default: every channel of the topic)")
    flags.need("channel", "topic")
    flags.group("Servers (default: those that listen on 127.0.0.1:4161 and 127.0.0.1:4150)")
    add_addresses(flags, "lookupd-http-address", "nsqd-tcp-address")
    flags.add("nsqd-http-address", STRINGS, (),
              "HTTP address of an nsqd, <addr>:<port> or URL, for statistics (default: from"
              " nsqlookupd, or the TCP port plus 1); may be repeated")
    flags.group("Options")
    flags.add("consumer-opt", OPTIONS, (), "option of the consumer, such as tls_v1 or"
              " tls_root_ca_file,ca.pem; may be repeated")
    add_secret_flags(flags)
    flags.add("watch", DURATION, 10.0,
              "time to watch for messages that time out; 0: do not watch")
    flags.add("connect-timeout", POSITIVE, 2.0, "timeout for connecting to a server")
    flags.add("request-timeout", POSITIVE, 5.0, "timeout for the response of a server")
    flags.add("json", BOOL, False, "print a JSON object instead of a table")
    flags.add_common(quiet=True)  # the table repeats the log
    return flags


def _run(parsed: Parsed) -> int:
    with Diagnosis(_target(parsed.values)) as diagnosis, Signals(Second.EXIT) as signals:
        diagnosis.run()
        if diagnosis.can_check_again and not signals.is_stopping:
            _watch(diagnosis, signals, parsed.values["watch"])
    client = ok("client", "this machine", f"nsqclient {__version__}, {native.FORM}")
    findings = [client, *diagnosis.findings]
    if parsed.values["json"]:
        sys.stdout.write(as_json(findings))
    else:
        sys.stdout.write(as_table(findings, has_colors(sys.stdout)))
    sys.stdout.flush()
    has_errors = any(each.severity is Severity.ERROR for each in findings)
    return CommandLineError.status if has_errors else 0


def _watch(diagnosis: Diagnosis, signals: Signals, seconds: float) -> None:
    """Check again until a counter grows, the time is over, or a signal comes."""
    began = time.monotonic()
    if seconds > 0:
        sys.stderr.write(f"watching for {format_duration(seconds)}; Ctrl-C ends it\n")
    while (left := began + seconds - time.monotonic()) > 0:
        if signals.wait(min(left, _CHECK_INTERVAL)):
            return
        if diagnosis.check_again(time.monotonic() - began):
            return


def _choose_local(values: dict[str, Any]) -> None:
    local = {"lookupd-http-address": LOCAL_LOOKUPD, "nsqd-tcp-address": LOCAL_NSQD}
    listening = {name: address for name, address in local.items()
                 if _listens(address, values["connect-timeout"])}
    for name, address in (listening or local).items():
        values[name] = [address]
    shown = " and ".join(
        f"{name.partition('-')[0].replace('lookupd', 'nsqlookupd')} at {address}"
        for name, address in (listening or local).items())
    sys.stderr.write(f"no address was given: asking {shown}\n")


def _listens(address: str, timeout: float) -> bool:
    try:
        socket.create_connection(parse_address(address), timeout).close()
    except OSError:
        return False
    return True


def _target(values: dict[str, Any]) -> Target:
    for address in values["lookupd-http-address"]:
        lookup_url(address)
    for address in values["nsqd-tcp-address"]:
        parse_address(address)
    for address in values["nsqd-http-address"]:
        nsqd_url(address, "stats")
    names = ("lookupd-http-address", "nsqd-tcp-address", "nsqd-http-address")
    if not any(values[name] for name in names):
        _choose_local(values)
    config = read_config(values, PROGRAM, "consumer-opt",
                         dial_timeout=format_duration(values["connect-timeout"]))
    return Target(
        values["topic"], values["channel"], list(dict.fromkeys(values["nsqd-tcp-address"])),
        list(dict.fromkeys(values["lookupd-http-address"])),
        list(dict.fromkeys(values["nsqd-http-address"])), config,
        (values["connect-timeout"], values["request-timeout"]),
    )


# -- how findings are printed

#: Columns of a line: the least, and the default if the width of the terminal is unknown.
_WIDE, _NARROW = 120, 60
_HEADER = ("", "CHECK", "WHERE", "FINDING")
_COLORS = {Severity.OK: GREEN, Severity.WARNING: YELLOW, Severity.ERROR: RED}


def as_table(findings: Sequence[Finding], colored: bool = False) -> str:
    """Make a table. Errors come last, because a terminal shows its end."""
    width = max(_NARROW, shutil.get_terminal_size((_WIDE, 24)).columns)
    rows = in_order(findings)
    cells = [_HEADER, *((row.severity.value, row.check, row.where, row.text) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    widths[2] = min(widths[2], width // 3)
    margin = sum(widths) + 6
    lines = _row(cells[0], widths, width)
    for finding, cell in zip(rows, cells[1:]):
        row = _row(cell, widths, width)
        if colored:
            word = finding.severity.value
            row[0] = row[0].replace(word, paint(word, _COLORS[finding.severity]), 1)
        lines += row
        if finding.hint:
            lines += textwrap.wrap(
                finding.hint, width, initial_indent=" " * margin + "-> ",
                subsequent_indent=" " * (margin + 3), break_long_words=False,
                break_on_hyphens=False)
        if finding.command:  # never wrapped: it is copied into a shell
            lines.append(f"{' ' * margin}$ {finding.command}")
    return "\n".join(line.rstrip() for line in [*lines, "", summary(findings)]) + "\n"


def _row(cells: Sequence[str], widths: list[int], width: int) -> list[str]:
    margin = sum(widths) + 6
    head = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths)) + "  "
    text = textwrap.wrap(cells[3], max(20, width - margin), break_long_words=False,
                         break_on_hyphens=False) or [""]
    if len(head) > margin:  # a long address has a line of its own
        return [head.rstrip(), *(" " * margin + line for line in text)]
    return [head + text[0], *(" " * margin + line for line in text[1:])]


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps({
        "summary": summary(findings),
        "findings": [
            {**finding._asdict(), "severity": finding.severity.value.lower()}
            for finding in findings
        ],
    }) + "\n"
