"""The flags of the worker for ``manage.py nsq_consume`` and ``flask nsq consume``.

These commands read their command lines as Django and Flask do. What a command line does not give
comes from the same environment variables and the same table of the configuration file as for
``nsqclient worker``, and only then from the setting ``NSQCLIENT``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from nsqclient.cli.goflags import CommandLineError, FlagError, Parsed
from nsqclient.cli.sources import warn_of_variables, with_sources
from nsqclient.cli.tool_flags import option_texts
from nsqclient.cli.worker import build_flags
from nsqclient.config import OPTIONS
from nsqclient.contrib.settings import Settings
from nsqclient.errors import ConfigError
from nsqclient.runtime.arguments import closest
from nsqclient.secrets import SECRETS
from nsqclient.worker.errors import UsageError

#: Flags of the sources, with which a command line changes the setting.
SOURCE_FLAGS = (
    "nsqd-tcp-address", "lookupd-http-address", "consumer-opt", "middleware", "config",
)


def source_flags() -> list[tuple[str, str, bool]]:
    """Return the flags that change the setting: (name, help, whether it may be repeated)."""
    return [(flag.name, flag.help, flag.kind.is_list)
            for flag in build_flags().flags if flag.name in SOURCE_FLAGS]


def read_flags(given: Mapping[str, Any], report: Callable[[str], object]) -> Parsed:
    """Return the values of the worker's flags, from the first source that gives each.

    Args:
        given: what the command line gives; None, or empty where it is a list: it does not.
        report: called with a line for each variable that is probably misspelt.

    Raises:
        UsageError: a variable or the file has a wrong value or name, or two exclude each other.
        ConfigError: the file cannot be read.
    """
    flags = build_flags()
    values = {name: value for name, value in given.items() if value not in (None, [], ())}
    warn_of_variables(flags, os.environ, report)
    try:
        parsed = flags.parse(())
        parsed = with_sources(
            flags, Parsed(parsed.values | values, frozenset(values), []), os.environ)
        if parsed.values["nsqd-tcp-address"] and parsed.values["lookupd-http-address"]:
            raise FlagError("use --nsqd-tcp-address or --lookupd-http-address not both")
        for name in option_texts(parsed.values["consumer-opt"]):
            if name not in OPTIONS:
                raise FlagError(f"--consumer-opt: unknown option {name!r}", closest(name, OPTIONS))
    except FlagError as exc:
        meant = f": did you mean {exc.suggestion}?" if exc.suggestion else ""
        raise UsageError(f"{exc}{meant}") from exc
    except CommandLineError as exc:
        raise ConfigError(str(exc)) from exc
    return parsed


def read_settings(mapping: object, parsed: Parsed) -> Settings:
    """Return the setting ``NSQCLIENT`` with what the flags change in it.

    Addresses and middleware are replaced, options are changed one by one.

    Raises:
        ConfigError: something is wrong.
    """
    if not isinstance(mapping, Mapping):
        return Settings.read(mapping)
    changed, values, options = dict(mapping), parsed.values, mapping.get("OPTIONS", {})
    if values["nsqd-tcp-address"] or values["lookupd-http-address"]:
        changed["NSQD_TCP_ADDRESSES"] = values["nsqd-tcp-address"]
        changed["LOOKUPD_HTTP_ADDRESSES"] = values["lookupd-http-address"]
    if values["middleware"]:
        changed["MIDDLEWARE"] = values["middleware"]
    if isinstance(options, Mapping):
        texts = option_texts(values["consumer-opt"])
        for name in SECRETS:
            secret = values[f"{name.replace('_', '-')}-file"]
            needless = name == "tls_key_password" and "tls_key" not in {**options, **texts}
            if secret and not needless and not {name, f"{name}_file"} & texts.keys():
                texts[name] = secret
            if name in texts or f"{name}_file" in texts:  # they exclude each other
                options = {key: options[key] for key in options if key not in (
                    name, f"{name}_file")}
        changed["OPTIONS"] = {**options, **texts}
    return Settings.read(changed)
