"""What the utilities share: flags, options of the library, names, logging, exit statuses.

A tool is a :class:`ToolFlags`; it writes data to stdout and reports everything else with
``logging``, which goes to stderr. Exit statuses: 0 done, or stopped by SIGINT or SIGTERM; 1 for an
error (an nsqd that cannot be reached at the start, a broken output); 2 for a flag or option that is
missing, or does not parse.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.cli.command import Command
from nsqclient.cli.flags import (
    BOOL, DURATION, PATH, STRING, STRINGS, CommandLineError, FlagError, Kind, Parsed, choice,
)
from nsqclient.errors import ConfigError
from nsqclient.log_formatters import LineFormatter
from nsqclient.protocol.names import is_valid_name
from nsqclient.secrets import SECRETS, read_secret, secrets_of, with_secrets
from nsqclient.version import __version__

if TYPE_CHECKING:
    from nsqclient.config import Config

logger: logging.Logger = logging.getLogger("nsqclient.cli")

#: Go's name of a level -> Python's number.
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}

LOG_LEVEL = choice(*LEVELS, name="value")

#: What an HTTP timeout of 0 stands for, in seconds.
LONGEST_TIMEOUT = 600.0

#: ``--consumer-opt`` and ``--producer-opt``; :func:`read_config` reads the texts.
OPTIONS = Kind("key,value", str, is_list=True, separator=" ", joint=",")

#: A file with a secret; the value of the flag is what the file holds, so the file is read once.
SECRET_FILE = Kind("path", read_secret, is_path=True)


def add_secret_flags(flags: Command) -> None:
    """Add the flags for secrets, which do not belong on a command line."""
    flags.add("auth-secret-file", SECRET_FILE, "", "file with the auth_secret, for nsqds that"
              " require authentication (or set $NSQCLIENT_AUTH_SECRET)")
    flags.add("tls-key-password-file", SECRET_FILE, "", "file with the password of an encrypted"
              " tls_key (or set $NSQCLIENT_TLS_KEY_PASSWORD)")


def read_secrets(values: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Add the secrets of the flags, or else of the environment, which ``options`` do not give."""
    flags = {name: values.get(f"{name.replace('_', '-')}-file") for name in SECRETS}
    return with_secrets(
        options, {name: value for name, value in flags.items() if value}, secrets_of(os.environ))


def read_key_password(values: Mapping[str, Any], flag: str) -> str:
    """Return the password of a key, from the file of ``flag`` or else from the environment.

    Raises:
        FlagError: the environment names a file that cannot be read.
    """
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
    """Add the flags for TLS to https servers to the current group."""
    flags.add("http-client-tls-root-ca-file", PATH, "", "PEM file with the trusted certificate"
              " authorities for HTTPS (default: those of the package requests)")
    flags.add("http-client-tls-cert", PATH, "", "PEM file with the client certificate for HTTPS")
    flags.add("http-client-tls-key", PATH, "", "PEM file with the private key of the client"
              " certificate")
    flags.add("http-client-tls-key-password-file", SECRET_FILE, "", "file with the password of an"
              " encrypted private key (or set $NSQCLIENT_TLS_KEY_PASSWORD)")
    flags.add("http-client-tls-insecure-skip-verify", BOOL, False, "do not verify the certificates"
              " of HTTPS servers")


class ToolFlags(Command):
    """A tool: a command that logs on stderr.

    Args:
        has_logs: False: ``body`` sees to logging itself.
        others: as those of :class:`Command`.
    """

    def __init__(
        self, name: str, body: Callable[[Parsed], int], summary: str,
        examples: Iterable[tuple[str, str]] = (), *, has_logs: bool = True, **others: Any,
    ) -> None:
        def with_logs(parsed: Parsed) -> int:
            level = LEVELS.get(parsed.values["log-level"].lower())
            if level is None:
                raise CommandLineError(f"--log-level is invalid: use {', '.join(LEVELS)}")
            if not has_logs:
                return body(parsed)
            with log_lines(
                    LineFormatter("%(asctime)s %(levelname)s %(message)s", "%Y/%m/%d %H:%M:%S"),
                    level):
                return body(parsed)

        super().__init__(name, with_logs, summary, examples, **others)

    def add_sources(self, *, only_looks: bool = False) -> None:
        """Add the group that says where messages come from, and ``--consumer-opt``.

        Args:
            only_looks: the command asks nsqds over HTTP before it subscribes.
        """
        self.group("Source (one kind of address is required)")
        self.add("nsqd-tcp-address", STRINGS, (), "TCP address of an nsqd,"
                 " <addr>:<port>; may be repeated")
        self.add("lookupd-http-address", STRINGS, (),
                 "HTTP address of an nsqlookupd, <addr>:<port> or URL; may be repeated")
        self.add("consumer-opt", OPTIONS, (), "option of the consumer, such as"
                 " max_attempts,5 or tls_v1 (see the options page of the docs); may be repeated")
        self.alternatives.append(frozenset(("nsqd-tcp-address", "lookupd-http-address")))
        if only_looks:
            self.add("nsqd-http-address", STRINGS, (), "HTTP address of the nsqd of each"
                     " --nsqd-tcp-address, in the same order\n      (default: the same host, and"
                     " the port after the TCP port)")
        add_secret_flags(self)

    def add_http_servers(self) -> None:
        """Add the group that says which servers are asked over HTTP."""
        self.group("Servers (one kind of address is required)")
        self.add("nsqd-http-address", STRINGS, (),
                 "HTTP address of an nsqd, <addr>:<port> or URL; may be repeated")
        self.add("lookupd-http-address", STRINGS, (),
                 "HTTP address of an nsqlookupd, <addr>:<port> or URL; may be repeated")
        self.alternatives.append(frozenset(("nsqd-http-address", "lookupd-http-address")))
        self.add("http-client-connect-timeout", DURATION, 2.0, "timeout for connecting over HTTP")
        self.add("http-client-request-timeout", DURATION, 5.0, "timeout for an HTTP request")

    def add_producer_options(self) -> None:
        """Add ``--producer-opt`` to the current group."""
        self.add("producer-opt", OPTIONS, (), "option of the producer, such as"
                 " publish_timeout,30s or tls_v1; may be repeated")

    def add_dead_letters(self, help_text: str) -> None:
        """Add ``--dead-letter-topic``, and the form of what is published there."""
        self.add("dead-letter-topic", STRING, "", help_text)
        self.add("dead-letter-envelope", BOOL, True, "publish dead letters as JSON objects with"
                 " the body and details of the failure;\n      =false: only the body")
        self.add_dead_letter_key("file with a secret that signs dead letters, for 'dead_letters"
                                 " replay'")

    def add_dead_letter_key(self, help_text: str) -> None:
        """Add ``--dead-letter-key-file``."""
        self.add("dead-letter-key-file", SECRET_FILE, "", help_text)

    def add_common(self, log_level: Kind = LOG_LEVEL, quiet: bool = False) -> None:
        """Add the last group: what every tool has. ``quiet``: log errors only by default."""
        self.group("Other")
        default = "error" if quiet else "info"
        self.add("config", PATH, "", "configuration file (TOML); flags and environment variables"
                 "\n      (such as $NSQ_LOG_LEVEL, one for each flag) take precedence over it")
        self.add("log-level", log_level, default,
                 "minimum level to log: debug, info, warn, error or fatal")
        self.add("version", BOOL, False, "print the version")


@contextlib.contextmanager
def log_lines(formatter: logging.Formatter, level: int) -> Iterator[None]:
    """Log on stderr while the block runs, and leave the logger as it was."""
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


def turn_off_negative(values: dict[str, Any], *names: str) -> None:
    """Set numbers below 0 to 0 where that is off, as the originals do, and say so."""
    for name in names:
        if values[name] < 0:
            logger.warning("--%s below 0 means 0: off", name)
            values[name] = type(values[name])(0)


def check_in_flight(values: Mapping[str, Any]) -> None:
    """Check ``--max-in-flight``; with 0, which the originals take, nothing comes, so say so.

    Raises:
        CommandLineError: it is below 0.
    """
    if values["max-in-flight"] < 0:
        raise CommandLineError("--max-in-flight must not be negative")
    if values["max-in-flight"] == 0:
        logger.warning("--max-in-flight=0: no message will arrive; set at least 1")


def limit_timeouts(values: dict[str, Any]) -> None:
    """Replace HTTP timeouts of 0 or less, no limit in the originals, by a long one; say so."""
    for name in ("http-client-connect-timeout", "http-client-request-timeout"):
        if values[name] <= 0:
            logger.warning("--%s: a limit is required; using %g s", name,
                           LONGEST_TIMEOUT)
            values[name] = LONGEST_TIMEOUT


def check_http_servers(values: Mapping[str, Any]) -> None:
    """Check the flags of ``add_http_servers``.

    Raises:
        CommandLineError: addresses of none or both kinds, or a timeout that is none.
    """
    for name in ("http-client-connect-timeout", "http-client-request-timeout"):
        if values[name] <= 0:
            raise CommandLineError(f"--{name} should be positive")
    if values["nsqd-http-address"] and values["lookupd-http-address"]:
        raise FlagError("use --nsqd-http-address or --lookupd-http-address not both")
    if not values["nsqd-http-address"] and not values["lookupd-http-address"]:
        raise FlagError("--nsqd-http-address or --lookupd-http-address required")


def check_sources(values: Mapping[str, Any]) -> None:
    """Check that there are addresses of one kind.

    Raises:
        FlagError: of none or both; in the words of the originals.
    """
    nsqds, lookupds = values["nsqd-tcp-address"], values["lookupd-http-address"]
    if not nsqds and not lookupds:
        raise FlagError("--nsqd-tcp-address or --lookupd-http-address required")
    if nsqds and lookupds:
        raise FlagError("use --nsqd-tcp-address or --lookupd-http-address not both")
    nsqd_http = values.get("nsqd-http-address")
    if nsqds and nsqd_http and len(nsqd_http) != len(nsqds):
        raise FlagError("give one --nsqd-http-address for each --nsqd-tcp-address, in the same"
                        " order")


def check_name(name: str, flag: str) -> str:
    """Return a topic or channel name that was given with ``flag``.

    Raises:
        FlagError: it is missing.
        CommandLineError: it is no such name.
    """
    if not name:
        raise FlagError(f"--{flag} required")
    if not is_valid_name(name):
        raise CommandLineError(f"--{flag} is invalid: {name!r} (1 to 64 of a-z A-Z 0-9 . _ -)")
    return name


def check_topics(topics: Sequence[str]) -> list[str]:
    """Return the topics of a repeatable ``--topic``, each once.

    Raises:
        CommandLineError: there is none, or one is no topic name.
    """
    return [check_name(topic, "topic") for topic in dict.fromkeys(topics or [""])]


def option_texts(given: Iterable[str]) -> dict[str, str]:
    """Return the options of ``--consumer-opt`` (``name,text`` or ``name=text``): name -> text."""
    options = {}
    for text in given:
        found = re.fullmatch(r"([^,=]*)(?:[,=](.*))?", text, re.DOTALL)
        assert found is not None
        key, value = found.groups()
        options[key.strip().lower().replace("-", "_")] = "true" if value is None else value
    return options


def read_config(
    values: Mapping[str, Any], tool: str, flag: str, *, has_secrets: bool = True, **defaults: str
) -> Config:
    """Build the Config that ``--consumer-opt`` or ``--producer-opt`` describes.

    The tool is named in the user agent, and ``max_attempts`` is 0, never give up, unless the
    options say otherwise.

    Args:
        flag: "consumer-opt" or "producer-opt".
        has_secrets: whether the flags and the environment may give secrets as well; not for other
            servers than those that they are for.
        defaults: further options, as text, that the flag may override.

    Raises:
        FlagError: an unknown option, a value that is none, or options that exclude each other.
    """
    from nsqclient.config import Config  # the embedded servers have no use for it

    options = {"user_agent": f"{tool}/{__version__} nsqclient/{__version__}", "max_attempts": "0"}
    options |= defaults | option_texts(values[flag])
    if has_secrets:
        options = read_secrets(values, options)
    try:
        return Config.from_strings(options)
    except ConfigError as exc:
        raise FlagError(f"invalid value for flag -{flag}: {exc}") from None
