"""The texts of flags in the environment and in a configuration file.

Each is a mapping of a flag's name to where its texts stand, for errors, and to the texts.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nsqclient.cli.flags import CommandLineError, Flag, FlagError
from nsqclient.runtime.arguments import closest
from nsqclient.secrets import SECRETS

Texts = dict[str, tuple[str, list[str]]]

#: How near a variable is to the name that was meant. Kubernetes sets variables for each service,
#: such as NSQD_PORT_4150_TCP_ADDR, and programs have some of their own.
_LIKENESS = 0.8
#: Flags that only the command line gives, and those that a file does not give.
_ONLY_TYPED = ("version", "yes")
_NOT_IN_FILES = (*_ONLY_TYPED, "config")


def variables(flag: Flag) -> list[str]:
    """Return the names of the environment variables of a flag; the first is the documented one.

    ``--max-in-flight`` is NSQ_MAX_IN_FLIGHT; that of a list is in the plural, as in
    NSQ_LOOKUPD_HTTP_ADDRESSES, and the singular is taken as well. Names that begin with NSQD need
    no prefix: NSQD_TCP_ADDRESSES. A flag of one command begins with it: NSQ_TAIL_FORMAT.
    """
    if flag.name in _ONLY_TYPED:
        return []
    name = re.sub("[- ]", "_", f"{flag.command} {flag.name}".strip().upper())
    name = name if name.startswith(("NSQD_", "NSQ_")) else f"NSQ_{name}"
    return [_plural(name, "ES", "S"), name] if flag.kind.is_list else [name]


def in_environment(flags: Iterable[Flag], environ: Mapping[str, str]) -> Texts:
    """Return what the environment gives; an empty variable is not set."""
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


def misspelt_variables(
    flags: Iterable[Flag], environ: Mapping[str, str], others: Iterable[Flag]
) -> dict[str, str]:
    """Return the variables that are not read, each with the name that was probably meant.

    A variable like none that is read may be another program's.

    Args:
        others: the flags of all commands; they are asked for only where something is amiss.
    """
    known = [name for flag in flags for name in variables(flag)]
    known += [f"NSQCLIENT_{name.upper()}{suffix}" for name in SECRETS for suffix in ("", "_FILE")]
    by_rest = {_without_prefix(name): name for name in known}
    found = {}
    for name in environ:
        if name.startswith("NSQ") and name not in known:
            close = closest(_without_prefix(name), by_rest, _LIKENESS)
            if close:
                found[name] = by_rest[close]
    read = {name for flag in others for name in variables(flag)} if found else ()
    return {name: meant for name, meant in found.items() if name not in read}


def _without_prefix(name: str) -> str:
    """Return what is typed wrongly: without it all names would be alike."""
    return re.sub("^NSQ(CLIENT)?_?", "", name)


def _plural(name: str, after_s: str, other: str) -> str:
    return name + (after_s if name[-1] in "sS" else other)


def keys(flags: Iterable[Flag], names: Mapping[str, str]) -> dict[str, Flag]:
    """Return how a file may call each flag; a list also in the plural.

    Args:
        names: flag -> what NSQ's own files call it, where that is a name of its own.
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
    """Return a key of a file with underscores."""
    return key.replace("-", "_")


def in_table(
    table: Mapping[str, Any], by_key: Mapping[str, Flag], path: str,
    others: Callable[[], Iterable[str]],
) -> Texts:
    """Return what a table of a file gives to a command.

    Args:
        by_key: of :func:`keys`.
        path: of the file, for errors.
        others: gives what else may stand in the table; called where there is something.

    Raises:
        FlagError: an unknown key, or a value of the wrong form.
    """
    found: Texts = {}
    for key, value in table.items():
        flag = by_key.get(normal(key))
        if isinstance(value, Mapping) and any(
                isinstance(each, Mapping) for each in value.values()):
            flag = None  # of commands that are called so: [topic.create]
        if flag is not None:
            found[flag.name] = f"config file {path}", _texts(flag, key, value, path)
        elif normal(key) not in (known := [*by_key, *others()]):
            raise FlagError(f"config file {path}: unknown option {key!r}",
                            closest(normal(key), known))
    return found


def _texts(flag: Flag, key: str, value: Any, path: str) -> list[str]:
    if isinstance(value, Mapping):
        if not flag.kind.joint:
            raise FlagError(f"config file {path}: option {key!r} is no table")
        return [f"{name}{flag.kind.joint}{_text(each)}" for name, each in value.items()]
    if isinstance(value, list):
        if not flag.kind.is_list:
            raise FlagError(f"config file {path}: option {key!r} takes one value, not a list")
        return [_text(each) for each in value]
    return [_text(value)]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def load_toml(path: str) -> dict[str, Any]:
    """Read a configuration file.

    Raises:
        CommandLineError: it cannot be read.
    """
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError:  # Python 3.10
        tomllib = importlib.import_module("tomli")
    try:
        content: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError) as exc:
        raise CommandLineError(f"failed to load config file {path} - {exc}") from None
