"""The console script ``nsqclient``: one sub-command per tool, each in a module of its own.

Modules are imported when their command is called, so that ``--help`` needs no dependency and a
tool loads only its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from nsqclient.cli.goflags import run_no_command
from nsqclient.runtime import process_signals
from nsqclient.version import __version__

#: command -> (module with ``main(argv) -> int``, what it does)
COMMANDS = {
    "completion": ("nsqclient.cli.completion", "print the completion script of a shell"),
    "dead_letters": ("nsqclient.cli.dead_letters", "list, show, replay and delete dead letters"),
    "doctor": ("nsqclient.cli.doctor.doctor", "find problems of a cluster and suggest fixes"),
    "nsq_tail": ("nsqclient.cli.nsq_tail", "print the messages of topics"),
    "nsq_to_file": ("nsqclient.cli.nsq_to_file", "archive topics in files"),
    "nsq_to_http": ("nsqclient.cli.nsq_to_http", "send messages to URLs"),
    "nsq_to_nsq": ("nsqclient.cli.nsq_to_nsq", "copy topics to other nsqds"),
    "nsq_stat": ("nsqclient.cli.nsq_stat", "show the depth and rates of a channel"),
    "spark": ("nsqclient.cli.spark", "archive and transform topics on Spark"),
    "to_nsq": ("nsqclient.cli.to_nsq", "publish stdin, one message per line"),
    "nsqd": ("nsqclient.cli.nsqd", "run the embedded nsqd"),
    "nsqlookupd": ("nsqclient.cli.nsqlookupd", "run the embedded nsqlookupd"),
    "worker": ("nsqclient.cli.worker", "run the handlers in your modules"),
    "nsqadmin": ("nsqclient.cli.nsqadmin", "monitor and manage a cluster in a browser"),
}


#: Commands that run until a signal, whose status is 0 then; of Spark's, these.
_ENDED_BY_SIGNALS = {
    "dead_letters", "nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "nsqadmin",
    "nsqd", "nsqlookupd", "to_nsq", "worker",
}
_SPARK_ENDED_BY_SIGNALS = {"archive", "ingest", "stream"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command; return the exit status. 2: no such command.

    Without ``argv`` the process is the command's: from here to its end, SIGINT and SIGTERM end a
    command that runs until a signal with its own status.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and _is_ended_by_signals(words):
        process_signals.handle_signals()
    if words[:1] == ["help"] and len(words) > 1:
        words = [*words[1:], "--help"]  # "help TOOL" is "TOOL --help"
    command = words[0] if words else ""
    if command in COMMANDS:
        status: int = importlib.import_module(COMMANDS[command][0]).main(words[1:])
        return status
    if command in ("-version", "--version", "version"):
        print(f"nsqclient {__version__}")
        return 0
    return run_no_command("nsqclient", command, COMMANDS, _usage())


def _is_ended_by_signals(words: list[str]) -> bool:
    """Return whether a signal is the usual end: a worker's check has a result, as others do."""
    if words[:1] == ["spark"]:
        return not _SPARK_ENDED_BY_SIGNALS.isdisjoint(words[1:2])
    is_check = words[:1] == ["worker"] and bool({"--check", "-check"} & set(words))
    return not _ENDED_BY_SIGNALS.isdisjoint(words[:1]) and not is_check


def _usage() -> str:
    lines = ["Usage: nsqclient COMMAND [flags]", "", "Commands:"]
    lines += [f"  {name:<12} {summary}" for name, (_, summary) in sorted(COMMANDS.items())]
    lines += ["", "'nsqclient help COMMAND' shows the flags of a command."]
    return "\n".join(lines) + "\n"
