"""``nsqclient doctor``: the tool. Flags, the examination, the table, the exit status.

Exit status: 0 when nothing has to be mended, 1 when something has to, 2 for a flag that does not
parse.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from nsqclient.cli.doctor.examination import Examination, Patient
from nsqclient.cli.doctor.findings import Verdict
from nsqclient.cli.doctor.table import as_json, as_table
from nsqclient.cli.goflags import BOOL, DURATION, STRING, STRINGS, CommandLineError, Parsed
from nsqclient.cli.signals import Signals
from nsqclient.cli.tools import (
    OPTIONS, ToolFlags, add_secret_flags, check_name, read_config, run,
)
from nsqclient.http.urls import lookup_url, nsqd_url
from nsqclient.runtime.go_duration import format_duration
from nsqclient.runtime.transport import parse_address

PROGRAM = "doctor"

_SUMMARY = """\
Looks at a cluster as a consumer on this machine sees it, says what is wrong and what to do.
It connects and asks; it publishes, subscribes to and changes nothing. The options of your
consumer (TLS, auth_secret, ...) belong on the command line too. The exit status is 1 when
something has to be mended."""

_EXAMPLES = [
    ("why does my consumer get nothing?",
     "nsqclient doctor --lookupd-http-address=lookup:4161 --topic=orders --channel=mail"),
    ("with TLS and authentication",
     "nsqclient doctor --lookupd-http-address=lookup:4161 --topic=orders \\\n"
     "      --consumer-opt=tls_v1 --consumer-opt=tls_root_ca_file,ca.pem \\\n"
     "      --auth-secret-file=/run/secrets/nsq"),
]

EXIT_SOMETHING_WRONG = 1

#: Seconds between two looks at the counters.
_LOOK_INTERVAL = 1.0


def build_flags() -> ToolFlags:
    """The flags of doctor."""
    flags = ToolFlags(PROGRAM, _SUMMARY, _EXAMPLES)
    flags.group("What to look at")
    flags.add("topic", STRING, "", "NSQ topic; required")
    flags.add("channel", STRING, "", "NSQ channel (default: every channel of the topic)")
    flags.group("Where to look (at least one address is required)")
    flags.add("lookupd-http-address", STRINGS, (),
              "nsqlookupd <addr>:<port> or URL that knows the nsqds; may be repeated")
    flags.add("nsqd-tcp-address", STRINGS, (), "nsqd <addr>:<port>; may be repeated")
    flags.add("nsqd-http-address", STRINGS, (),
              "nsqd's HTTP <addr>:<port> or URL, for statistics (default: as nsqlookupd says, or"
              " beside the TCP port); may be repeated")
    flags.group("How to look")
    flags.add("consumer-opt", OPTIONS, (), "option of the consumer, such as tls_v1 or"
              " tls_root_ca_file,ca.pem; may be repeated")
    add_secret_flags(flags)
    flags.add("watch", DURATION, 10.0,
              "how long to watch for messages that time out; 0 does not watch")
    flags.add("connect-timeout", DURATION, 2.0, "time to connect to a server")
    flags.add("request-timeout", DURATION, 5.0, "time for a server's answer")
    flags.add("json", BOOL, False, "a JSON object instead of the table")
    flags.add_common(quiet=True)  # what is logged stands in the table as well
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Examine and print; return the exit status."""
    return run(build_flags(), argv, _run)


def _run(parsed: Parsed) -> int:
    examination = Examination(_patient(parsed.values))
    with Signals() as signals:
        examination.look()
        if examination.can_look_again and not signals.is_stopping:
            _watch(examination, signals, parsed.values["watch"])
    show = as_json if parsed.values["json"] else as_table
    sys.stdout.write(show(examination.findings))
    sys.stdout.flush()
    wrong = [each for each in examination.findings if each.verdict is Verdict.WRONG]
    return EXIT_SOMETHING_WRONG if wrong else 0


def _watch(examination: Examination, signals: Signals, seconds: float) -> None:
    """Look again until something grows, the time is over, or a signal comes."""
    began = time.monotonic()
    if seconds > 0:
        sys.stderr.write(f"watching for {format_duration(seconds)}; Ctrl-C ends it\n")
    while (left := began + seconds - time.monotonic()) > 0:
        if signals.wait(min(left, _LOOK_INTERVAL)):
            return
        if examination.look_again(time.monotonic() - began):
            return


def _patient(values: dict[str, Any]) -> Patient:
    check_name(values["topic"], "topic")
    if values["channel"]:
        check_name(values["channel"], "channel")
    names = ("lookupd-http-address", "nsqd-tcp-address", "nsqd-http-address")
    if not any(values[name] for name in names):
        raise CommandLineError(f"give --{' or --'.join(names[:2])}")
    for address in values["lookupd-http-address"]:
        lookup_url(address)
    for address in values["nsqd-tcp-address"]:
        parse_address(address)
    for address in values["nsqd-http-address"]:
        nsqd_url(address, "stats")
    for name in ("connect-timeout", "request-timeout"):
        if values[name] <= 0:
            raise CommandLineError(f"--{name} should be positive")
    config = read_config(values, PROGRAM, "consumer-opt",
                         dial_timeout=format_duration(values["connect-timeout"]))
    return Patient(
        values["topic"], values["channel"], list(dict.fromkeys(values["nsqd-tcp-address"])),
        list(dict.fromkeys(values["lookupd-http-address"])),
        list(dict.fromkeys(values["nsqd-http-address"])), config,
        (values["connect-timeout"], values["request-timeout"]),
    )
