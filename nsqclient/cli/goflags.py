"""Command lines in the manner of Go's ``flag`` package, as NSQ's own programs read them.

``-x v``, ``--x v``, ``-x=v`` and ``--x=v`` are the same; a flag that is on or off is ``-x`` or
``-x=false`` and never takes the next word; parsing ends at the first word that is no flag, or
after ``--``. Usage and complaints go to stderr, with Go's words and exit statuses.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import parse_duration
from nsqclient.runtime.go_duration import format_duration

#: Exit statuses of Go's programs.
EXIT_USAGE = 2
EXIT_CONFIG = 1


class CommandLineError(Exception):
    """The command line, or what it asks for, cannot be; ``main`` prints it and exits."""

    status = EXIT_CONFIG


class FlagError(CommandLineError):
    """An unknown flag, or a value that does not parse: usage is shown as well."""

    status = EXIT_USAGE


class HelpRequested(Exception):
    """``-h`` was given: show the usage and exit with 0."""


class Kind(NamedTuple):
    """A type of value: how it is called in the usage, read from text, and shown as a default.

    ``parse`` raises ValueError. ``is_switch``: the flag may stand alone, meaning true.
    """

    name: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    is_switch: bool = False
    is_list: bool = False


def _parse_bool(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("parse error")


def _parse_int(text: str) -> int:
    if not re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|[0-9]+)", text):
        raise ValueError("parse error")
    # A leading zero means octal to Go; Python wants it spelt out.
    value = int(re.sub(r"^([+-]?)0([0-7])", r"\g<1>0o\2", text), 0)
    if not -(2**63) <= value < 2**63:
        raise ValueError("value out of range")
    return value


def _parse_seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ConfigError as exc:
        # Go says no more than "parse error"; what to write instead helps.
        raise ValueError(f"parse error: {exc}") from None


STRING = Kind("string", str, lambda value: f'"{value}"')
BOOL = Kind("", _parse_bool, lambda value: str(value).lower(), is_switch=True)
INT = Kind("int", _parse_int)
DURATION = Kind("duration", _parse_seconds, format_duration)
STRINGS = Kind("value", str, is_list=True)


class Flag(NamedTuple):
    """One flag that a program knows."""

    name: str
    kind: Kind
    default: Any
    help: str


class Parsed(NamedTuple):
    """What a command line says. ``given`` are the names that it mentions."""

    values: dict[str, Any]
    given: frozenset[str]
    rest: list[str]


class FlagSet:
    """The flags of one program.

    Args:
        program: its name in the usage.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self._flags: dict[str, Flag] = {}

    def add(self, name: str, kind: Kind, default: Any, help_text: str) -> None:
        """Add a flag. A list kind may be given several times, and its values append."""
        self._flags[name] = Flag(name, kind, default, help_text)

    def parse(self, argv: Sequence[str]) -> Parsed:
        """Read a command line.

        Raises:
            FlagError: an unknown flag or a bad value.
            HelpRequested: ``-h`` or ``--help``.
        """
        values: dict[str, Any] = {
            flag.name: list(flag.default) if flag.kind.is_list else flag.default
            for flag in self._flags.values()
        }
        given: set[str] = set()
        words = list(argv)
        while words and len(words[0]) > 1 and words[0].startswith("-"):
            word = words.pop(0)
            if word == "--":
                break
            name, equals, text = word[2 if word.startswith("--") else 1:].partition("=")
            if not name or name[0] in "-=":
                raise FlagError(f"bad flag syntax: {word}")
            flag = self._flags.get(name)
            if flag is None:
                if name in ("h", "help"):
                    raise HelpRequested
                # As far as a name goes: quotes set wrongly may bring a secret in here.
                raise FlagError(f"flag provided but not defined: -{name.partition(' ')[0]}")
            if not equals and flag.kind.is_switch:
                text = "true"
            elif not equals:
                if not words:
                    raise FlagError(f"flag needs an argument: -{name}")
                text = words.pop(0)
            value = _parse_value(flag, text)
            if flag.kind.is_list:
                values[name].append(value)
            else:
                values[name] = value
            given.add(name)
        return Parsed(values, frozenset(given), words)

    def usage(self) -> str:
        """The usage, flags in alphabetical order."""
        lines = [f"Usage of {self.program}:"]
        for flag in sorted(self._flags.values()):
            head = f"  -{flag.name}" + (f" {flag.kind.name}" if flag.kind.name else "")
            default = flag.default
            shown = f" (default {flag.kind.show(default)})" if default else ""
            lines += [head, f"    \t{flag.help}{shown}"]
        return "\n".join(lines) + "\n"


def _parse_value(flag: Flag, text: str) -> Any:
    try:
        return flag.kind.parse(text)
    except ValueError as exc:
        if flag.kind is BOOL:
            raise FlagError(f'invalid boolean value "{text}" for -{flag.name}: {exc}') from None
        raise FlagError(f'invalid value "{text}" for flag -{flag.name}: {exc}') from None


def run(flags: FlagSet, argv: Sequence[str] | None, body: Callable[[Parsed], int]) -> int:
    """Parse ``argv`` (None: the process's own) and run ``body``; return the exit status.

    A CommandLineError or ConfigError of ``body`` becomes one line on stderr and status 1.
    """
    try:
        return body(flags.parse(sys.argv[1:] if argv is None else argv))
    except HelpRequested:
        sys.stderr.write(flags.usage())
        return 0
    except FlagError as exc:
        sys.stderr.write(f"{exc}\n{flags.usage()}")
        return exc.status
    except (CommandLineError, ConfigError) as exc:
        sys.stderr.write(f"{flags.program}: {exc}\n")
        return EXIT_CONFIG
