"""What a flag is: its kind of value, and the errors of a command line.

Values are written as for Go's programs: durations as ``1m30s``, switches as ``=true`` and
``=false``. They look the same on a command line, in the environment and in a configuration file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nsqclient.errors import ConfigError
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

    ``parse`` raises ValueError. ``is_switch``: the flag may stand alone, meaning true. ``choices``
    are all values that there are; ``is_path``: it is the name of a file.

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
    """One flag of a command."""

    name: str
    kind: Kind
    default: Any
    help: str


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


STRING = Kind("string", str)
BOOL = Kind("=false", _parse_bool, lambda value: str(value).lower(), is_switch=True)
INT = Kind("int", _parse_int)
DURATION = Kind("duration", _parse_seconds, format_duration)
STRINGS = Kind("value", str, is_list=True)
PATH = Kind("path", str, is_path=True)
