"""What the utilities share: flags, options of the library, names, logging, exit statuses.

A tool builds a :class:`ToolFlags` and calls :func:`run`; it writes data to stdout and reports
everything else with ``logging``, which goes to stderr. Exit statuses: 0 done, or stopped by
SIGINT or SIGTERM; 1 for an error (an nsqd that cannot be reached at the start, a broken output); 2
for a flag or option that is missing, or does not parse.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.cli import goflags
from nsqclient.cli.goflags import (
    BOOL, PATH, STRING, STRINGS, CommandLineError, FlagError, FlagSet, Kind, Parsed,
)
from nsqclient.errors import ConfigError, NSQError
from nsqclient.log_formatters import LineFormatter
from nsqclient.protocol.names import is_valid_name
from nsqclient.secrets import SECRETS, read_secret, secrets_of, with_secrets
from nsqclient.version import __version__

if TYPE_CHECKING:
    from nsqclient.config import Config

logger = logging.getLogger("nsqclient.cli")

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


LOG_LEVEL = Kind("value", _parse_level, str.upper, choices=tuple(LEVELS))

#: What an HTTP timeout of 0 stands for, in seconds.
LONGEST_TIMEOUT = 600.0

#: ``--consumer-opt`` and ``--producer-opt``; :func:`read_config` reads the texts.
OPTIONS = Kind("key,value", str, is_list=True, separator=" ", joint=",")

#: A file with a secret; the value of the flag is what the file holds, so the file is read once.
SECRET_FILE = Kind("path", read_secret, is_path=True)


def add_secret_flags(flags: FlagSet) -> None:
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


class ToolFlags(FlagSet):
    """The flags of one tool, and a help text that shows them in groups.

    Args:
        program: name of the tool.
        summary: what it does, in a sentence or two.
        examples: command lines with what they do: (comment, command).
    """

    def __init__(
        self, program: str, summary: str, examples: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(program)
        self._summary = summary
        self._examples = list(examples)
        self._groups: list[tuple[str, list[str]]] = []

    def group(self, title: str) -> None:
        """Begin a group: flags that are added from now on are shown under this title."""
        self._groups.append((title, []))

    def add(self, name: str, kind: Kind, default: Any, help_text: str) -> None:
        """Add a flag to the current group."""
        super().add(name, kind, default, help_text)
        self._groups[-1][1].append(name)

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

    def usage(self) -> str:
        """The help text."""
        lines = [f"Usage of {self.program}:", "", self._summary]
        for title, names in self._groups:
            lines += ["", f"{title}:"]
            for name in names:
                flag = self._flags[name]
                # As Go does: what is off, empty or 0 by default needs no words.
                default = f" (default {flag.kind.show(flag.default)})" if flag.default else ""
                lines += [f"  --{name} {flag.kind.name}".rstrip(), f"      {flag.help}{default}"]
        if self._examples:
            lines += ["", "Examples:"]
            for comment, command in self._examples:
                lines += [f"  # {comment}", f"  {command}"]
        return "\n".join(lines) + "\n"


def run(
    flags: ToolFlags, argv: Sequence[str] | None, body: Callable[[Parsed], int], *,
    has_logs: bool = True,
) -> int:
    """Parse ``argv`` and run ``body`` with logs on stderr; return the exit status.

    Args:
        has_logs: False: ``body`` sees to logging itself.

    A CommandLineError, NSQError or OSError of ``body`` becomes one line on stderr.
    """

    def with_logs(parsed: Parsed) -> int:
        if parsed.values["version"]:
            print(f"{flags.program} v{__version__} (nsqclient)")
            return 0
        if parsed.rest:
            # Not what follows the "=": it may be a secret.
            name, equals, _ = parsed.rest[0].partition("=")
            shown = f"{name}=..." if equals else name
            raise FlagError(f"unexpected argument {shown!r}: flags begin with --")
        if parsed.values["log-level"].lower() not in LEVELS:
            raise CommandLineError(f"--log-level is invalid: use {', '.join(LEVELS)}")
        if not has_logs:
            return with_errors(parsed)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            LineFormatter("%(asctime)s %(levelname)s %(message)s", "%Y/%m/%d %H:%M:%S"))
        root = logging.getLogger("nsqclient")
        former = root.level
        root.addHandler(handler)
        root.setLevel(LEVELS[parsed.values["log-level"].lower()])
        try:
            return with_errors(parsed)
        finally:
            root.removeHandler(handler)
            root.setLevel(former)

    def with_errors(parsed: Parsed) -> int:
        try:
            return body(parsed)
        except (NSQError, OSError) as exc:
            raise CommandLineError(str(exc)) from exc

    return goflags.run(flags, argv, with_logs)


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
