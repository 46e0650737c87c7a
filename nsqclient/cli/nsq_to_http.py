"""``nsqclient nsq_to_http``: send the messages of a topic to URLs, with the flags of the original.

A message is finished after a destination answered 200 to 299. If a destination fails, the others
are tried at once; only when all have failed is the message requeued, and the consumer backs off.
``--on-status`` changes the meaning of single answers.
"""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import urlsplit

from nsqclient import Config
from nsqclient.cli.consumers import Consumers, make_dead_letters
from nsqclient.cli.flags import (
    INT, STRING, STRINGS, CommandLineError, Kind, Parsed, choice, limited,
)
from nsqclient.cli.http_sender import DEAD_LETTER, Requester, Sender, parse_rule
from nsqclient.cli.load_balancing import ALL, STRATEGIES, RequestTimes
from nsqclient.cli.signals import Signals
from nsqclient.cli.tool_flags import (
    COUNT, ToolFlags, add_http_timeouts, add_http_tls_flags, read_consumer_config, read_http_tls,
)
from nsqclient.config import build_tls_context
from nsqclient.display import masked_address

PROGRAM = "nsq_to_http"


def _parse_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise CommandLineError(f"{masked_address(url)!r} is no http:// or https:// URL")
    return url


def _parse_get(url: str) -> str:
    if url.count("%s") != 1:
        raise CommandLineError(
            f"{masked_address(url)!r}: it needs one %s in the place of the message")
    return _parse_url(url)


def parse_header(text: str) -> tuple[str, str]:
    """Read ``Key: Value``.

    Raises:
        CommandLineError: a part is missing, or has invalid characters.
    """
    key, _, value = (part.strip() for part in text.partition(":"))
    if not key or not value:
        raise CommandLineError(f"{text!r}: write it as 'Key: Value'")
    if not (key + value).isprintable() or not (key + value).isascii() or " " in key:
        raise CommandLineError(f"{text!r} has characters that are invalid in a header")
    return key, value


FRACTION = limited(
    Kind("float", float), lambda value: 0.0 <= value <= 1.0, "must be between 0.0 and 1.0")
AT_LEAST_1 = limited(INT, lambda value: value >= 1, "must be at least 1")
RULES = Kind("status=action", parse_rule, is_list=True)
URLS = STRINGS._replace(parse=_parse_url, separator=" ")
GET_URLS = URLS._replace(parse=_parse_get)
HEADERS = STRINGS._replace(parse=parse_header, separator="\n", joint=": ")
MODE = choice(*STRATEGIES, ALL, name="string")

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
    flags.add_topic(channel="nsq_to_http")
    flags.add("sample", FRACTION, 1.0, "fraction of messages to send; the rest are finished only")
    flags.group("Destination (--post or --get is required)")
    flags.add("post", URLS, (), "URL to POST messages to; may be repeated")
    flags.add("get", GET_URLS, (), "URL to GET, with %s in place of the message; may be repeated")
    flags.require("get", "post")
    flags.add("mode", MODE, "hostpool", "how to choose among several URLs: hostpool (working URLs"
              " in turn),\n      round-robin (all URLs in turn), epsilon-greedy (mostly URLs that"
              " respond fast),\n      or all (every URL)")
    flags.add("content-type", STRING, "application/octet-stream", "Content-Type of POST requests")
    flags.add("header", HEADERS, (), "header of each request, \"Key: Value\"; may be repeated")
    add_http_timeouts(flags, request=20.0)
    add_http_tls_flags(flags)
    flags.group("Failures")
    flags.add("on-status", RULES, (), "action (retry, drop or dead-letter) after a response with"
              " this status\n      (404, 4xx, 400-428); the first matching rule applies, and any"
              " other status\n      is retried; may be repeated")
    flags.add_dead_letters("topic for messages that --on-status selects or that are given up"
                           "\n      after --consumer-opt=max_attempts,N")
    flags.group("Speed")
    flags.add("n", AT_LEAST_1, 100, "number of concurrent requests")
    flags.add_in_flight()
    flags.add("status-every", COUNT, 250, "number of requests after which to log response times; 0:"
              " never")
    flags.add_sources()
    flags.add_common()
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    config = read_consumer_config(values, PROGRAM)  # first: a bad one is status 2
    if "content-type" in parsed.given and not values["post"]:
        raise CommandLineError("--content-type only used with --post")
    _check_dead_letters(values, config)
    urls = list(dict.fromkeys(values["get"] or values["post"]))
    tls = read_http_tls(values)
    requester = Requester(
        is_get=bool(values["get"]), headers=_headers(values), connections=values["n"],
        timeouts=(values["http-client-connect-timeout"], values["http-client-request-timeout"]),
        context=build_tls_context(Config(**tls)) if tls else None,
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


def _check_dead_letters(values: dict[str, Any], config: Config) -> None:
    """Check that ``--dead-letter-topic`` and the flags that use it are given together."""
    wanted = any(rule.action == DEAD_LETTER for rule in values["on-status"])
    if wanted and not values["dead-letter-topic"]:
        raise CommandLineError("--on-status=...=dead-letter needs --dead-letter-topic")
    if values["dead-letter-topic"] and not wanted and config.max_attempts == 0:
        raise CommandLineError(
            "--dead-letter-topic needs --on-status=STATUS=dead-letter or"
            " --consumer-opt=max_attempts,N")


def _headers(values: dict[str, Any]) -> dict[str, str]:
    headers = {} if values["get"] else {"Content-Type": values["content-type"]}
    for key, value in values["header"]:
        # Names ignore case, so a later header replaces an earlier one.
        headers = {name: old for name, old in headers.items() if name.lower() != key.lower()}
        headers[key] = value
    return headers
