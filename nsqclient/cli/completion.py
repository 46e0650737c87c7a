"""``nsqclient completion SHELL``: print the script that completes commands and flags in a shell.

The package shtab writes it from the parsers of all commands.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from nsqclient.cli import build_program
from nsqclient.cli.command import Command, CommandGroup
from nsqclient.cli.flags import CommandLineError, FlagError, Parsed
from nsqclient.runtime.arguments import closest

SHELLS = ("bash", "zsh", "fish", "tcsh")

_SUMMARY = """\
Prints the script that completes commands and flags in a shell: bash, zsh, fish or tcsh."""

_EXAMPLES = [
    ("bash", "nsqclient completion bash > ~/.local/share/bash-completion/completions/nsqclient"),
    ("fish", "nsqclient completion fish > ~/.config/fish/completions/nsqclient.fish"),
]


def build_command() -> Command:
    """The command."""
    return Command("completion", _run, _SUMMARY, _EXAMPLES, words="SHELL")


def _run(parsed: Parsed) -> int:
    if len(parsed.rest) != 1:
        raise FlagError(f"give one shell: {', '.join(SHELLS)}")
    shell = parsed.rest[0]
    if shell not in SHELLS:
        raise FlagError(f"unknown shell {shell!r}", closest(shell, SHELLS))
    sys.stdout.write(script(shell))
    return 0


def script(shell: str) -> str:
    """Return the script for a shell.

    Raises:
        CommandLineError: shtab is not installed.
    """
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
