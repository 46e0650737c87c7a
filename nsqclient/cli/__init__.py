"""The console script ``nsqclient``: one sub-command per tool.

Modules are imported when their command is called: a tool loads only its own dependencies.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from nsqclient import native
from nsqclient.cli.command import Command, CommandGroup
from nsqclient.cli.flags import CommandLineError, FlagError, Parsed
from nsqclient.runtime import process_signals
from nsqclient.runtime.arguments import closest
from nsqclient.version import __version__

#: command -> (module, with its function unless that is ``build_command``; summary)
COMMANDS = {
    "channel": ("nsqclient.cli.topics:build_channel",
                "create, pause, unpause, empty and delete a channel"),
    "completion": ("nsqclient.cli:build_completion", "print the completion script of a shell"),
    "dead_letters": ("nsqclient.cli.dead_letters", "list, show, replay and delete dead letters"),
    "doctor": ("nsqclient.cli.doctor", "find problems of a cluster and suggest fixes"),
    "nsq_stat": ("nsqclient.cli.nsq_stat", "show the depth and rates of a channel"),
    "nsq_tail": ("nsqclient.cli.nsq_tail", "print the messages of topics"),
    "nsq_to_file": ("nsqclient.cli.nsq_to_file", "archive topics in files"),
    "nsq_to_http": ("nsqclient.cli.nsq_to_http", "send messages to URLs"),
    "nsq_to_nsq": ("nsqclient.cli.nsq_to_nsq", "copy topics to other nsqds"),
    "nsqadmin": ("nsqclient.cli.nsqadmin", "monitor and manage a cluster in a browser"),
    "nsqd": ("nsqclient.cli.nsqd", "run the embedded nsqd"),
    "nsqlookupd": ("nsqclient.cli.nsqd:build_nsqlookupd", "run the embedded nsqlookupd"),
    "spark": ("nsqclient.cli.spark", "archive and transform topics on Spark"),
    "to_nsq": ("nsqclient.cli.to_nsq", "publish stdin, arguments or a file"),
    "topic": ("nsqclient.cli.topics:build_topic",
              "create, pause, unpause, empty and delete a topic"),
    "topics": ("nsqclient.cli.topics:build_topics", "show all topics and channels in a table"),
    "worker": ("nsqclient.cli.worker", "run the handlers in your modules"),
}

#: Short names.
SHORT = {"admin": "nsqadmin", "publish": "to_nsq", "stat": "nsq_stat", "tail": "nsq_tail"}

#: Commands that run until a signal, whose status is 0 then; of Spark's, these.
_ENDED_BY_SIGNALS = {
    "dead_letters", "nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "nsqadmin",
    "nsqd", "nsqlookupd", "to_nsq", "worker",
}
_SPARK_ENDED_BY_SIGNALS = {"archive", "ingest", "stream"}


def build_program() -> CommandGroup:
    table = {name: (summary, functools.partial(_load, module))
             for name, (module, summary) in COMMANDS.items()}
    return CommandGroup("nsqclient", "The tools of NSQ, and more for Python.", table, SHORT)


def _load(place: str) -> Command | CommandGroup:
    module, _, function = place.partition(":")
    build = getattr(importlib.import_module(module), function or "build_command")
    command: Command | CommandGroup = build()
    return command


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command; return the exit status. 2: no such command.

    Without ``argv`` the process is the command's: SIGINT and SIGTERM end a command that runs until
    a signal with its own status.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _open_closed_streams()
    if argv is None and _is_ended_by_signals(words):
        process_signals.handle_signals()
    if words[:1] in (["-version"], ["--version"], ["version"]):
        print(f"nsqclient {__version__}, {native.FORM}")
        return 0
    try:
        status = build_program().run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of stdout (head) has ended. Python's own flush at exit must not raise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _open_closed_streams() -> None:
    """Open /dev/null for each closed standard stream: else the next file would get its descriptor.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(descriptor, "w" if descriptor else "r"))


def _is_ended_by_signals(words: list[str]) -> bool:
    """True if a command normally ends by a signal. ``worker --check`` ends by itself."""
    if words[:1] == ["spark"]:
        return not _SPARK_ENDED_BY_SIGNALS.isdisjoint(words[1:2])
    is_check = words[:1] == ["worker"] and bool({"--check", "-check"} & set(words))
    names = {SHORT.get(word, word) for word in words[:1]}
    return not _ENDED_BY_SIGNALS.isdisjoint(names) and not is_check


SHELLS = ("bash", "zsh", "fish", "tcsh")

_COMPLETION_SUMMARY = """\
Prints the script that completes commands and flags in a shell: bash, zsh, fish or tcsh."""

_COMPLETION_EXAMPLES = [
    ("bash", "nsqclient completion bash > ~/.local/share/bash-completion/completions/nsqclient"),
    ("fish", "nsqclient completion fish > ~/.config/fish/completions/nsqclient.fish"),
]


def build_completion() -> Command:
    return Command(
        "completion", _complete, _COMPLETION_SUMMARY, _COMPLETION_EXAMPLES, words="SHELL")


def _complete(parsed: Parsed) -> int:
    if len(parsed.rest) != 1:
        raise FlagError(f"give one shell: {', '.join(SHELLS)}")
    shell = parsed.rest[0]
    if shell not in SHELLS:
        raise FlagError(f"unknown shell {shell!r}", closest(shell, SHELLS))
    sys.stdout.write(script(shell))
    return 0


def script(shell: str) -> str:
    """Return the script for a shell, which the package shtab writes from the parsers."""
    try:
        shtab: Any = importlib.import_module("shtab")
    except ImportError:
        raise CommandLineError("shtab is missing: pip install 'nsqclient[cli]'") from None
    parser = argparse.ArgumentParser("nsqclient", add_help=False)
    _add_commands(parser, build_program(), shtab.FILE)
    text: str = shtab.complete(parser, shell)
    return text if text.endswith("\n") else text + "\n"


def _add_commands(parser: argparse.ArgumentParser, group: CommandGroup, file: Any) -> None:
    """Add the parsers of a group's commands; ``file``: shtab's mark for names of files."""
    commands = parser.add_subparsers()
    for name, (summary, load) in [*group.table.items(), *(
            (short, group.table[name]) for short, name in group.others.items())]:
        command = load()
        if isinstance(command, CommandGroup):
            _add_commands(commands.add_parser(name, help=summary, add_help=False), command, file)
            continue
        for action in command.paths:
            action.complete = file  # type: ignore[attr-defined] # shtab looks for it
        added = commands.add_parser(name, help=summary, parents=[command.parser], add_help=False)
        if name == "completion":
            added.add_argument("shell", choices=SHELLS)
        added.add_argument("--help", action="store_true", help="show the flags")
    helper = commands.add_parser("help", help="show the flags of a command", add_help=False)
    helper.add_argument("command", choices=list(group.table))
