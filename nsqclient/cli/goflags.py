"""Command lines in the manner of Go's ``flag`` package, as NSQ's own programs read them.

``-x v``, ``--x v``, ``-x=v`` and ``--x=v`` are the same; a flag that is on or off is ``-x`` or
``-x=false`` and never takes the next word; parsing ends at the first word that is no flag, or
after ``--``. Errors have Go's words and exit statuses; instead of the whole usage they say where it
is. What the command line leaves open comes from the environment and a file: see ``sources``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nsqclient.errors import ConfigError
from nsqclient.runtime.arguments import closest
from nsqclient.runtime.deadline import format_duration, parse_duration

#: Exit statuses of Go's programs.
EXIT_USAGE = 2
EXIT_CONFIG = 1


class CommandLineError(Exception):
    """The command line is invalid, or cannot be carried out; ``main`` prints this and exits."""

    status = EXIT_CONFIG


class FlagError(CommandLineError):
    """A usage error: a flag is unknown, missing, or has a value that does not parse.

    Args:
        suggestion: the name that was probably meant.
    """

    status = EXIT_USAGE

    def __init__(self, reason: str, suggestion: str = "") -> None:
        super().__init__(reason)
        self.suggestion = suggestion


class HelpRequested(Exception):
    """``-h`` was given: show the usage and exit with 0."""


class Kind(NamedTuple):
    """A type of value: how it is called in the usage, read from text, and shown as a default.

    ``parse`` raises ValueError. ``is_switch``: the flag may stand alone, meaning true. ``choices``
    are all values that there are, for completion; ``is_path``: it is the name of a file.

    Of a list: ``separator`` is what stands between the values in an environment variable, a comma,
    a newline, or a blank for any white space. ``joint`` is what stands between key and value where
    a file may have a table; empty: no table.
    """

    name: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    is_switch: bool = False
    is_list: bool = False
    separator: str = ","
    joint: str = ""
    choices: tuple[str, ...] = ()
    is_path: bool = False


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
        # Go says no more than "parse error"; a hint helps.
        raise ValueError(f"parse error: {exc}") from None


STRING = Kind("string", str, lambda value: f'"{value}"')
BOOL = Kind("", _parse_bool, lambda value: str(value).lower(), is_switch=True)
INT = Kind("int", _parse_int)
DURATION = Kind("duration", _parse_seconds, format_duration)
STRINGS = Kind("value", str, is_list=True)
PATH = STRING._replace(name="path", is_path=True)


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

    #: flag -> how a configuration file calls it, where NSQ's own files have a name of their own.
    config_names: Mapping[str, str] = {}

    def __init__(self, program: str) -> None:
        self.program = program
        self._flags: dict[str, Flag] = {}
        #: Flags of which one is wanted: that which is given hides the others of later sources.
        self.alternatives: list[frozenset[str]] = []

    @property
    def flags(self) -> Iterable[Flag]:
        """All flags, in the order in which they were added."""
        return self._flags.values()

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
                name = name.partition(" ")[0]
                close = closest(name.replace("_", "-").lower(), self._flags)
                raise FlagError(
                    f"flag provided but not defined: -{name}", f"--{close}" if close else "")
            if not equals and flag.kind.is_switch:
                text = "true"
            elif not equals:
                if not words:
                    raise FlagError(f"flag needs an argument: -{name}")
                text = words.pop(0)
            value = parse_value(flag, text)
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


def parse_value(flag: Flag, text: str) -> Any:
    """Read one value of a flag. Raises FlagError."""
    try:
        return flag.kind.parse(text)
    except ValueError as exc:
        if flag.kind is BOOL:
            raise FlagError(f'invalid boolean value "{text}" for -{flag.name}: {exc}') from None
        raise FlagError(f'invalid value "{text}" for flag -{flag.name}: {exc}') from None


def usage_error(program: str, reason: str, suggestion: str = "") -> int:
    """Say in two lines what is wrong with a command line, and where to look; return the status.

    Args:
        program: the words of the command line up to the flags.
    """
    meant = f": did you mean {suggestion}?" if suggestion else ""
    sys.stderr.write(f"{program}: {reason}{meant}\nsee '{program} --help'\n")
    return EXIT_USAGE


def run_no_command(program: str, word: str, names: Iterable[str], usage: str) -> int:
    """Answer a first word that is no command: print the usage for help or nothing; else the error.

    Args:
        names: of the commands, for a suggestion.

    Returns: the exit status.
    """
    if word in ("-h", "-help", "--help", "help"):
        sys.stdout.write(usage)
        return 0
    if not word:
        sys.stderr.write(usage)
        return EXIT_USAGE
    return usage_error(program, f"unknown command {word!r}", closest(word, names))


def run(flags: FlagSet, argv: Sequence[str] | None, body: Callable[[Parsed], int]) -> int:
    """Parse ``argv`` (None: the process's own) and run ``body``; return the exit status.

    Flags that are not given come from the environment and the configuration file. A FlagError, of
    ``body`` too, becomes two lines on stderr and status 2; a CommandLineError or ConfigError one
    line and its status, 1.
    """
    from nsqclient.cli.sources import warn_of_variables, with_sources  # which need this module

    try:
        parsed = flags.parse(sys.argv[1:] if argv is None else argv)
        if not parsed.values.get("version"):
            warn_of_variables(
                flags, os.environ, lambda line: sys.stderr.write(f"{flags.program}: {line}\n"))
            parsed = with_sources(flags, parsed, os.environ)
        return body(parsed)
    except HelpRequested:
        sys.stdout.write(flags.usage())
        return 0
    except FlagError as exc:
        return usage_error(f"nsqclient {flags.program}", str(exc), exc.suggestion)
    except (CommandLineError, ConfigError) as exc:
        sys.stderr.write(f"{flags.program}: {exc}\n")
        return exc.status if isinstance(exc, CommandLineError) else EXIT_CONFIG
