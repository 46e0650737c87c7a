"""What the commands that run a server have in common: flags, logging, signals, config files."""

from __future__ import annotations

import importlib
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nsqclient.cli import goflags
from nsqclient.cli.goflags import BOOL, STRING, CommandLineError, FlagSet, Kind, Parsed
from nsqclient.cli.log_format import LineFormatter
from nsqclient.cli.signals import Signals
from nsqclient.errors import NSQError
from nsqclient.runtime.digits import read_digits

#: Go's name of a level -> Python's number.
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}


def _parse_level(text: str) -> str:
    if text.lower() not in LEVELS:
        raise ValueError(f"invalid log level '{text}' (debug, info, warn, error, fatal)")
    return text.lower()


LOG_LEVEL = Kind("value", _parse_level, str.upper)


def add_common_flags(flags: FlagSet) -> None:
    """Add the flags that nsqd and nsqlookupd share."""
    flags.add("version", BOOL, False, "print version string")
    flags.add("config", STRING, "", "path to config file (TOML, needs Python 3.11)")
    flags.add("log-level", LOG_LEVEL, "info",
              "set log verbosity: debug, info, warn, error, or fatal")
    flags.add("log-prefix", STRING, f"[{flags.program}] ", "log message prefix")
    flags.add("verbose", BOOL, False, "[deprecated] has no effect, use --log-level")


def read_config(parsed: Parsed, flags: FlagSet, names: Mapping[str, str]) -> Parsed:
    """Add what the file of ``--config`` says; the command line wins.

    Args:
        names: how the file calls a flag, where that is not the flag with underscores.

    Raises:
        CommandLineError: no such file, no TOML, an unknown key, or a bad value.
    """
    path = parsed.values["config"]
    if not path:
        return parsed
    content = _load_toml(path)
    by_key = {name.replace("-", "_"): name for name in parsed.values}
    by_key |= {key: name for name, key in names.items()}
    words: list[str] = []
    for key, value in content.items():
        name = by_key.get(key)
        if name is None:
            raise CommandLineError(f"config file {path}: unknown option {key!r}")
        if name not in parsed.given:
            items = value if isinstance(value, list) else [value]
            texts = [str(item).lower() if isinstance(item, bool) else str(item) for item in items]
            words += [f"-{name}={text}" for text in texts]
    try:
        from_file = flags.parse(words)
    except CommandLineError as exc:
        raise CommandLineError(f"config file {path}: {exc}") from None
    values = {
        name: (parsed if name in parsed.given else from_file).values[name]
        for name in parsed.values
    }
    return Parsed(values, parsed.given | from_file.given, parsed.rest)


def _load_toml(path: str) -> dict[str, Any]:
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError:
        raise CommandLineError("--config needs Python 3.11 or newer: use flags") from None
    try:
        content: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError) as exc:
        raise CommandLineError(f"failed to load config file {path} - {exc}") from None


def parse_listen_address(text: str, flag: str) -> tuple[str, int]:
    """Split the address of a listening port; the host may be empty (all), the port 0 (any).

    Raises:
        CommandLineError: it is not ``host:port``.
    """
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    number = read_digits(port, 5)
    if not colon or number is None or number > 65535:
        raise CommandLineError(f"--{flag} {text!r} is not an address: give <addr>:<port>")
    # ":4150" was typed, and means what it means in Go.
    return host or "0.0.0.0", number  # nosec B104 # asked for


class _GoFormatter(LineFormatter):
    """Lines as the Go servers log them: prefix, date with microseconds, level."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1e6)
        text = super().format(record)
        return f"{self._prefix}{at}.{micros:06d} {record.levelname}: {text}"


class Server(Protocol):
    """What :func:`serve` runs."""

    def start(self) -> None:
        """Listen; raises OSError or NSQError when it cannot."""

    def stop(self) -> None:
        """End everything."""


def run(
    flags: FlagSet,
    argv: Sequence[str] | None,
    version: str,
    config_names: Mapping[str, str],
    build: Callable[[Parsed], Server],
) -> int:
    """Run the server that ``build`` makes of the command line until a signal; return the status.

    Args:
        version: what ``--version`` prints.
        config_names: as ``names`` of :func:`read_config`.
        build: may raise CommandLineError or ConfigError.
    """

    def body(parsed: Parsed) -> int:
        if parsed.values["version"]:
            print(version)
            return 0
        if parsed.rest:
            raise CommandLineError(f"unknown arguments: {' '.join(parsed.rest)}")
        parsed = read_config(parsed, flags, config_names)
        return serve(build(parsed), parsed, flags.program)

    return goflags.run(flags, argv, body)


def serve(server: Server, parsed: Parsed, program: str) -> int:
    """Run a server until SIGINT or SIGTERM; return the exit status. A second one ends at once.

    The server logs its addresses at INFO when it listens. Call it in the main thread.

    Raises:
        CommandLineError: it cannot start.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_GoFormatter(parsed.values["log-prefix"]))
    logger = logging.getLogger("nsqclient")
    logger.addHandler(handler)
    logger.setLevel(LEVELS[parsed.values["log-level"]])
    try:
        with Signals() as signals:
            try:
                server.start()
            except (OSError, NSQError) as exc:
                reason = getattr(exc, "strerror", None) or exc
                raise CommandLineError(f"failed to start {program} - {reason}") from exc
            try:
                while not signals.wait():
                    pass
            finally:
                server.stop()
    finally:
        logger.removeHandler(handler)
    return 0
