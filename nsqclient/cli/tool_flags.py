"""Shared by the commands: flags, options of the library, logging, exit statuses.

A tool is a :class:`ToolFlags`: data goes to stdout, everything else to ``logging`` on stderr. A
server is a :class:`ServerCommand`. Exit statuses: 0 done, or stopped by SIGINT or SIGTERM; 1 for an
error; 2 for a flag or option that is missing, or does not parse.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from nsqclient.cli.command import Command
from nsqclient.cli.flags import (
    BOOL, DURATION, INT, NAME, PATH, STRING, STRINGS, CommandLineError, FlagError, Kind, Parsed,
    choice, not_negative, off_below_0, positive,
)
from nsqclient.errors import ConfigError, NSQError
from nsqclient.log_records import LEVELS, LineFormatter
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime import addresses
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.secrets import SECRETS, read_secret, secrets_of, with_secrets
from nsqclient.version import __version__

if TYPE_CHECKING:
    from nsqclient.config import Config

logger: logging.Logger = logging.getLogger("nsqclient.cli")
_server_logger: logging.Logger = logging.getLogger("nsqclient.devserver")

LOG_LEVEL = choice(*LEVELS, name="value")

POSITIVE = positive(DURATION)
NOT_NEGATIVE = not_negative(DURATION)
COUNT = off_below_0(INT)
#: 0 means unlimited in the originals; here it becomes a very long timeout.
HTTP_TIMEOUT = DURATION._replace(parse=lambda text: max(0.0, DURATION.parse(text)) or 600.0)


def _parse_option(text: str) -> tuple[str, str]:
    """Split ``name,text`` or ``name=text``; a name alone means true."""
    name, *value = re.split("[,=]", text, maxsplit=1)
    if not name.strip():
        raise ValueError("write key,value")
    return name.strip(), value[0] if value else "true"


#: ``--consumer-opt`` and ``--producer-opt``: pairs.
OPTIONS = Kind("key,value", _parse_option, is_list=True, separator=" ", joint=",")

SOURCES = ("nsqd-tcp-address", "lookupd-http-address")

#: The value is the content of the file, which is read only once.
SECRET_FILE = Kind("path", read_secret, is_path=True)


def add_secret_flags(flags: Command) -> None:
    flags.add("auth-secret-file", SECRET_FILE, "", "file with the auth_secret, for nsqds that"
              " require authentication (or set $NSQCLIENT_AUTH_SECRET)")
    flags.add("tls-key-password-file", SECRET_FILE, "", "file with the password of an encrypted"
              " tls_key (or set $NSQCLIENT_TLS_KEY_PASSWORD)")


def read_secrets(values: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Add secrets that ``options`` lack, from flags or else from the environment."""
    flags = {name: values.get(f"{name.replace('_', '-')}-file") for name in SECRETS}
    return with_secrets(
        options, {name: value for name, value in flags.items() if value}, secrets_of(os.environ))


def read_key_password(values: Mapping[str, Any], flag: str) -> str:
    """Return the password of a key, from the file of ``flag`` or else from the environment."""
    if values[flag]:
        return str(values[flag])
    from nsqclient.config import Config

    found = with_secrets({"tls_key": ""}, secrets_of(os.environ))
    try:
        return Config.from_strings({
            name: value for name, value in found.items() if name.startswith("tls_key_password")
        }).tls_key_password
    except ConfigError as exc:
        raise FlagError(str(exc)) from None


def add_http_tls_flags(flags: Command) -> None:
    flags.add("http-client-tls-root-ca-file", PATH, "", "PEM file with the trusted certificate"
              " authorities for HTTPS (default: those of the package requests)")
    flags.add("http-client-tls-cert", PATH, "", "PEM file with the client certificate for HTTPS")
    flags.add("http-client-tls-key", PATH, "", "PEM file with the private key of the client"
              " certificate")
    flags.add("http-client-tls-key-password-file", SECRET_FILE, "", "file with the password of an"
              " encrypted private key (or set $NSQCLIENT_TLS_KEY_PASSWORD)")
    flags.add("http-client-tls-insecure-skip-verify", BOOL, False, "do not verify the certificates"
              " of HTTPS servers")
    flags.exclude("http-client-tls-root-ca-file", "http-client-tls-insecure-skip-verify")
    flags.need("http-client-tls-cert", "http-client-tls-key")
    flags.need("http-client-tls-key", "http-client-tls-cert")


def read_http_tls(values: Mapping[str, Any]) -> dict[str, Any]:
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    options = {option: values[f"http-client-{option.replace('_', '-')}"] for option in (
        "tls_root_ca_file", "tls_cert", "tls_key", "tls_insecure_skip_verify")}
    given = {option: value for option, value in options.items() if value}
    if values["http-client-tls-key"]:
        given["tls_key_password"] = read_key_password(values, "http-client-tls-key-password-file")
    if given and not values["http-client-tls-insecure-skip-verify"]:
        given.setdefault("tls_root_ca_file", DEFAULT_CA_BUNDLE_PATH)
    return {"tls_v1": True, **given} if given else {}


def add_http_timeouts(flags: Command, kind: Kind = HTTP_TIMEOUT, request: float = 5.0) -> None:
    flags.add("http-client-connect-timeout", kind, 2.0, "timeout for connecting over HTTP")
    flags.add("http-client-request-timeout", kind, request, "timeout for an HTTP request")


def add_addresses(flags: Command, *names: str) -> None:
    for name in names:
        server, kind, _ = name.split("-")[-3:]
        server = server.replace("lookupd", "nsqlookupd")
        form = "<addr>:<port>" if kind == "tcp" else "<addr>:<port> or URL"
        flags.add(name, STRINGS, (),
                  f"{kind.upper()} address of an {server}, {form}; may be repeated")


class ToolFlags(Command):
    """A tool: a command that logs on stderr. ``has_logs`` False: ``body`` configures logging."""

    def __init__(
        self, name: str, body: Callable[[Parsed], int], summary: str,
        examples: Iterable[tuple[str, str]] = (), *, has_logs: bool = True, **others: Any,
    ) -> None:
        def with_logs(parsed: Parsed) -> int:
            with log_lines(
                    LineFormatter("%(asctime)s %(levelname)s %(message)s", "%Y/%m/%d %H:%M:%S"),
                    LEVELS[parsed.values["log-level"]]):
                return body(parsed)

        super().__init__(name, with_logs if has_logs else body, summary, examples, **others)

    def add_topic(self, kind: Kind = NAME, channel: str | None = None) -> None:
        """Add ``--topic``, which is required, and ``--channel`` with its default."""
        self.add("topic", kind, () if kind.is_list else "",
                 "NSQ topic; required" + (", may be repeated" if kind.is_list else ""))
        self.require("topic")
        if channel is not None:
            self.add("channel", NAME, channel, "NSQ channel" + ("" if channel else "; required"))
            self.require("channel")

    def add_in_flight(self, help_text: str = "") -> None:
        self.add("max-in-flight", not_negative(INT), 200,
                 f"maximum number of messages in flight{help_text}")

    def add_sources(self, *, only_looks: bool = False, required: bool = True) -> None:
        """Add the group that says where messages come from, and ``--consumer-opt``.

        Args:
            only_looks: the command asks nsqds over HTTP before it subscribes.
            required: whether the command always needs such an address.
        """
        self.group("Source (one kind of address is required)")
        add_addresses(self, *SOURCES)
        self.add("consumer-opt", OPTIONS, (), "option of the consumer, such as"
                 " max_attempts,5 or tls_v1 (see the options page of the docs); may be repeated")
        if required:
            self.require(*SOURCES)
        else:
            self.exclude(*SOURCES)
            self.alternatives.append(SOURCES)
        if only_looks:
            self.add("nsqd-http-address", STRINGS, (), "HTTP address of an nsqd of"
                     " --nsqd-tcp-address; may be repeated; where ports are\n      mapped, in the"
                     " same order (default: the same host, and the port after the TCP port)")
        add_secret_flags(self)

    def add_http_servers(self) -> None:
        self.group("Servers (one kind of address is required)")
        add_addresses(self, "nsqd-http-address", "lookupd-http-address")
        self.require("nsqd-http-address", "lookupd-http-address")
        add_http_timeouts(self, POSITIVE)
        add_http_tls_flags(self)

    def add_producer_options(self) -> None:
        self.add("producer-opt", OPTIONS, (), "option of the producer, such as"
                 " publish_timeout,30s or tls_v1; may be repeated")

    def add_dead_letters(self, help_text: str) -> None:
        self.add("dead-letter-topic", NAME, "", help_text)
        self.add("dead-letter-envelope", BOOL, True, "publish dead letters as JSON objects with"
                 " the body and details of the failure;\n      =false: only the body")

    def add_common(self, quiet: bool = False) -> None:
        self.group("Other")
        default = "error" if quiet else "info"
        self.add("config", PATH, "", "configuration file (TOML); flags and environment variables"
                 "\n      (such as $NSQ_LOG_LEVEL, one for each flag) take precedence over it")
        self.add("log-level", LOG_LEVEL, default,
                 "minimum level to log: debug, info, warn, error or fatal")
        self.add("version", BOOL, False, "print the version")


@contextlib.contextmanager
def log_lines(formatter: logging.Formatter, level: int) -> Iterator[None]:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger("nsqclient")
    former = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(former)


def checked_name(name: str, noun: str) -> str:
    if not is_valid_name(name):
        raise FlagError(f"{noun} {name!r} is invalid (1 to 64 of a-z A-Z 0-9 . _ -)")
    return name


def option_texts(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the options of ``--consumer-opt``: the names that ``Config`` has, and texts."""
    return {name.lower().replace("-", "_"): text for name, text in given}


def read_config(
    values: Mapping[str, Any], tool: str, flag: str, *, has_secrets: bool = True, **defaults: str
) -> Config:
    """Build the Config that ``--consumer-opt`` or ``--producer-opt`` describes.

    ``max_attempts`` is 0, never give up, unless the options say otherwise.

    Args:
        flag: "consumer-opt" or "producer-opt".
        has_secrets: False for servers that must not receive the secrets of flags and environment.
        defaults: further options, as text, that the flag may override.
    """
    from nsqclient.config import Config  # the embedded servers ignore it

    options = {"user_agent": f"{tool}/{__version__} nsqclient/{__version__}", "max_attempts": "0"}
    options |= defaults | option_texts(values[flag])
    if has_secrets:
        options = read_secrets(values, options)
    try:
        return Config.from_strings(options)
    except ConfigError as exc:
        raise FlagError(f"invalid value for flag -{flag}: {exc}") from None


def read_consumer_config(values: Mapping[str, Any], tool: str) -> Config:
    """Build the Config of ``--consumer-opt`` and ``--max-in-flight``."""
    if values["max-in-flight"] == 0:  # which the originals take
        logger.warning("--max-in-flight=0: no message will arrive; set at least 1")
    return read_config(values, tool, "consumer-opt").replace(max_in_flight=values["max-in-flight"])


class ServerCommand(Command):
    """A command that runs the server that ``build`` makes, until a signal.

    ``ignores_words``: positional arguments cause a warning instead of an error.
    """

    def __init__(
        self, name: str, build: Callable[[Parsed], Server], summary: str, *,
        ignores_words: bool = False, version: str = "",
    ) -> None:
        self._ignored: set[str] = set()

        def body(parsed: Parsed) -> int:
            ignored = sorted(self._ignored & parsed.given)
            if ignored:
                _server_logger.warning("flags without effect here: --%s", ", --".join(ignored))
            if parsed.rest:
                _server_logger.warning(
                    "ignored: %s", printable(" ".join(parsed.rest), LONGEST_TEXT))
            return serve(build(parsed), parsed, name)

        super().__init__(name, body, summary, words="[IGNORED ...]" if ignores_words else "",
                         version=version)

    def add_common(self) -> None:
        self.group("Other")
        self.add("version", BOOL, False, "print version string")
        self.add("config", PATH, "", "configuration file (TOML)")
        self.add("log-level", LOG_LEVEL, "info",
                 "set log verbosity: debug, info, warn, error, or fatal")
        self.add("log-prefix", STRING, f"[{self.name}] ", "log message prefix")
        self.add("verbose", BOOL, False, "[deprecated] has no effect, use --log-level")

    def add_ignored(self, flags: Iterable[tuple[str, Kind]]) -> None:
        self.group("Accepted without effect")
        for name, kind in flags:
            self.add(name, kind, None, "has no effect here")
            self._ignored.add(name)


def parse_listen_address(text: str, flag: str) -> tuple[str, int]:
    """Split a listening address; the host may be empty (all), the port 0 (any)."""
    try:
        return addresses.parse_listen_address(text)
    except ConfigError as exc:
        raise FlagError(f"--{flag} {exc}") from None


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
    def start(self) -> None:
        ...

    def stop(self) -> None:
        ...


def serve(server: Server, parsed: Parsed, program: str) -> int:
    """Run a server until SIGINT or SIGTERM; return the exit status. Main thread only."""
    formatter = _GoFormatter(parsed.values["log-prefix"])
    with log_lines(formatter, LEVELS[parsed.values["log-level"]]), Signals(Second.EXIT) as signals:
        try:
            server.start()
        except (OSError, NSQError) as exc:
            reason = getattr(exc, "strerror", None) or exc
            raise CommandLineError(f"failed to start {program} - {reason}") from exc
        try:
            signals.wait()
        finally:
            server.stop()
    return 0
