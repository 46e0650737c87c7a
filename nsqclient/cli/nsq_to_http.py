"""``nsqclient nsq_to_http``: send the messages of a topic to URLs, with the flags of the original.

A message is finished after a destination answered 200 to 299. If a destination fails, the others
are tried at once; only when all have failed is the message requeued, and the consumer backs off.
``--on-status`` changes the meaning of single answers.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from nsqclient import Config
from nsqclient.cli.consumers import Consumers, make_dead_letters
from nsqclient.cli.flags import (
    DURATION, INT, STRING, STRINGS, CommandLineError, FlagError, Kind, Parsed,
)
from nsqclient.cli.http_sender import Requester, Sender, SendOutcome, parse_rule
from nsqclient.cli.load_balancing import ALL, STRATEGIES, RequestTimes
from nsqclient.cli.signals import Signals
from nsqclient.cli.tool_flags import (
    ToolFlags, add_http_tls_flags, check_in_flight, check_name, check_sources, limit_timeouts,
    read_config, read_key_password, turn_off_negative,
)
from nsqclient.runtime.tls import client_context
from nsqclient.sanitize import masked_address

PROGRAM = "nsq_to_http"

#: The flags for TLS to https servers, with the names that they have in nsqadmin.
_CA, _CERT, _KEY, _PASSWORD, _INSECURE = (
    f"http-client-tls-{name}"
    for name in ("root-ca-file", "cert", "key", "key-password-file", "insecure-skip-verify"))

FLOAT = Kind("float", float)
RULES = Kind("status=action", parse_rule, is_list=True)
URLS = STRINGS._replace(separator=" ")
HEADERS = STRINGS._replace(separator="\n", joint=": ")

_SUMMARY = """\
Sends each message of a topic to one of several URLs, as the body of a POST or in the URL of a
GET. A response with a status from 200 to 299 means success. If no URL succeeds, the message is
requeued and sent again later. A message may arrive twice, but is not lost."""

_EXAMPLES = [
    ("POST each message to one of two hosts",
     "nsqclient nsq_to_http --lookupd-http-address=lookup:4161 \\\n"
     "      --topic=orders --post=http://a/hook --post=http://b/hook"),
    ("send GET requests with a header",
     "nsqclient nsq_to_http --nsqd-tcp-address=127.0.0.1:4150 \\\n"
     "      --topic=orders --get='http://a/hit?m=%s' --header='X-Token: abc'"),
    ("publish messages that a URL rejects to another topic",
     "nsqclient nsq_to_http ... --on-status=429=retry \\\n"
     "      --on-status=4xx=dead-letter --dead-letter-topic=orders.rejected"),
    ("send again at once, never pause", "nsqclient nsq_to_http ... \\\n"
     "      --consumer-opt=default_requeue_delay,0 --consumer-opt=max_backoff_duration,0"),
]


def build_command() -> ToolFlags:
    """The command and its flags."""
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("Messages")
    flags.add("topic", STRING, "", "NSQ topic; required")
    flags.add("channel", STRING, "nsq_to_http", "NSQ channel")
    flags.add("sample", FLOAT, 1.0, "fraction of messages to send; the rest are finished only")
    flags.group("Destination (--post or --get is required)")
    flags.add("post", URLS, (), "URL to POST messages to; may be repeated")
    flags.add("get", URLS, (), "URL to GET, with %s in place of the message; may be repeated")
    flags.alternatives.append(frozenset(("post", "get")))
    flags.add("mode", STRING, "hostpool", "how to choose among several URLs: hostpool (working URLs"
              " in turn),\n      round-robin (all URLs in turn), epsilon-greedy (mostly URLs that"
              " respond fast),\n      or all (every URL)")
    flags.add("content-type", STRING, "application/octet-stream", "Content-Type of POST requests")
    flags.add("header", HEADERS, (), "header of each request, \"Key: Value\"; may be repeated")
    flags.add("http-client-connect-timeout", DURATION, 2.0, "timeout for connecting over HTTP")
    flags.add("http-client-request-timeout", DURATION, 20.0, "timeout for an HTTP request")
    add_http_tls_flags(flags)
    flags.group("Failures")
    flags.add("on-status", RULES, (), "action (retry, drop or dead-letter) after a response with"
              " this status\n      (404, 4xx, 400-428); the first matching rule applies, and any"
              " other status\n      is retried; may be repeated")
    flags.add_dead_letters("topic for messages that --on-status selects or that are given up"
                           "\n      after --consumer-opt=max_attempts,N")
    flags.group("Speed")
    flags.add("n", INT, 100, "number of concurrent requests")
    flags.add("max-in-flight", INT, 200, "maximum number of messages in flight")
    flags.add("status-every", INT, 250, "number of requests after which to log response times; 0:"
              " never")
    flags.add_sources()
    flags.add_common()
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    config = read_config(values, PROGRAM, "consumer-opt")  # first: a bad one is status 2
    headers = _check(values, parsed.given)
    config = config.replace(max_in_flight=values["max-in-flight"])
    _check_dead_letters(values, config)
    urls = list(dict.fromkeys(values["get"] or values["post"]))
    requester = Requester(
        is_get=bool(values["get"]), headers=headers, connections=values["n"],
        timeouts=(values["http-client-connect-timeout"], values["http-client-request-timeout"]),
        context=_read_context(values),
    )
    with contextlib.ExitStack() as stack:
        stack.callback(requester.close)
        signals = stack.enter_context(Signals())
        options: dict[str, Any] = {}
        if values["dead-letter-topic"]:
            options["on_giving_up"] = make_dead_letters(values, config, stack)
        sender = Sender(
            urls, values["mode"], requester, RequestTimes(urls, values["status-every"]),
            values["sample"], values["on-status"])
        consumers = Consumers(values, config, signals)
        consumers.add(
            values["topic"], values["channel"], sender.handle, workers=values["n"], **options)
        consumers.run()
    return 0


def _read_context(values: Mapping[str, Any]) -> ssl.SSLContext | None:
    """Build the TLS context; None without such flags.

    Raises:
        CommandLineError: a certificate without key, or flags that exclude each other.
        TLSError: a file cannot be used; it is named.
    """
    if bool(values[_CERT]) != bool(values[_KEY]):
        raise CommandLineError(f"--{_CERT} and --{_KEY} go together")
    if values[_CA] and values[_INSECURE]:
        raise CommandLineError(f"use --{_CA} or --{_INSECURE} not both")
    if not any(values[name] for name in (_CA, _CERT, _INSECURE)):
        return None
    return client_context(
        ca_file=values[_CA] or DEFAULT_CA_BUNDLE_PATH, cert=values[_CERT], key=values[_KEY],
        key_password=read_key_password(values, _PASSWORD) if values[_KEY] else "",
        verify=not values[_INSECURE],
    )


def _check_dead_letters(values: dict[str, Any], config: Config) -> None:
    """Check that ``--dead-letter-topic`` and the flags that use it are given together."""
    wanted = any(rule.outcome is SendOutcome.DEAD_LETTER for rule in values["on-status"])
    if not values["dead-letter-topic"]:
        if wanted:
            raise CommandLineError("--on-status=...=dead-letter needs --dead-letter-topic")
        return
    check_name(values["dead-letter-topic"], "dead-letter-topic")
    if not wanted and config.max_attempts == 0:
        raise CommandLineError(
            "--dead-letter-topic needs --on-status=STATUS=dead-letter or"
            " --consumer-opt=max_attempts,N")


def _check(values: dict[str, Any], given: frozenset[str]) -> dict[str, str]:
    """Check the flags; return the headers to send."""
    if not values["topic"] or not values["channel"]:
        raise FlagError("--topic and --channel are required")
    for name in ("topic", "channel"):
        check_name(values[name], name)
    if "content-type" in given and not values["post"]:
        raise CommandLineError("--content-type only used with --post")
    check_sources(values)
    if not values["get"] and not values["post"]:
        raise FlagError("--get or --post required")
    if values["get"] and values["post"]:
        raise FlagError("use --get or --post not both")
    for url in values["get"] + values["post"]:
        _check_url(url, is_get=bool(values["get"]))
    if values["mode"] not in STRATEGIES and values["mode"] != ALL:
        raise CommandLineError(
            f"--mode {values['mode']!r} is unknown: use {', '.join(STRATEGIES)} or {ALL}")
    if not 0.0 <= values["sample"] <= 1.0:
        raise CommandLineError("--sample must be between 0.0 and 1.0")
    if values["n"] < 1:
        raise CommandLineError("--n must be at least 1")
    check_in_flight(values)
    turn_off_negative(values, "status-every")
    limit_timeouts(values)
    headers = {} if values["get"] else {"Content-Type": values["content-type"]}
    for text in values["header"]:
        key, value = parse_header(text)
        # Names ignore case, so a later header replaces an earlier one.
        headers = {name: old for name, old in headers.items() if name.lower() != key.lower()}
        headers[key] = value
    return headers


def _check_url(url: str, is_get: bool) -> None:
    if is_get and url.count("%s") != 1:
        raise CommandLineError(
            f"invalid GET address {masked_address(url)!r}: it needs one %s in the place of the"
            " message")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise CommandLineError(f"{masked_address(url)!r} is no http:// or https:// URL")


def parse_header(text: str) -> tuple[str, str]:
    """Read ``Key: Value``.

    Raises:
        CommandLineError: a part is missing, or has invalid characters.
    """
    key, _, value = (part.strip() for part in text.partition(":"))
    if not key or not value:
        raise CommandLineError(f"--header {text!r}: write it as 'Key: Value'")
    if not (key + value).isprintable() or not (key + value).isascii() or " " in key:
        raise CommandLineError(f"--header {text!r} has characters that are invalid in a header")
    return key, value
