"""Flags: their kinds of values, the sources of values, and the errors of a command line.

Values look the same in every source, and as for Go's programs: ``1m30s``, ``=true``, ``=false``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nsqclient.errors import ConfigError
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.addresses import parse_listen_address
from nsqclient.runtime.arguments import closest
from nsqclient.runtime.deadline import format_duration, parse_duration


class CommandLineError(Exception):
    """The command line is invalid, or cannot be carried out: one line on stderr.

    Every function that reads or checks what the user gave may raise it.
    """

    status = 1


class FlagError(CommandLineError):
    """A usage error: two lines on stderr. ``suggestion``: the name that was probably meant."""

    status = 2

    def __init__(self, reason: str, suggestion: str = "") -> None:
        super().__init__(f"{reason}: did you mean {suggestion}?" if suggestion else reason)


class Kind(NamedTuple):
    """A type of value: its name in the help, its parser, and the text of its default.

    ``parse`` raises ValueError for malformed text, or CommandLineError for a value that cannot be
    used; that text follows the name of the flag. ``is_switch``: the flag may stand alone.

    For lists: ``separator`` separates the values in an environment variable; a blank stands for any
    white space. ``joint`` joins the keys and values of a table in a configuration file; empty:
    tables are rejected.
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
    """One flag. ``command``: set if other commands have a different flag of this name."""

    name: str
    kind: Kind
    default: Any
    help: str
    command: str = ""


class Parsed(NamedTuple):
    """The values of all flags; ``given``: the names of the values that are not defaults."""

    values: dict[str, Any]
    given: frozenset[str]
    rest: list[str]


def choice(*words: str, name: str = "") -> Kind:
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
        raise CommandLineError(f"is invalid: {text!r} (use 1 to 64 of a-z A-Z 0-9 . _ -)")
    return text


def _parse_listen(text: str) -> str:
    if text:
        try:
            parse_listen_address(text)
        except ConfigError as exc:
            raise CommandLineError(str(exc)) from None
    return text


def positive(kind: Kind) -> Kind:
    return limited(kind, lambda value: value > 0, "should be positive")


def not_negative(kind: Kind) -> Kind:
    return limited(kind, lambda value: value >= 0, "must not be negative")


def limited(kind: Kind, fits: Callable[[Any], bool], reason: str) -> Kind:
    """Return a kind that takes only some values; ``reason``: the error for the others."""
    def parse(text: str) -> Any:
        value = kind.parse(text)
        if not fits(value):
            raise CommandLineError(reason)
        return value

    return kind._replace(parse=parse)


def off_below_0(kind: Kind) -> Kind:
    """Return a kind of number that reads all below 0 as 0 (off), as Go's tools do."""
    return kind._replace(parse=lambda text: max(0, kind.parse(text)))


STRING = Kind("string", str)
NAME = Kind("string", _parse_name)
NAMES = Kind("value", _parse_name, is_list=True)
BOOL = Kind("=false", _parse_bool, lambda value: str(value).lower(), is_switch=True)
INT = Kind("int", _parse_int)
DURATION = Kind("duration", _parse_seconds, format_duration)
STRINGS = Kind("value", str, is_list=True)
PATH = Kind("path", str, is_path=True)
#: Address on which a server listens; empty: the port is not opened.
LISTEN = Kind("string", _parse_listen)


def check_required(values: Mapping[str, Any], *names: str, count: int = 1) -> None:
    """Check that one of some flags is given, or at most one if ``count`` is 0."""
    given = [name for name in names if values[name]]
    listed = " or ".join(f"--{name}" for name in names)
    if len(given) < count:
        raise FlagError(f"{listed} required")
    if len(given) > 1:
        raise FlagError(f"use {listed} not {'both' if len(names) == 2 else 'several'}")


Texts = dict[str, tuple[str, list[str]]]

#: Flags accepted only on the command line, and flags not accepted in a file.
_ONLY_TYPED = ("version", "yes")
_NOT_IN_FILES = (*_ONLY_TYPED, "config")


def variables(flag: Flag) -> list[str]:
    """Return the names of the environment variables of a flag; the first is the documented one.

    ``--max-in-flight`` is NSQ_MAX_IN_FLIGHT. The variable of a list is plural; the singular works
    too. Names that begin with NSQD get no prefix. The flag of a single command includes its name:
    NSQ_TAIL_FORMAT.
    """
    if flag.name in _ONLY_TYPED:
        return []
    name = re.sub("[- ]", "_", f"{flag.command} {flag.name}".strip().upper())
    name = name if name.startswith(("NSQD_", "NSQ_")) else f"NSQ_{name}"
    return [_plural(name, "ES", "S"), name] if flag.kind.is_list else [name]


def in_environment(flags: Iterable[Flag], environ: Mapping[str, str]) -> Texts:
    found: Texts = {}
    for flag in flags:
        given = [name for name in variables(flag) if environ.get(name)]
        if len(given) > 1:
            raise FlagError(f"${given[0]} and ${given[1]} are the same: set one of them")
        for name in given:
            texts = [environ[name]]
            if flag.kind.is_list:
                separator = None if flag.kind.separator == " " else flag.kind.separator
                texts = [part.strip() for part in texts[0].split(separator) if part.strip()]
            found[flag.name] = f"${name}", texts
    return found


def _plural(name: str, after_s: str, other: str) -> str:
    return name + (after_s if name[-1] in "sS" else other)


def keys(flags: Iterable[Flag], names: Mapping[str, str]) -> dict[str, Flag]:
    """Return the keys of a configuration file for each flag; a list also has a plural key.

    ``names``: flag -> its key in NSQ's own files, if that differs.
    """
    found = {}
    for flag in flags:
        if flag.name not in _NOT_IN_FILES:
            key = normal(flag.name)
            plurals = [_plural(key, "es", "s")] if flag.kind.is_list else []
            for each in (key, *plurals, names.get(flag.name, key)):
                found[each] = flag
    return found


def normal(key: str) -> str:
    return key.replace("-", "_")


def in_table(
    table: Mapping[str, Any], by_key: Mapping[str, Flag], path: str,
    others: Callable[[], Iterable[str]],
) -> Texts:
    """Return a command's values from a table of a configuration file.

    Args:
        by_key: the result of :func:`keys`.
        others: returns further valid keys; called only for an unknown key.
    """
    found: Texts = {}
    for key, value in table.items():
        flag = by_key.get(normal(key))
        if isinstance(value, Mapping) and any(
                isinstance(each, Mapping) for each in value.values()):
            flag = None  # the table of a command group, as [topic.create]
        if flag is not None:
            found[flag.name] = f"config file {path}", _texts(flag, key, value, path)
        elif normal(key) not in (known := [*by_key, *others()]):
            raise FlagError(f"config file {path}: unknown option {key!r}",
                            closest(normal(key), known))
    return found


def _texts(flag: Flag, key: str, value: Any, path: str) -> list[str]:
    if isinstance(value, Mapping):
        if not flag.kind.joint:
            raise FlagError(f"config file {path}: option {key!r} is not a table")
        return [f"{name}{flag.kind.joint}{_text(each)}" for name, each in value.items()]
    if isinstance(value, list):
        if not flag.kind.is_list:
            raise FlagError(f"config file {path}: option {key!r} takes one value, not a list")
        return [_text(each) for each in value]
    return [_text(value)]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def load_toml(path: str) -> dict[str, Any]:
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError:  # Python 3.10
        tomllib = importlib.import_module("tomli")
    try:
        content: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError) as exc:
        raise CommandLineError(f"failed to load config file {path} - {exc}") from None
