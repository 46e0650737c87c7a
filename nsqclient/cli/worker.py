"""``nsqclient worker``: run the handlers of modules, or one function, until a signal.

The manual is ``docs/topics/worker.rst``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqclient import Config
from nsqclient.cli import build_program
from nsqclient.cli.flags import (
    BOOL, DURATION, INT, LISTEN, NAME, NAMES, STRINGS, CommandLineError, Flag, FlagError, Parsed,
    check_required, choice, positive,
)
from nsqclient.cli.tool_flags import SOURCES, ToolFlags, option_texts, read_config
from nsqclient.config import OPTIONS
from nsqclient.display import paint_result
from nsqclient.errors import ConfigError, NSQError
from nsqclient.log_records import LEVELS
from nsqclient.runtime.arguments import closest
from nsqclient.secrets import SECRETS
from nsqclient.worker.group import ConsumerGroup, add_all
from nsqclient.worker.loading import (
    UsageError, load_handler, load_module, load_object, submodules_of,
)
from nsqclient.worker.registry import register, registry
from nsqclient.worker.runner import HANG_TIMEOUT, WorkerOptions, report_as_json, run_worker

if TYPE_CHECKING:
    from nsqclient.metrics.prometheus import WorkerMetrics

PROGRAM = "worker"

_SUMMARY = """\
Runs the functions with @nsqclient.handler in modules, or one function of --topic and --channel.
At SIGINT or SIGTERM, running handlers finish, and all other messages are requeued."""

_EXAMPLES = [
    ("run all handlers of a module",
     "nsqclient worker shop.handlers --nsqd-tcp-address=127.0.0.1:4150"),
    ("run four processes, with health checks and metrics",
     "nsqclient worker shop.handlers --lookupd-http-address=lookup:4161 --processes=4"
     " --health-address=:8080 --metrics-address=:9100"),
    ("run one function",
     "nsqclient worker shop.mail:send --topic=orders --channel=mail --workers=8 ..."),
    ("does everything import and connect?", "nsqclient worker shop.handlers --check ..."),
]

LOG_FORMAT = choice("text", "json", name="value")


class _CannotStart(CommandLineError):
    """Shown without the usage: the error names the wrong flag, if any."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


def build_command() -> ToolFlags:
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES, has_logs=False,
                      words="MODULE... | MODULE:FUNCTION", flags_anywhere=True)
    flags.group("Handlers")
    flags.add("topic", NAMES, (), "topic of the function; with modules: run only the handlers of"
              " this topic; may be repeated")
    flags.add("channel", NAME, "", "channel of the function")
    flags.add("workers", INT, 0, "number of threads per topic that run the function (default 1)")
    flags.add("max-in-flight", INT, 0, "maximum number of messages in flight, for each topic and"
              " process (default: max_in_flight of --consumer-opt, otherwise one per thread)")
    flags.add("middleware", STRINGS, (), "module:name of a middleware around each handler; may be"
              " repeated, the first is outermost")
    flags.group("Processes")
    flags.add("processes", positive(INT), 0, "number of processes to run under a supervisor"
              " (default: run in this process)")
    flags.add("stop-timeout", DURATION, 25.0, "time for running handlers to finish when the worker"
              " stops")
    flags.add("hang-timeout", DURATION, HANG_TIMEOUT, "with --processes: time without a sign of"
              " life after which a process\n      is killed and restarted; 0: no limit")
    flags.add("reload", BOOL, False, "restart when code in or below the current folder changes")
    flags.add("health-address", LISTEN, "", "<addr>:<port> on which to serve /live and /ready")
    flags.add("metrics-address", LISTEN, "",
              "<addr>:<port> on which to serve /metrics (Prometheus)")
    flags.add("check", BOOL, False, "import the handlers, connect to every server, and exit")
    flags.add_sources()
    flags.add_common()
    flags.add("log-format", LOG_FORMAT, "text", "form of the log lines: text or json")
    return flags


def _run(parsed: Parsed) -> int:
    # Let modules be imported from the current folder, as python -m does.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    values, targets = parsed.values, parsed.rest
    if not targets:
        raise FlagError("name a module with handlers: nsqclient worker shop.handlers")
    function = _function(targets, parsed)
    config = read_config(
        values, PROGRAM, "consumer-opt", max_attempts=str(Config().max_attempts))

    def build(metrics: WorkerMetrics | None) -> ConsumerGroup:
        middleware = [load_object(path, "middleware") for path in values["middleware"]]
        group = ConsumerGroup(
            config, {"nsqd_tcp_addresses": tuple(dict.fromkeys(values["nsqd-tcp-address"])),
                     "lookupd_http_addresses": tuple(values["lookupd-http-address"])},
            middleware, metrics)
        if function:
            add_function(group, function, parsed)
        else:
            for name in targets:
                load_module(name)
            try:
                add_all(group, registry, values["topic"])
            except ConfigError as exc:
                if not list(registry):
                    inner = submodules_of(targets)
                    raise ConfigError(
                        f"{' and '.join(targets)}: no handler is registered; "
                        + (f"give the module that has them: {', '.join(inner)}" if inner else
                           'write @nsqclient.handler("topic", "channel") before a function')
                    ) from exc
                raise
        return group

    try:
        options = read_options(parsed, Path.cwd() if values["reload"] else None)
        return run_worker(build, options, _report)
    except (NSQError, OSError) as exc:
        status = FlagError.status if isinstance(exc, UsageError) else CommandLineError.status
        if values["log-format"] == "json":
            report_as_json(f"{PROGRAM}: {exc}", logging.ERROR)
            return status
        raise _CannotStart(str(exc), status) from exc


def read_options(parsed: Parsed, reload_folder: Path | None) -> WorkerOptions:
    """Return the options of a worker. Raises UsageError."""
    values = parsed.values
    level = LEVELS[values["log-level"]] if "log-level" in parsed.given else None
    return WorkerOptions(
        processes=values["processes"], reload_folder=reload_folder,
        health_address=values["health-address"],
        metrics_address=values["metrics-address"], is_check=values["check"],
        stop_timeout=values["stop-timeout"], hang_timeout=values["hang-timeout"],
        log_level=level, is_log_json=values["log-format"] == "json",
    )


def _function(targets: Sequence[str], parsed: Parsed) -> str:
    """Return the path of the one function; empty for modules."""
    if len(targets) == 1 and ":" in targets[0]:
        return targets[0]
    for target in targets:
        if ":" in target:
            raise FlagError(f"{target!r}: give one function, or modules")
    for flag in ("channel", "workers", "max-in-flight"):
        if flag in parsed.given:
            raise FlagError(f"--{flag} is for one function (module:function): the handlers of a"
                            " module have their own")
    return ""


def add_function(group: ConsumerGroup, path: str, parsed: Parsed) -> None:
    """Add one function, for --topic and --channel or for those of its decorator.

    Raises UsageError, or ConfigError if a flag contradicts the decorator.
    """
    handler, values = load_handler(path), parsed.values
    given = {name.replace("-", "_"): values[name] for name in ("workers", "max-in-flight")
             if name in parsed.given}
    known = {(entry.topic, entry.channel): entry for entry in registry
             if entry.handler is handler}
    places = [(topic, values["channel"]) for topic in dict.fromkeys(values["topic"])]
    if not values["channel"]:
        places = [place for place in known if not values["topic"] or place[0] in values["topic"]]
    if not places:
        reason = "" if values["channel"] else f": {path} has no @nsqclient.handler"
        where = " for that topic" if reason and values["topic"] else ""
        raise UsageError(f"give both --topic and --channel{reason}{where}")
    for topic, channel in places:
        entry = known.get((topic, channel))
        if entry is None:
            group.add(register(topic, channel, handler, name=path.replace(":", "."), **given))
            continue
        settings = entry.settings()
        wrong = {name: value for name, value in given.items() if settings.get(name) != value}
        if wrong:
            name, value = next(iter(wrong.items()))
            raise ConfigError(
                f"{entry.name} is registered for {entry.place} with {name}"
                f" {settings.get(name, 'not given')}, and --{name.replace('_', '-')} says"
                f" {value}: leave the flag out")
        group.add(entry)


def _report(line: str) -> None:
    sys.stderr.write(paint_result(line, sys.stderr) + "\n")
    sys.stderr.flush()


# -- for Django and Flask, which parse their own command lines


#: Flags of the worker that their commands have. The frameworks reload code themselves.
_SHARED = (
    "topic", "middleware", "processes", "stop-timeout", "hang-timeout", "health-address",
    "metrics-address", "check", "nsqd-tcp-address", "lookupd-http-address", "consumer-opt",
    "config", "log-level", "log-format",
)


def worker_flags(*more: str) -> list[Flag]:
    """Return the worker's flags for a framework's command, which hands their texts to
    ``read_flags``.
    """
    flags = build_command().flags
    return [flags[name] for name in (*_SHARED, *more)]


def read_flags(given: Mapping[str, Any]) -> Parsed:
    """Return the values of the worker's flags for a framework's command.

    Precedence: the command line, environment variables, the configuration file, then the setting
    ``NSQCLIENT``.

    Args:
        given: flag -> text, texts, or True for a switch; None or empty: not given.

    Raises:
        UsageError: a value or name is wrong, or two flags exclude each other.
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


def changed_setting(mapping: object, values: Mapping[str, Any]) -> object:
    """Return the setting ``NSQCLIENT`` with the flags applied. OPTIONS is merged key by key."""
    if not isinstance(mapping, Mapping):
        return mapping
    changed, options = dict(mapping), mapping.get("OPTIONS", {})
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
    return changed
