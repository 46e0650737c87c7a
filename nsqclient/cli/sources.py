"""Where the value of a flag comes from, when the command line does not give it.

One order of precedence for every command: the command line, the environment, the configuration file
(first the table of the command, then what stands at the top), the default. A source that gives a
list gives all of it: the lists of two sources are not joined. Where one of several flags is wanted,
as --nsqd-tcp-address or --lookupd-http-address, the first source that gives one of them decides.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nsqclient.cli.goflags import CommandLineError, Flag, FlagError, FlagSet, Parsed, parse_value
from nsqclient.runtime.arguments import closest
from nsqclient.secrets import SECRETS

#: How near a variable is to the name that was meant. Kubernetes sets variables for each service,
#: such as NSQD_PORT_4150_TCP_ADDR, and programs have some of their own.
_LIKENESS = 0.8
#: Flags that only the command line gives; ``config`` may be a variable too.
_NOT_IN_FILES = ("version", "config")


def with_sources(flags: FlagSet, parsed: Parsed, environ: Mapping[str, str]) -> Parsed:
    """Add what the environment and the configuration file give to a command line.

    Raises:
        FlagError: a variable or the file has a value that does not parse, or an unknown name.
        CommandLineError: the file cannot be read.
    """
    parsed = _with(parsed, _from_environment(flags, environ), flags)
    path = parsed.values.get("config", "")
    return _with(parsed, _from_file(flags, path), flags) if path else parsed


def _with(parsed: Parsed, values: Mapping[str, Any], flags: FlagSet) -> Parsed:
    """Add the values of a source to those of the sources before it."""
    hidden = set(parsed.given)
    for names in flags.alternatives:
        if names & parsed.given:
            hidden |= names
    added = {name: value for name, value in values.items() if name not in hidden}
    return Parsed(parsed.values | added, parsed.given | added.keys(), parsed.rest)


# -- the environment


def variables(flag: Flag) -> list[str]:
    """Return the names of the environment variables of a flag; the first is the documented one.

    ``--max-in-flight`` is NSQ_MAX_IN_FLIGHT; that of a list is in the plural, as in
    NSQ_LOOKUPD_HTTP_ADDRESSES, and the singular is taken as well. Names that begin with NSQD need
    no prefix: NSQD_TCP_ADDRESSES.
    """
    if flag.name == "version":
        return []
    name = flag.name.upper().replace("-", "_")
    name = name if name.startswith("NSQD_") else f"NSQ_{name}"
    return [_plural(name, "ES", "S"), name] if flag.kind.is_list else [name]


def misspelt_variables(flags: FlagSet, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are not read, each with the name that was probably meant.

    A variable like none that is read may be another program's.
    """
    known = [name for flag in flags.flags for name in variables(flag)]
    known += [f"NSQCLIENT_{name.upper()}{suffix}" for name in SECRETS for suffix in ("", "_FILE")]
    by_rest = {_without_prefix(name): name for name in known}
    found = {}
    for name in environ:
        if name.startswith("NSQ") and name not in known:
            close = closest(_without_prefix(name), by_rest, _LIKENESS)
            if close:
                found[name] = by_rest[close]
    others = _variables_of_all() if found else set()
    return {name: meant for name, meant in found.items() if name not in others}


def warn_of_variables(
    flags: FlagSet, environ: Mapping[str, str], report: Callable[[str], object]
) -> None:
    """Report each variable that is probably misspelt, once for a worker and its processes."""
    misspelt = misspelt_variables(flags, environ)
    if misspelt:
        from nsqclient.worker.lifeline import has_parent  # which most commands never need

        for name, meant in ({} if has_parent(environ) else misspelt).items():
            report(f"warning: ${name} is not read: did you mean ${meant}?")


def _without_prefix(name: str) -> str:
    """Return what is typed wrongly: without it all names would be alike."""
    return re.sub("^NSQ(CLIENT)?_?", "", name)


def _variables_of_all() -> set[str]:
    from nsqclient.cli.catalog import all_flag_sets  # imports every command

    return {name for flags in all_flag_sets().values() for flag in flags.flags
            for name in variables(flag)}


def _plural(name: str, after_s: str, other: str) -> str:
    return name + (after_s if name[-1] in "sS" else other)


def _from_environment(flags: FlagSet, environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for flag in flags.flags:
        given = [name for name in variables(flag) if environ.get(name)]
        if len(given) > 1:
            raise FlagError(f"${given[0]} and ${given[1]} are the same: set one of them")
        for name in given:
            try:
                values[flag.name] = _parsed(flag, _split(flag, environ[name]))
            except FlagError as exc:
                raise FlagError(f"${name}: {exc}") from None
    return values


def _split(flag: Flag, text: str) -> list[str]:
    if not flag.kind.is_list:
        return [text]
    separator = flag.kind.separator
    parts = text.split(None if separator == " " else separator)
    return [part.strip() for part in parts if part.strip()]


def _parsed(flag: Flag, texts: list[str]) -> Any:
    values = [parse_value(flag, text) for text in texts]
    return values if flag.kind.is_list else values[0]


# -- the file


def _from_file(flags: FlagSet, path: str) -> dict[str, Any]:
    content = _load_toml(path)
    by_key = {key: flag for flag in flags.flags for key in _keys(flags, flag)}
    values: dict[str, Any] = {}
    own = _own_table(content, flags.program)
    try:
        for key, value in content.items():
            flag = by_key.get(_normal(key))
            if flag is not None:
                values[flag.name] = _from_toml(flag, key, value)
            elif not _is_for_others(key, value):
                raise _unknown(key, [*by_key, *_commands()])
        for key, value in own.items():
            flag = by_key.get(_normal(key))
            if flag is None:
                raise _unknown(key, by_key)
            values[flag.name] = _from_toml(flag, key, value)
    except FlagError as exc:
        raise FlagError(f"config file {path}: {exc}", exc.suggestion) from None
    return values


def _normal(key: str) -> str:
    return key.replace("-", "_")


def _keys(flags: FlagSet, flag: Flag) -> Iterator[str]:
    """Yield how a file may call a flag; a list also in the plural."""
    if flag.name in _NOT_IN_FILES:
        return
    name = _normal(flag.name)
    yield name
    if flag.kind.is_list:
        yield _plural(name, "es", "s")
    if flag.name in flags.config_names:
        yield flags.config_names[flag.name]


def _own_table(content: Mapping[str, Any], program: str) -> Mapping[str, Any]:
    """Return the table of a command: [nsq_tail], or [spark.archive]."""
    table = content
    for word in program.split():
        inner = table.get(word)
        if not isinstance(inner, Mapping):
            return {}
        table = inner
    return table


def _is_for_others(key: str, value: object) -> bool:
    """Return whether a key at the top is the table, or a flag, of another command."""
    from nsqclient.cli.catalog import all_flag_sets  # imports every command

    if isinstance(value, Mapping) and key in _commands():
        return True
    return any(
        _normal(key) in _keys(flags, flag) for flags in all_flag_sets().values()
        for flag in flags.flags
    )


def _commands() -> list[str]:
    from nsqclient.cli import COMMANDS  # which imports goflags

    return list(COMMANDS)


def _unknown(key: str, known: Any) -> FlagError:
    return FlagError(f"unknown option {key!r}", closest(_normal(key), known))


def _from_toml(flag: Flag, key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        if not flag.kind.joint:
            raise FlagError(f"option {key!r} is no table")
        texts = [f"{name}{flag.kind.joint}{_text(each)}" for name, each in value.items()]
    elif isinstance(value, list):
        if not flag.kind.is_list:
            raise FlagError(f"option {key!r} takes one value, not a list")
        texts = [_text(each) for each in value]
    else:
        texts = [_text(value)]
    return _parsed(flag, texts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _load_toml(path: str) -> dict[str, Any]:
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError:  # Python 3.10
        tomllib = importlib.import_module("tomli")
    try:
        content: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError) as exc:
        raise CommandLineError(f"failed to load config file {path} - {exc}") from None
