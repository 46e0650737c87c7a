"""The flags of the worker for ``manage.py nsq_consume`` and ``flask nsq consume``.

These commands read their command lines as Django and Flask do. What a command line does not give
comes from the same environment variables and the same table of the configuration file as for
``nsqclient worker``, and only then from the setting ``NSQCLIENT``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqclient.cli import build_program
from nsqclient.cli.flags import CommandLineError, Flag, FlagError, Parsed, check_required
from nsqclient.cli.tool_flags import SOURCES, option_texts
from nsqclient.cli.worker import build_command
from nsqclient.config import OPTIONS
from nsqclient.contrib.settings import Settings
from nsqclient.errors import ConfigError
from nsqclient.runtime.arguments import closest
from nsqclient.secrets import SECRETS
from nsqclient.worker.loading import UsageError

#: The worker's flags that the commands have; how code is reloaded is the framework's.
_SHARED = (
    "topic", "middleware", "processes", "stop-timeout", "hang-timeout", "health-address",
    "metrics-address", "check", "nsqd-tcp-address", "lookupd-http-address", "consumer-opt",
    "config", "log-level", "log-format",
)


def worker_flags(*more: str) -> list[Flag]:
    """Return the worker's flags that a command has: those of both frameworks, and ``more``.

    A command reads their values as text: :func:`read_flags` parses it.
    """
    flags = build_command().flags
    return [flags[name] for name in (*_SHARED, *more)]


def read_flags(given: Mapping[str, Any]) -> Parsed:
    """Return the values of the worker's flags, from the first source that gives each.

    Args:
        given: flag -> text, texts, or True for a switch; what is None or empty is not given.

    Raises:
        UsageError: a variable or the file has a wrong value or name, or two exclude each other.
        ConfigError: the file cannot be read.
    """
    command = build_command()
    words = [f"--{name}={'true' if each is True else each}" for name, value in given.items()
             if value for each in (value if isinstance(value, (list, tuple)) else [value])]
    try:
        parsed = command.parse(words, build_program())
        check_required(parsed.values, *SOURCES, count=0)
        for name in option_texts(parsed.values["consumer-opt"]):
            if name not in OPTIONS:
                raise FlagError(f"--consumer-opt: unknown option {name!r}", closest(name, OPTIONS))
    except FlagError as exc:
        raise UsageError(str(exc)) from exc
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
