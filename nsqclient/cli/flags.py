"""What a flag is: its kind of value, and the errors of a command line.

Values are written as for Go's programs: durations as ``1m30s``, switches as ``=true`` and
``=false``. They look the same on a command line, in the environment and in a configuration file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nsqclient.errors import ConfigError
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.deadline import format_duration, parse_duration


class CommandLineError(Exception):
    """The command line is invalid, or cannot be carried out: one line on stderr."""

    status = 1


class FlagError(CommandLineError):
    """A usage error, as a flag that is unknown, missing, or does not parse: two lines on stderr.

    Args:
        suggestion: the name that was probably meant.
    """

    status = 2

    def __init__(self, reason: str, suggestion: str = "") -> None:
        super().__init__(f"{reason}: did you mean {suggestion}?" if suggestion else reason)


class Kind(NamedTuple):
    """A type of value: how it is called in the help, read from text, and shown as a default.

    ``parse`` raises ValueError, or CommandLineError where the form is right and the value cannot be
    used: what stands behind the name of the flag. ``is_switch``: the flag may stand alone, meaning
    true. ``choices`` are all values that there are; ``is_path``: it is the name of a file.

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
    choices: Sequence[str] = ()
    is_path: bool = False


class Flag(NamedTuple):
    """One flag of a command.

    ``command``: where a flag of this name means something else in other commands, which one; only
    its own variable and table give such a flag.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    command: str = ""


class Parsed(NamedTuple):
    """The values of all flags. ``given`` are the names of the values that are no defaults."""

    values: dict[str, Any]
    given: frozenset[str]
    rest: list[str]


def choice(*words: str, name: str = "") -> Kind:
    """Return the kind of a flag that takes one of some words."""
    return Kind(name or "|".join(words), str.lower, choices=words)


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("1", "t", "true", "0", "f", "false"):
        raise ValueError(f"{text!r} is not true or false")
    return text.lower() in ("1", "t", "true")


def _parse_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{text[:100]!r} is not a whole number") from None
    if not -(2**63) <= value < 2**63:
        raise ValueError("value out of range")
    return value


def _parse_seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ConfigError as exc:
        raise ValueError(str(exc)) from None


def _parse_name(text: str) -> str:
    if text and not is_valid_name(text):
        raise CommandLineError(f"is invalid: {text!r} (1 to 64 of a-z A-Z 0-9 . _ -)")
    return text


def positive(kind: Kind) -> Kind:
    """Return the kind of a number above 0."""
    return limited(kind, lambda value: value > 0, "should be positive")


def not_negative(kind: Kind) -> Kind:
    """Return the kind of a number of 0 or more."""
    return limited(kind, lambda value: value >= 0, "must not be negative")


def limited(kind: Kind, fits: Callable[[Any], bool], reason: str) -> Kind:
    """Return a kind that takes only some values; ``reason``: what to say of the others."""
    def parse(text: str) -> Any:
        value = kind.parse(text)
        if not fits(value):
            raise CommandLineError(reason)
        return value

    return kind._replace(parse=parse)


def off_below_0(kind: Kind) -> Kind:
    """Return the kind of a number of which all below 0 means 0, off, as in Go's tools."""
    return kind._replace(parse=lambda text: max(0, kind.parse(text)))


STRING = Kind("string", str)
#: A topic or channel, and several; empty: none.
NAME = Kind("string", _parse_name)
NAMES = Kind("value", _parse_name, is_list=True)
BOOL = Kind("=false", _parse_bool, lambda value: str(value).lower(), is_switch=True)
INT = Kind("int", _parse_int)
DURATION = Kind("duration", _parse_seconds, format_duration)
STRINGS = Kind("value", str, is_list=True)
PATH = Kind("path", str, is_path=True)


def check_required(values: Mapping[str, Any], *names: str, count: int = 1) -> None:
    """Check that at least ``count`` of some flags are given, and not two of them.

    Raises:
        FlagError: in the words of the originals.
    """
    given = [name for name in names if values[name]]
    listed = " or ".join(f"--{name}" for name in names)
    if len(given) < count:
        raise FlagError(f"{listed} required")
    if len(given) > 1:
        raise FlagError(f"use {listed} not {'both' if len(names) == 2 else 'several'}")


def check_needed(values: Mapping[str, Any], name: str, *others: str) -> None:
    """Check that a flag is given only with one of some others.

    Raises:
        FlagError: it is given alone.
    """
    if values[name] and not any(values[other] for other in others):
        raise FlagError(f"--{name} needs {' or '.join(f'--{other}' for other in others)}")
