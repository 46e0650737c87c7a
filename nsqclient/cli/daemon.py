"""What the commands that run a server have in common: flags, logging, signals, config files."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from nsqclient.cli.command import Command
from nsqclient.cli.flags import BOOL, PATH, STRING, CommandLineError, Kind, Parsed
from nsqclient.cli.signals import Signals
from nsqclient.cli.tool_flags import LEVELS, LOG_LEVEL, log_lines
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.errors import NSQError
from nsqclient.log_records import LineFormatter
from nsqclient.runtime.addresses import parse_uint

logger: logging.Logger = logging.getLogger("nsqclient.devserver")


class ServerCommand(Command):
    """A command that runs the server that ``build`` makes, until a signal.

    Args:
        build: may raise CommandLineError or ConfigError.
        ignores_words: words that are no flags are ignored with a warning, in place of an error.
        around: what holds while it runs.
    """

    def __init__(
        self, name: str, build: Callable[[Parsed], Server], summary: str, *,
        ignores_words: bool = False, version: str = "",
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._ignored: set[str] = set()

        def body(parsed: Parsed) -> int:
            ignored = sorted(self._ignored & parsed.given)
            if ignored:
                logger.warning("flags without effect here: --%s", ", --".join(ignored))
            if parsed.rest:
                logger.warning("ignored: %s", printable(" ".join(parsed.rest), LONGEST_TEXT))
            with around():
                return serve(build(parsed), parsed, name)

        super().__init__(name, body, summary, words="[IGNORED ...]" if ignores_words else "",
                         version=version)

    def add_common(self) -> None:
        """Add the last group: what every server has."""
        self.group("Other")
        self.add("version", BOOL, False, "print version string")
        self.add("config", PATH, "", "configuration file (TOML)")
        self.add("log-level", LOG_LEVEL, "info",
                 "set log verbosity: debug, info, warn, error, or fatal")
        self.add("log-prefix", STRING, f"[{self.name}] ", "log message prefix")
        self.add("verbose", BOOL, False, "[deprecated] has no effect, use --log-level")

    def add_ignored(self, flags: Iterable[tuple[str, Kind]]) -> None:
        """Add a group of flags of the original that have no effect here."""
        self.group("Accepted without effect")
        for name, kind in flags:
            self.add(name, kind, None, "has no effect here")
            self._ignored.add(name)


def parse_listen_address(text: str, flag: str) -> tuple[str, int]:
    """Split the address of a listening port; the host may be empty (all), the port 0 (any).

    Raises:
        CommandLineError: it is not ``host:port``.
    """
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    number = parse_uint(port, 5)
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


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system allows it, as every program in Go does.

    The limit that a shell begins with, often 1024, ends at some 300 clients.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # macOS refuses "unlimited"; the limit stays


def serve(server: Server, parsed: Parsed, program: str) -> int:
    """Run a server until SIGINT or SIGTERM; return the exit status. A second one ends at once.

    The server logs its addresses at INFO when it listens. Call it in the main thread.

    Raises:
        CommandLineError: it cannot start.
    """
    raise_descriptor_limit()
    formatter = _GoFormatter(parsed.values["log-prefix"])
    with log_lines(formatter, LEVELS[parsed.values["log-level"]]), Signals() as signals:
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
    return 0
