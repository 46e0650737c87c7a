"""``nsqclient completion SHELL``: print the script that completes commands and flags in a shell.

The package shtab writes it, from an ``argparse`` parser that is made of the flags of every command
and parses nothing itself. Exit status: 0, 1 without shtab, 2 for an unknown shell.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from nsqclient.cli import COMMANDS, goflags
from nsqclient.cli.catalog import flag_sets
from nsqclient.cli.goflags import CommandLineError, Flag, FlagError, FlagSet, Parsed
from nsqclient.runtime.arguments import closest

PROGRAM = "completion"

SHELLS = ("bash", "zsh", "tcsh")

_USAGE = """\
Usage: nsqclient completion bash|zsh|tcsh

Prints the script that completes commands and flags in that shell. For bash:

  nsqclient completion bash > ~/.local/share/bash-completion/completions/nsqclient
"""


class _Flags(FlagSet):
    """No flags: the shell is an argument."""

    def usage(self) -> str:
        return _USAGE


def build_flags() -> FlagSet:
    """The flags of completion."""
    return _Flags(PROGRAM)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a completion script; return the exit status."""
    return goflags.run(build_flags(), argv, _run)


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
    text: str = shtab.complete(_build_parser(shtab.FILE), shell)
    return text if text.endswith("\n") else text + "\n"


def _build_parser(file: Any) -> argparse.ArgumentParser:
    """Build a parser with every command and flag; ``file``: shtab's mark for names of files."""
    parser = argparse.ArgumentParser("nsqclient", add_help=False)
    commands = parser.add_subparsers()
    for command, (_, summary) in sorted(COMMANDS.items()):
        sub = commands.add_parser(command, help=summary, add_help=False)
        if command == PROGRAM:
            sub.add_argument("shell", choices=SHELLS)
            continue
        nested = None
        for name, flags in flag_sets(command).items():
            place = sub
            if name != command:
                nested = nested or sub.add_subparsers()
                # shtab leaves out what has no help.
                place = nested.add_parser(name.split()[-1], help=name, add_help=False)
            for flag in flags.flags:
                _add(place, flag, file)
            place.add_argument("--help", action="store_true", help="show the flags")
    helper = commands.add_parser("help", help="show the flags of a command", add_help=False)
    helper.add_argument("command", choices=sorted(COMMANDS))
    return parser


def _add(parser: argparse.ArgumentParser, flag: Flag, file: Any) -> None:
    kind, text = flag.kind, " ".join(flag.help.split()).replace("%", "%%")
    if kind.is_switch:
        parser.add_argument(f"--{flag.name}", action="store_true", help=text)
        return
    action: Any = parser.add_argument(f"--{flag.name}", help=text, choices=kind.choices or None)
    if kind.is_path:
        action.complete = file
